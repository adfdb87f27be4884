"""Whole clusters under faults, many at a time: in every history what must hold did, and all was well in the end."""

import msgspec
import pytest

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.node.node import Node
from phalanx.wire.message import WireMessage
from phalanx.wire.messages import GetAll
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.planted_bug import PlantedBug
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result, repeat_command
from phalanx_proof.sim.run import run
from support.histories import blocks, ranges


def play(options: HistoryOptions) -> Result:
    """The result of a history in which nothing was violated."""
    result = run(options)
    told = "\n".join(f"{v.at_ms} ms: {v.what}: {v.story}" for v in result.violations)
    assert not result.violations, f"{told}\nrepeat with: {repeat_command(result)}"
    return result


def check_all(profile: Profile, seeds: range, **changes: int) -> list[Result]:
    return [play(msgspec.structs.replace(draw_options(seed, profile), **changes)) for seed in seeds]


@pytest.mark.rows("CS-14", "CS-21", "CS-22", "CS-24", "CS-25", "DL-07", "DL-33")
@pytest.mark.parametrize("seeds", ranges(range(12, 18), size=12, count=5))
def test_members_crash_join_leave_and_lose_connections(seeds: range) -> None:
    results = check_all(Profile.DEFAULT, seeds)
    assert sum(sum(result.faults.values()) for result in results) > 12
    assert all(result.operations for result in results)


@pytest.mark.rows("DL-11")
@pytest.mark.parametrize("block", blocks(3, in_brief=(0,)))
def test_one_small_disaster_after_another_under_load(block: int) -> None:
    results = check_all(Profile.FAILOVER, range(5 * block, 5 * block + 5))
    assert sum(result.faults.get("crash-sending", 0) for result in results)


@pytest.mark.parametrize("block", range(2))
def test_without_faults_every_register_is_linearizable(block: int) -> None:
    all_handed_back = all_operations = 0
    for result in check_all(Profile.QUIET, range(8 * block, 8 * block + 8)):
        assert result.counts["keys checked for an order"] > result.counts.get("keys not decided", 0)
        # Replicas are still dealt out: keys that had one owner when they were grouped may have two when they arrive.
        handed_back = result.counts["bulk calls handed back"]
        assert result.outcomes["OK"] == result.operations - handed_back
        all_handed_back, all_operations = all_handed_back + handed_back, all_operations + result.operations
        assert result.counts["stale reads"] == result.counts["excused losses"] == 0
    # Of all histories, because the first deal of replicas weighs most in one with few calls.
    assert all_handed_back <= 0.01 * all_operations


def test_a_bulk_call_that_is_handed_back_for_nothing_is_found() -> None:
    def plant(node: Node) -> None:
        def on_get_all(caller: Target, request: WireMessage, now: Millis) -> None:
            assert isinstance(request, GetAll)
            node.grid.replies.fail(caller, request.id, ErrorCode.NOT_OWNER, "planted")

        node._handlers[GetAll] = on_get_all

    planted = PlantedBug("hand-back", plant)
    found = {violation.what for violation in run(draw_options(0, Profile.QUIET), planted).violations}
    assert found == {"a bulk call is handed back only when an owner changes"}


def test_every_state_between_two_inputs_is_valid() -> None:
    check_all(Profile.DEFAULT, range(200, 203), validate_every=1)
    check_all(Profile.FAILOVER, range(200, 201), validate_every=1)


@pytest.mark.long
def test_every_state_between_two_inputs_is_valid_in_more_histories() -> None:
    check_all(Profile.DEFAULT, range(203, 230), validate_every=1)
    check_all(Profile.FAILOVER, range(201, 210), validate_every=1)
