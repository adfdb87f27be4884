"""Histories in which Redis clients speak to members that crash, hang, come and go."""

from typing import Any
from unittest import mock

import pytest

from phalanx.codec.values import to_data
from phalanx.common.errors import ErrorCode
from phalanx.grid.replica import merge_policies
from phalanx.wire.messages import ErrorReply
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.redis_checker import LOST, WRONG, Merges, RedisCounter, RedisKey, Register, check_redis
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from phalanx_protocols.resp import answers
from phalanx_protocols.resp.answer_order import AnswerOrder
from phalanx_protocols.resp.answers import KeyCall
from support.histories import blocks, count_all, play_all
from support.planted import assert_found


def test_no_acknowledged_command_is_lost_or_done_twice() -> None:
    assert count_all(range(8), Profile.REDIS)["commands of Redis clients"] > 700


@pytest.mark.parametrize("block", blocks(10, ()))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 40 * block, 1_040 + 40 * block), Profile.REDIS)


def test_every_fourth_history_has_cuts_in_which_clients_are_told_errors() -> None:
    """There is no other way to find an endpoint that takes what is unknown for undone."""
    assert count_all(range(27, 32, 4), Profile.REDIS)["errors that Redis clients were told"] > 20


# --- planted bugs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("canary", ["acknowledge-early", "forget-outcomes"])
def test_bugs_of_members_are_found_by_what_redis_clients_were_told(canary: str) -> None:
    assert_found(canary, Profile.REDIS, range(40), {LOST})


def answers_as_they_come(self: AnswerOrder) -> None:
    """Send each answer that has come, also before those of earlier commands."""
    for slot in [slot for slot in self.slots if slot.answer is not None]:
        self.slots.remove(slot)
        self.out.append(slot.answer or b"")


def unknown_is_undone(code: ErrorCode, text: str, *, has_ended: bool) -> str:
    """Tell clients that nothing was changed, whatever is known."""
    return f"TRYAGAIN {text}"


def refused_is_done(self: KeyCall, reply: Any) -> Any:
    """Take every reply for a success."""
    return b"+OK\r\n" if isinstance(reply, ErrorReply) else self.answer_of(reply)


PLANTED = {
    "answers_as_they_come": (AnswerOrder, "settle", answers_as_they_come, WRONG, 7),
    "unknown_is_undone": (answers, "_refusal_text", unknown_is_undone, LOST, 31),
    "refused_is_done": (KeyCall, "answer", refused_is_done, WRONG, 7),
}
"""Bug of the endpoint to where it is planted, what it is found by, and a seed whose history matters for it."""


@pytest.mark.parametrize("name", PLANTED)
def test_bugs_of_the_endpoint_are_found(name: str) -> None:
    where, what, planted, finding, known = PLANTED[name]
    for seed in (known, *range(3, 160, 4)):
        with mock.patch.object(where, what, planted):
            found = {violation.what for violation in run(draw_options(seed, Profile.REDIS)).violations}
        if finding in found:
            return
    raise AssertionError(f"{name} was planted and not found")


# --- the checker ------------------------------------------------------------------------------------------------------


def judged(
    *, count: int, number: int, is_certain: bool = True, is_lost: bool = False, wrong: bool = False
) -> list[str]:
    """What is found of a counter of which 3 of 5, and of a register of which 2 of 4 writes were acknowledged."""
    counter, register, findings = RedisCounter(b"c"), Register(b"r"), Findings()
    counter.acknowledged, counter.sent = 3, 5
    register.acknowledged, register.last_sent, register.is_certain = 2, 4, is_certain
    values = {b"c": to_data(b"%d" % count), b"r": to_data(b"%d" % number)}
    told = [(RedisKey(b"r"), "read wrongly")] if wrong else []
    check_redis([counter], [register], told, values.get, lambda key: is_lost, findings, 0)
    return [each.what for each in findings.violations]


def test_the_checker_tells_what_is_lost_and_what_was_done_twice() -> None:
    assert judged(count=3, number=2) == judged(count=5, number=2) == []
    assert judged(count=2, number=2) == judged(count=6, number=2) == [LOST]
    assert judged(count=3, number=1) == judged(count=3, number=3) == [LOST]
    assert judged(count=3, number=4, is_certain=False) == []
    assert judged(count=2, number=1, is_lost=True) == []
    assert judged(count=6, number=2, is_lost=True) == [LOST], "a loss makes no counter greater"
    assert judged(count=3, number=2, wrong=True) == [WRONG]


def merged(number: int | None, *, lost_at: int = -1) -> list[str]:
    """What is found of a register that merged sides end with: 1 and 2 were acknowledged on one, 3 was refused, 4 is unknown."""
    register, findings = Register(b"r"), Findings()
    for begun in (0, 5_000, 5_100, 5_200):
        register.send(begun)
    register.acknowledge(1, 10)
    register.acknowledge(2, 5_010)
    register.fail(3, is_undone=True)
    register.fail(4, is_undone=False)
    key, value = to_data(b"r"), None if number is None else to_data(b"%d" % number)
    merges = Merges(1_000, {key: lost_at})
    check_redis([], [register], [], {b"r": value}.get, lambda key: True, findings, 9_000, merges)
    return [each.what for each in findings.violations]


def test_the_latest_number_of_a_register_is_left_when_sides_merge() -> None:
    assert merged(2) == merged(4) == []
    assert merged(1) == merged(None) == [LOST], "a later one was acknowledged"
    assert merged(3) == merged(9) == [LOST], "nobody can have written it"
    assert merged(1, lost_at=6_000) == [], "its last holder ended"
    assert merged(1, lost_at=4_000) == [LOST]


def test_a_merge_that_loses_the_later_write_is_found_by_what_redis_clients_were_told() -> None:
    """The usual workload would find it, too: this is about the judge of Redis clients."""
    with mock.patch.dict(merge_policies._POLICIES, {"latest-update": lambda kept, here: here}):
        for seed in range(3, 400, 4):
            if any(each.what == LOST for each in run(draw_options(seed, Profile.REDIS)).violations):
                return
    raise AssertionError("it was planted and not found")
