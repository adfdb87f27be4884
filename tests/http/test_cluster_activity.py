"""What the cluster did, added up of what its members tell, whose points begin and end at different times."""

import asyncio
from types import SimpleNamespace
from typing import Any

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.http.console.cluster_activity import LATE_MS, SLOT_MS, SLOTS, ClusterActivity
from phalanx.http.console.peers import Peers
from phalanx.http.durations import CALL_ENDS_S
from phalanx.http.served_member import Questions
from phalanx.wire.figures import ActivityPoint
from phalanx.wire.messages import ActivityReply, GetActivity

A, B = (MemberId(f"127.0.0.1:{port}/1b4e28ba-2fa1-11d2-883f-0016d3cca427") for port in (5701, 5702))
FAST = (100, *[0] * len(CALL_ENDS_S))


def point(reads: int, *, entries: int = 0, took_ms: int = SLOT_MS) -> ActivityPoint:
    return ActivityPoint(took_ms, reads, reads // 2, 0, FAST, entries, 1_000, 1, 3, 0)


class Time:
    """The asker's clock, and what it knows."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000 * SLOT_MS
        self.activity = ClusterActivity(lambda: self.now_ms / 1000)

    def noted(self, member: MemberId, recorded: int, *points: ActivityPoint, age_ms: int = 0) -> None:
        self.activity.take(member, ActivityReply(1, recorded, age_ms, points, True, 9_000, ()))

    def rows(self, *members: MemberId) -> dict[str, list[float | None]]:
        found: dict[str, list[float | None]] = self.activity.as_object(members, members, [])
        return found


def test_points_of_members_that_look_at_different_moments_are_added_up() -> None:
    time = Time()
    time.noted(A, 3, point(300), point(600), point(900), age_ms=0)
    time.noted(B, 3, point(3), point(3), point(3), age_ms=1_100)
    rows = time.rows(A, B)
    assert rows["reads"] == [101.0, 201.0, 301.0], "calls a second: B's points cover the middles of the same slots"
    assert rows["writes"] == [50.3, 100.3, 150.3]
    assert rows["entries"] == [0, 0, 0]
    assert rows["clients"] == [2, 2, 2]
    assert rows["moves"] == [2.0, 2.0, 2.0]
    assert rows["p99_ms"] == [0.099] * 3


def test_what_is_told_again_counts_once_and_only_what_is_missing_is_asked_for() -> None:
    time = Time()
    time.now_ms += SLOT_MS // 2 + 20  # just behind the middle of a slot
    assert time.activity.missing(A) == SLOTS
    time.noted(A, 2, point(300), point(300))
    time.noted(A, 2, point(300), point(300))
    time.now_ms += SLOT_MS
    assert time.activity.missing(A) == 3
    time.noted(A, 3, point(300), point(300), point(300), age_ms=40)  # the message took a little
    time.noted(A, 2, point(300), point(300))
    time.now_ms += SLOT_MS
    time.noted(A, 4, point(300), point(300))
    assert time.rows(A)["reads"] == [100.0] * 4, "no slot is counted twice, none is left out"


def test_a_member_that_joined_later_or_has_gone_has_its_own_part() -> None:
    time = Time()
    time.noted(A, 3, *[point(300, entries=5)] * 3)
    time.noted(B, 1, point(300, entries=6))
    assert time.rows(A, B)["entries"] == [5, 5, 11]
    time.activity.forget_members({A})
    assert time.rows(A)["entries"] == [5, 5, 11], "it did what it did"


def test_a_slot_waits_for_all_members_but_not_for_one_that_is_silent() -> None:
    time = Time()
    time.noted(A, 2, point(300), point(300))
    time.noted(B, 2, point(300), point(300))
    time.now_ms += SLOT_MS
    time.noted(A, 3, point(300))
    assert time.rows(A, B)["reads"] == [200.0, 200.0]
    time.now_ms += LATE_MS
    for number in range(LATE_MS // SLOT_MS):
        time.noted(A, 4 + number, point(300), age_ms=LATE_MS - (number + 1) * SLOT_MS)
    assert time.rows(A, B)["reads"][-2:] == [200.0, 100.0], "the oldest that is not waited for any more"


def test_ten_minutes_are_kept_and_a_pause_of_a_member_is_a_long_point() -> None:
    time = Time()
    time.noted(A, SLOTS + 50, *[point(300)] * SLOTS)
    assert time.rows(A)["reads"] == [100.0] * SLOTS
    time.now_ms += 10 * SLOT_MS
    time.noted(A, SLOTS + 51, point(300, took_ms=10 * SLOT_MS))
    rows = time.rows(A)
    assert rows["reads"] == [100.0] * (SLOTS - 10) + [10.0] * 10
    assert len(time.activity._slots) <= SLOTS + 1
    time.now_ms += 2 * SLOTS * SLOT_MS
    time.noted(A, SLOTS + 52, point(3))
    assert len(time.activity._slots) <= 2, "older ones are forgotten"


def test_calls_in_other_classes_of_another_release_count_without_their_durations() -> None:
    time = Time()
    other = ActivityPoint(SLOT_MS, 30, 0, 0, (1, 2, 3), 0, 0, 0, 0, 0)
    time.noted(A, 1, other)
    rows = time.rows(A)
    assert (rows["reads"], rows["p99_ms"]) == ([10.0], [None])


def test_other_members_are_asked() -> None:
    asked: list[Any] = []

    def ask(to: Any, make: Any, *fields: Any, within_ms: int) -> asyncio.Future[Any]:
        asked.append(make(1, *fields))
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        reply.set_result(ActivityReply(1, 0, 0, (), True, 0, ()))
        return reply

    view = MembersView(1, A, (A, B))
    member = SimpleNamespace(node=SimpleNamespace(membership=SimpleNamespace(view=view)))

    async def scenario() -> None:
        peers = Peers(Questions(member, ask), ClusterActivity())
        await peers.ask((A, B), A)
        assert peers.answers[B].activity is not None
        peers.end()

    asyncio.run(scenario())
    assert any(isinstance(each, GetActivity) for each in asked)
