"""Histories in which Redis clients speak to members that crash, hang, come and go."""

import pytest

from histories import blocks, count_all, play_all
from phalanx.codec.values import to_data
from phalanx.sim.checkers.findings import Findings
from phalanx.sim.checkers.redis_checker import LOST, WRONG, Counter, Key, Register, check_redis
from phalanx.sim.options import Profile


def test_no_acknowledged_command_is_lost_or_done_twice() -> None:
    assert count_all(range(12), Profile.REDIS)["commands of Redis clients"] > 1_000


@pytest.mark.parametrize("block", blocks(10, ()))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 40 * block, 1_040 + 40 * block), Profile.REDIS)


def judged(
    *, count: int, number: int, is_certain: bool = True, is_lost: bool = False, wrong: bool = False
) -> list[str]:
    """What is found of a counter of which 3 of 5, and of a register of which 2 of 4 writes were acknowledged."""
    counter, register, findings = Counter(b"c"), Register(b"r"), Findings()
    counter.acknowledged, counter.sent = 3, 5
    register.acknowledged, register.last_sent, register.is_certain = 2, 4, is_certain
    values = {b"c": to_data(b"%d" % count), b"r": to_data(b"%d" % number)}
    told = [(Key(b"r"), "read wrongly")] if wrong else []
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
