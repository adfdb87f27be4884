"""Histories for timeouts: members pause and hang as stated, and what the failure detectors made of it is counted."""

import msgspec
import pytest

from phalanx_proof.sim.fault import Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.timeouts import SHORTEST_PART, Conditions, draw_timeouts
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from phalanx_proof.sim.settings import configurations

SEEDS = range(8)


def play(*settings: str) -> list[Result]:
    (made,) = configurations([Profile.TIMEOUTS], settings)
    return [run(made.draw(seed)) for seed in SEEDS]


def total(results: list[Result], name: str) -> int:
    return sum(each.counts.get(name, 0) for each in results)


def test_pauses_are_as_long_and_as_many_as_stated() -> None:
    conditions = Conditions(longest_pause_ms=2_000, pauses_per_minute=12, hangs=0, duration_ms=310_000)
    pauses = [f.lasts_ms for seed in SEEDS for f in draw_timeouts(seed, conditions).faults]
    minutes = len(SEEDS) * conditions.members * 300_000 / 60_000
    assert 2_000 // SHORTEST_PART <= min(pauses) < max(pauses) <= 2_000
    assert 0.8 * 12 * minutes < len(pauses) < 1.2 * 12 * minutes


def test_a_timeout_shorter_than_pauses_removes_members_that_run() -> None:
    short, long = play("heartbeat_timeout=1500ms", "longest_pause=3"), play("heartbeat_timeout=6", "longest_pause=3")
    assert total(short, "removed while running") > 5
    assert total(long, "removed while running") == 0
    assert total(long, "pauses") > 100
    assert not any(each.violations for each in short + long)


def test_the_member_that_hangs_is_found_within_the_timeouts_of_the_setting() -> None:
    for timeout_s in (3, 8):
        results = play(f"heartbeat_timeout={timeout_s}", "pauses_per_minute=0", "failure_detector=deadline")
        found = [after for each in results for after in each.detected_after_ms]
        assert total(results, "hangs") == len(found) == len(SEEDS)
        assert all((timeout_s - 2) * 1_000 < after < (timeout_s * 1.5 + 2) * 1_000 for after in found), found
        assert total(results, "removed while running") == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_longer_pauses_of_a_seed_come_at_the_same_times(seed: int) -> None:
    def begun(longest_ms: int) -> list[tuple[int, int]]:
        conditions = Conditions(longest_pause_ms=longest_ms, hangs=0)
        return [(fault.at_ms, fault.host) for fault in draw_timeouts(seed, conditions).faults]

    assert begun(500) == begun(5_000)


def test_stalled_links_deliver_late_what_they_held_back() -> None:
    calm = play("pauses_per_minute=0", "hangs=0", "heartbeat_timeout=2")
    stalled = play("pauses_per_minute=0", "hangs=0", "heartbeat_timeout=2", "longest_stall=8", "stalls_per_minute=10")
    assert total(calm, "removed while running") == 0
    assert total(stalled, "removed while running") > 0
    assert not any(each.violations for each in stalled)


def paused(lasts_ms: int, **changes: object) -> HistoryOptions:
    fault = Fault(20_000, FaultKind.PAUSE, 1, lasts_ms=lasts_ms)
    options = draw_timeouts(1, Conditions(pauses_per_minute=0, hangs=0))
    return msgspec.structs.replace(options, faults=(fault,), heartbeat_timeout_ms=3_000, **changes)


def test_a_pause_is_no_hang_and_a_hang_is_no_pause() -> None:
    pause, hang = run(paused(10_000)), run(paused(90_000))
    assert (pause.counts["pauses"], pause.counts["removed while running"], pause.detected_after_ms) == (1, 1, [])
    assert (hang.counts["hangs"], hang.counts.get("removed while running")) == (1, None)
    assert len(hang.detected_after_ms) == 1


def test_a_member_that_leaves_in_good_order_was_not_removed_while_running() -> None:
    leave = Fault(20_000, FaultKind.LEAVE, 1)
    result = run(msgspec.structs.replace(paused(100), faults=(leave,)))
    assert result.events["Left"] == 1
    assert "removed while running" not in result.counts
