"""One line for one change: what members decided when one joined, crashed, left or was only suspected, in a few words."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from phalanx.common.ids import MemberId
from phalanx.http.console.story_lines import NEWS_MS, KnownEvent, StoryLines
from phalanx.reports.event_words import group_of
from phalanx.wire.event import Event
from phalanx.wire.join_events import JoinAnswered, Joined, LeaveStarted, Left, MemberAdmitted
from phalanx.wire.merge_events import MergeConflicts
from phalanx.wire.suspicion_events import ClaimAnswered, ClaimEnded, ClaimStarted, MemberSuspected, SuspicionRemoved
from phalanx.wire.table_events import FullyReplicated, MigrationsPlanned, PartitionsRepaired, RebalancingProgress
from phalanx.wire.view_events import MajorityChanged, MemberRemoved, ViewInstalled, ViewStable

A, B, C = (
    MemberId(f"127.0.0.1:{port}/1b4e28ba-2fa1-11d2-883f-0016d3cca42{port - 5700}") for port in (5701, 5702, 5703)
)
C_AGAIN = MemberId(C.replace("d3cca423", "d3cca429"))
NAMES = {A: "A", B: "B", C: "C", C_AGAIN: "C"}


class History:
    """Events as a console knows them."""

    def __init__(self) -> None:
        self.told: list[KnownEvent] = []
        self.now = 1_000_000

    def by(self, member: MemberId, event: Event, after_ms: int = 1) -> None:
        self.now += after_ms
        kind, fields = type(event).__name__, msgspec.structs.asdict(event)
        # As they come from other members: read from JSON.
        fields = msgspec.json.decode(msgspec.json.encode(fields))
        self.told.append(KnownEvent(len(self.told), self.now, member, kind, group_of(kind, fields), fields))

    def view(
        self, version: int, *members: MemberId, rule: str = "CS-11 removed", maker: MemberId | None = None
    ) -> None:
        for each in members:
            made = maker or members[0]
            self.by(each, ViewInstalled(version, made, members[0], members, rule), 20)

    def lines(self) -> StoryLines:
        return StoryLines(self.told)

    def said(self) -> list[str]:
        """Each line with its level, and members by their letters."""
        return [f"{each['level']}: {letters(each['said'])}" for each in self.lines().as_objects()]

    def news(self) -> str:
        found = self.lines().news(self.now)
        return f"{found['level']}: {letters(found['said'])}" if found else ""


def letters(text: str) -> str:
    for member, letter in NAMES.items():
        text = text.replace(member.partition("/")[0], letter)
    return text


def three() -> History:
    history = History()
    history.by(A, ViewInstalled(1, A, A, (A,), "EL-05 the seed forms the cluster"))
    history.by(A, Joined(1, A, (A,)))
    for version, joiner, members in ((2, B, (A, B)), (3, C, (A, B, C))):
        history.by(A, MemberAdmitted(joiner, version, ()), 1_000)
        history.view(version, *members, rule="CS-10 joined")
        history.by(joiner, Joined(version, A, members))
        history.by(A, JoinAnswered(joiner, version, ()))
        history.by(A, ViewStable(version, 1, members))
    history.now += 100_000
    return history


def test_one_line_for_each_that_joined() -> None:
    history = three()
    assert history.said() == [
        "good: A began the cluster: 1 member",
        "good: B joined: 2 members",
        "good: C joined: 3 members",
    ]
    assert history.news() == "", "that was long ago"
    ids = [each for line in history.lines().as_objects() for each in line["events"]]
    assert sorted(ids) == list(range(len(history.told))), "each event is a detail of one line"


def crash_of_c(history: History) -> None:
    for by in (B, A):
        history.by(by, MemberSuspected(C, "connection lost", "CS-33 connection"))
    history.by(A, MemberRemoved(C, 4, "connection lost", "CS-35"), 0)
    history.view(4, A, B)
    history.by(A, PartitionsRepaired(9, (1, 2), (), (C,), "DL-05"))
    history.by(A, MigrationsPlanned(9, 180, 180, 180, "members left"))


def test_a_crash_is_red_and_its_repair_green() -> None:
    history = three()
    for by in (B, A):
        history.by(by, MemberSuspected(C, "connection lost", "CS-33 connection"))
    assert history.news() == "bad: C does not answer A, B"
    history.told = history.told[:-2]
    crash_of_c(history)
    assert history.said()[3:] == [
        "bad: C crashed, hangs or is cut off: 2 members",
        "warn: 180 partitions lack a replica: copies are under way",
    ]
    assert history.news() == "bad: C crashed, hangs or is cut off: 2 members", "a repair under way is no news"
    history.by(A, FullyReplicated(99, 1_240), 1_200)
    assert history.said()[4:] == ["good: Every partition has all its replicas again, 1.2 s after C went"]
    assert history.news() == "good: Every partition has all its replicas again, 1.2 s after C went"
    history.now += NEWS_MS + 1
    assert history.news() == ""
    assert history.lines().as_objects()[3]["about"] == ["127.0.0.1:5701", "127.0.0.1:5702", "127.0.0.1:5703"]


def test_no_line_says_the_id_of_a_rule() -> None:
    history = three()
    crash_of_c(history)
    for line in history.lines().as_objects():
        assert not any(rule in line["said"] for rule in ("CS-", "DL-", "EL-", "PX-")), line


@pytest.mark.parametrize("seed", range(5))
def test_all_consoles_say_the_same_though_times_differ_a_little(seed: int) -> None:
    """What other members decided is known by its age: some milliseconds more or less, in another order."""
    history = three()
    crash_of_c(history)
    history.by(A, RebalancingProgress(98, 180, 180, 9, 900, 1_200, 0), 100)  # no decision: nobody else hears of it
    history.by(A, FullyReplicated(99, 1_240), 1_200)
    chance = random.Random(seed)
    its = [replace(each, at=each.at + (chance.randrange(30) if each.by != B else 0)) for each in history.told]
    # Of the other member only decisions are known: what has no rule is of this process alone.
    its = [each for each in its if each.by == B or each.fields.get("rule")]
    chance.shuffle(its)
    other = StoryLines(its)
    said = [(each["key"], each["said"]) for each in history.lines().as_objects()]
    assert sorted((each["key"], each["said"]) for each in other.as_objects()) == sorted(said)
    assert other.news(history.now)["said"] == history.lines().news(history.now)["said"]  # type: ignore[index]


def test_the_master_crashes() -> None:
    history = three()
    history.by(B, MemberSuspected(A, "connection lost", "CS-33"))
    history.by(B, ClaimStarted(1, 3, (A,), "CS-53"))
    history.by(C, ClaimAnswered(B, True, (), "CS-57"))
    history.by(B, ClaimEnded(1, "this member is the master", (), 100, "CS-63"))
    history.view(6, B, C, rule="CS-66 mastership claimed")
    assert history.said()[3:] == ["bad: A crashed, hangs or is cut off; B is the master now: 2 members"]
    assert len(history.lines().as_objects()[3]["events"]) == 6


def test_a_member_leaves_in_order() -> None:
    history = three()
    history.by(A, LeaveStarted(C, 181))
    assert history.said()[3:] == ["info: C is leaving: 181 replicas to hand over"]
    history.by(C, Left(4), 2_000)
    history.by(A, MemberRemoved(C, 4, "it left", "PX-01"))
    history.view(4, A, B)
    assert history.said()[3:] == ["info: C left: 2 members"]


def test_a_member_that_was_only_suspected() -> None:
    history = three()
    history.by(B, MemberSuspected(C, "silence", "CS-33"))
    history.by(B, SuspicionRemoved(C, "CS-50"), 3_000)
    assert history.said()[3:] == ["good: C was suspected, and answers again"]
    history.by(B, MemberSuspected(C, "silence", "CS-33"), 3_000)
    assert history.said()[3:] == ["good: C was suspected, and answers again", "bad: C does not answer B"]


def test_a_member_that_comes_back_at_once_and_one_that_loses_the_majority() -> None:
    history = three()
    history.by(A, MemberAdmitted(C_AGAIN, 4, (C,)))
    history.view(4, A, B, C_AGAIN)
    assert history.said()[3:] == ["warn: C came back as a new member: 3 members"]
    history.by(A, MemberRemoved(B, 5, "silence", "CS-35"), 5_000)
    history.view(5, A)
    history.by(A, MajorityChanged(5, False, "1 of 3", "EL-50"))
    assert history.said()[4:] == ["bad: B, C crashed, hang or are cut off: 1 member, without the majority"]
    history.by(A, MajorityChanged(5, True, "", "EL-50"))
    assert history.said()[5:] == ["info: A has the majority again (member list 5)"]


def test_a_master_that_leaves_makes_the_list_without_itself() -> None:
    """Its decisions went with it: what the others know is who made the list."""
    history = three()
    history.view(4, B, C, maker=A)
    assert history.said()[3:] == ["info: A left; B is the master now: 2 members"]


def test_lost_partitions_and_moves() -> None:
    history = three()
    history.by(A, PartitionsRepaired(9, (), (4, 5), (B, C), "DL-05"))
    assert history.said()[3:] == [
        "warn: B, C went: others take over what it held",
        "bad: 2 partitions lost: B, C held their last replicas",
    ]
    history.by(A, FullyReplicated(99, 1_240), 1_200)
    assert history.news() == (
        "warn: Every partition has all its replicas again, 1.2 s after B, C went; 2 partitions began empty"
    ), "a repair does not cover a loss"
    history = three()
    history.by(A, MigrationsPlanned(9, 180, 181, 0, "a member has joined"))
    assert history.said()[3:] == ["info: 180 partitions are moved, because a member has joined"]


def test_what_another_release_tells_without_a_field_is_a_detail() -> None:
    history = three()
    fields: Mapping[str, Any] = {"rule": "CS-11", "view_version": 4}
    history.told.append(KnownEvent(99, history.now, A, "ViewInstalled", "view", fields))
    history.told.append(KnownEvent(98, history.now, A, "SomethingNew", "other", fields))
    assert len(history.said()) == 3


def test_what_a_merge_decides_a_request_at_a_time_is_one_line() -> None:
    history = three()
    for by, name, count in ((A, "flights", 57), (A, "fares", 1), (B, "flights", 42)):
        history.by(by, MergeConflicts(C, name, "latest-update", count, 10 * (name == "flights"), ()), 100)
    assert history.said()[3:] == ["info: C came back with other versions of 100 keys in 2 maps: 20 of them won"]
    assert len(history.lines().as_objects()[3]["events"]) == 3


def test_a_majority_that_is_back_at_once_was_never_missed() -> None:
    """The last but one leaves: a moment later its vote is counted no more."""
    history = three()
    history.by(B, Left(4, "SIGTERM"))
    history.view(4, A, C)
    history.by(A, MajorityChanged(4, False, "1 of 3", "EL-50"), 5)
    assert history.news().endswith("2 members, without the majority")
    history.by(A, MajorityChanged(4, True, "", "EL-50"), 300)
    assert history.said()[3:] == ["info: B left: 2 members"]
    assert history.news() == "info: B left: 2 members"
