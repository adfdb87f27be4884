"""A member that was away does not serve before it knows that it is still one."""

from typing import Any

import pytest

from phalanx.common.errors import ErrorCode
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ServesAgain, WokeUp
from support.harness import KEY, MAP, TEXT, Cluster

AWAY_MS = 3_000
"""Longer than a heartbeat interval, and not so long that others suspect anybody."""
TOO_LONG_MS = 30_000


def three(**settings: Any) -> Cluster:
    """A is the master; B owns the only partition, C is its backup."""
    c = Cluster("ABC", partition_count=1, **settings)
    c.assign(rows=["BC"])
    return c


def away(c: Cluster, name: str, ms: int) -> None:
    c.hang(name)
    c.advance(ms)


def is_refused(c: Cluster, request: int) -> bool:
    """To be asked again."""
    reply = c.replies[request]
    return isinstance(reply, m.ErrorReply) and reply.code is ErrorCode.NOT_READY


def is_answered(c: Cluster, name: str) -> bool:
    """Whether a member serves what is asked from now on."""
    return c.is_done(c.ask(name, m.Get, MAP, KEY))


def test_requests_are_refused_until_the_master_has_answered() -> None:
    c = three()
    c.hold("A", "B")
    away(c, "B", AWAY_MS)
    read, write = c.ask("B", m.Get, MAP, KEY), c.put("B", KEY, TEXT + b"late")
    c.resume("B")
    c.settle()
    assert is_refused(c, read)
    assert is_refused(c, write)
    assert not is_answered(c, "B")
    c.release("A", "B")
    c.settle()
    assert not c.entries("B"), "what has waited may have been carried out elsewhere"
    written = c.put("B", KEY, TEXT + b"again")
    c.settle()
    assert c.is_done(written)
    assert c.get("B", KEY) == TEXT + b"again"
    [woke], [serves] = c.events_of("B", WokeUp), c.events_of("B", ServesAgain)
    assert woke.away_ms >= AWAY_MS - 1_000
    assert serves.refused == 3


def test_who_was_gone_on_without_applies_nothing_that_has_waited_for_it() -> None:
    c = three()
    away(c, "B", TOO_LONG_MS)
    assert c.view("A") == c.view("C") == "AC"
    late = c.put("B", KEY, TEXT + b"late")
    c.resume("B")
    c.settle()
    assert not c.is_done(late)
    assert c.get(c.replicas("A")[0], KEY) is None


@pytest.mark.parametrize("away_ms", range(1_000, 2_100, 100))
@pytest.mark.parametrize("since_heartbeat_ms", [0, 250, 500, 750])
def test_a_member_notices_that_it_was_away_before_others_suspect_it(since_heartbeat_ms: int, away_ms: int) -> None:
    """However little longer the timeout is than the interval of heartbeats."""
    c = three(heartbeat_interval_ms=1_000, heartbeat_timeout_ms=1_500)
    c.put("B", KEY, TEXT + b"old")
    c.advance(2_000 + since_heartbeat_ms)
    away(c, "B", away_ms)
    if c.view("A") != "AC":
        return
    assert c.get("C", KEY) == TEXT + b"old"
    c.resume("B")
    assert not is_answered(c, "B")


def test_a_master_asks_whether_most_still_follow_it() -> None:
    c = Cluster("ABC", partition_count=1)
    c.assign(rows=["AB"])
    c.hold("BC", "A")
    away(c, "A", AWAY_MS)
    c.resume("A")
    c.settle()
    assert not is_answered(c, "A")
    c.release("B", "A")
    c.settle()
    assert is_answered(c, "A")


def test_a_question_from_before_does_not_count_after_the_member_was_away_again() -> None:
    c = three()
    c.hold("A", "B")
    away(c, "B", AWAY_MS)
    c.resume("B")
    c.advance(1)
    answers = len(c.pending("A", "B", m.PauseCheckAnswer))
    assert answers
    away(c, "B", AWAY_MS)
    c.resume("B")
    for _ in range(answers):
        c.deliver("A", "B", m.PauseCheckAnswer)
    assert not is_answered(c, "B")
    c.release("A", "B")
    c.settle()
    assert is_answered(c, "B")


def test_nobody_to_ask_is_no_reason_to_wait() -> None:
    c = Cluster("A", partition_count=1)
    c.assign(rows=["A"])
    away(c, "A", AWAY_MS)
    c.resume("A")
    c.advance(1)
    assert is_answered(c, "A")


def test_the_wait_ends_when_the_master_that_does_not_answer_is_followed_no_more() -> None:
    c = three()
    away(c, "B", AWAY_MS)
    c.crash("A")
    c.resume("B")
    c.settle()
    assert not is_answered(c, "B")
    c.advance(60_000)
    assert is_answered(c, c.replicas("B")[0])
    assert c.master("B") == c.master("C") != "A"


def test_members_that_were_all_away_serve_again() -> None:
    c = three()
    for name in "ABC":
        c.hang(name)
    c.advance(TOO_LONG_MS)
    for name in "ABC":
        c.resume(name)
    c.advance(2_000)
    assert is_answered(c, "B")
    assert c.views_of("ABC") == [c.view("A")] * 3
