"""When a cluster goes on that was switched off: at once, after a grace, by an operator's word, or not at all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec
import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis, member_id
from phalanx.common.lineage import LeaderEpoch
from phalanx.common.quorum import QuorumRecord, QuorumView, VoterHistory
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import PartitionTable
from phalanx.machine.effects import Record, Send
from phalanx.partition.coordinator.restarting import Restarting
from phalanx.partition.recovery.restart import Restart as Plan
from phalanx.partition.recovery.restart import plan_restart
from phalanx.wire.event import Event
from phalanx.wire.messages import TableUpdate
from phalanx.wire.restart_events import ClusterRestarted, RestartWaits
from phalanx.wire.table_messages import OwnerEpoch, RestartAwaited, StoredSide
from support.harness import Cluster, address, lone_context, lone_id, lone_view, name_of
from support.masters import rows_of, table_of
from support.merges import heal

GRACE: Millis = 30_000
TABLE = table_of("AB", "BC")
HELD = {"A": (0,), "B": (0, 1), "C": (1,)}
"""Member to the partitions of which its folder has a replica."""
Kind = TypeVar("Kind", bound=Event)


def side(name: str, *, voters: str = "ABC", is_empty: bool = False) -> StoredSide:
    view = QuorumView(1, 1, lone_id("A"), tuple(lone_id(each) for each in voters))
    history = VoterHistory(lone_id(name), QuorumRecord(lone_id("A"), view, 0))
    held = () if is_empty else HELD.get(name, ())
    positions = tuple(OwnerEpoch(partition, 1, lone_id("AB"[partition]), 5) for partition in held)
    return StoredSide((lone_id(name),), history, TABLE, positions)


class Restart:
    """The master's decision, asked again whenever somebody comes."""

    def __init__(self, grace_ms: Millis = GRACE) -> None:
        context = lone_context("A", NodeConfig(restart_grace_ms=grace_ms))
        self.out = context.out
        self.number: int | None = 1
        self.machine = Restarting(context, view_number=lambda: self.number)

    def consider(self, names: str, now: Millis, *, empty: str = "", voters: str = "ABC") -> PartitionTable | None:
        sides = {
            member_id(address(name), f"{name}2"): side(name, voters=voters, is_empty=name in empty) for name in names
        }
        plan = self.machine.consider(sides, now)
        return plan.table if plan is not None else None

    def waits_for(self) -> str:
        return "".join(name_of(member) for member in self.machine.waits_for)

    def told(self, kind: type[Kind]) -> list[Kind]:
        effects = self.out.take()
        return [each.event for each in effects if isinstance(each, Record) and isinstance(each.event, kind)]


def test_with_all_voters_it_goes_on_at_once() -> None:
    restart = Restart()
    table = restart.consider("ABC", 0)
    assert table is not None
    assert rows_of(table) == ["AB", "BC"]
    assert restart.waits_for() == ""
    (event,) = restart.told(ClusterRestarted)
    assert event.table_version == table.version


@pytest.mark.parametrize("grace_ms", [5_000, 60_000])
def test_who_took_over_without_the_majority_is_waited_for_like_a_voter(grace_ms: Millis) -> None:
    """1. A and B hold all, and A ends. 2. C, D and E join B, which hands over to them, and leaves for good. 3. All end; A and C come back:
    with the vote of B, which C has, they are the majority. A has what it had long ago. 4. D and E come back.
    """
    c = Cluster(has_folders=True, seeds="A", partition_count=3, backup_count=1, restart_grace_ms=grace_ms)
    for name in "AB":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["AB", "BA", "AB"])
    for p in range(3):
        c.put(c.replicas("A", p)[0], c.key(p), b"before")
    c.advance(500)
    c.crash("A")
    c.advance(5_000)
    for name in "CDE":
        c.start(name, seeds="B")
        c.advance(3_000)
    c.leave("B")
    c.advance(60_000)
    assert "B" not in c.nodes
    p = next(p for p in range(3) if "C" not in c.replicas("C", p))
    owner = c.replicas("C", p)[0]
    c.put(owner, c.key(p), b"since")
    c.advance(500)
    leader = c.id(owner)
    c.crash("CDE")
    c.start("A", seeds="ACDE")
    c.advance(20_000)
    c.start("C", seeds="ACDE")
    c.advance(20_000)
    waits = grace_ms > 20_000
    assert c.view("A") == "AC"
    assert {name_of(each) for each in c.nodes["A"].coordinator.restarting.waits_for} == (set("DE") if waits else set())
    c.start("D", seeds="ACDE")
    c.start("E", seeds="ACDE")
    c.advance(30_000)
    owner = c.replicas("A", p)[0]
    assert c.entries(owner, p) == {c.key(p): b"since"}  # or it is merged
    assert (leader in {each.leader for each in c.owned(owner, p).replica.lineage}) == waits


@pytest.mark.rows("DU-29")
@pytest.mark.parametrize("joiners", ["", "DE"])
def test_a_list_that_became_stable_while_the_cluster_waits_counts(joiners: str) -> None:
    """1. B and C of A, B and C come back, and wait for A. D and E join them, and the list is stable. 2. C is cut off from them, and A comes
    back to it: by what they have read from their folders they are the majority, as are B, D and E when their processes start again."""
    c = Cluster(has_folders=True, seeds="A", partition_count=2, backup_count=0, restart_grace_ms=5_000)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["A", "C"])
    c.crash("ABC")
    c.start("B", seeds="BC")
    c.start("C", seeds="BC")
    c.advance(60_000)
    for name in joiners:
        c.start(name, seeds="BC")
        c.advance(5_000)
    assert set(c.view("C")) == {*"BC", *joiners}
    for name in "B" + joiners:
        c.cut("C", name)
        c.cuts.add(frozenset("A" + name))
    c.advance(30_000)
    assert c.view("C") == "C"
    c.start("A", seeds="AC")
    c.advance(60_000)
    assert set(c.view("C")) == set("AC")
    waiting = {name_of(each) for name in "AC" for each in c.nodes[name].coordinator.restarting.waits_for}
    assert "B" in waiting
    assert not c.table("C").is_assigned
    heal(c)
    assert set(c.view("C")) == {*"ABC", *joiners}
    assert c.table("C").is_assigned


@pytest.mark.rows("D-7")
def test_with_the_majority_it_goes_on_when_the_grace_is_over() -> None:
    restart = Restart()
    assert restart.consider("AB", 1_000) is None
    assert restart.waits_for() == "C"
    assert restart.consider("AB", 1_000 + GRACE - 1) is None
    table = restart.consider("AB", 1_000 + GRACE)
    assert table is not None
    assert rows_of(table) == ["AB", "B"]


def test_who_comes_within_the_grace_keeps_its_replicas() -> None:
    restart = Restart()
    assert restart.consider("AB", 1_000) is None
    table = restart.consider("ABC", 2_000)
    assert table is not None
    assert rows_of(table) == ["AB", "BC"]


def test_the_grace_begins_when_there_is_enough() -> None:
    """A waits alone for a day. Then B comes, and then goes again, and comes again."""
    restart, day = Restart(), 86_400_000
    assert restart.consider("A", 0) is None
    assert restart.consider("AB", day) is None
    assert restart.consider("A", day + 10) is None
    assert restart.consider("AB", day + 20) is None
    assert restart.consider("AB", day + GRACE) is None
    assert restart.consider("AB", day + 20 + GRACE) is not None


def test_without_the_majority_no_time_is_long_enough() -> None:
    restart = Restart()
    assert restart.consider("B", 0) is None
    assert restart.consider("B", 1 << 40) is None
    assert restart.waits_for() == "AC"
    (event,) = restart.told(RestartWaits)
    assert event.lacks_majority


def test_without_a_holder_no_time_is_long_enough() -> None:
    restart = Restart()
    assert restart.consider("AC", 0, empty="A") is None
    assert restart.consider("AC", 1 << 40, empty="A") is None
    assert restart.waits_for() == "B"


def test_an_operator_can_do_without_the_majority() -> None:
    restart = Restart()
    assert restart.consider("B", 0) is None
    restart.machine.accept()
    table = restart.consider("B", 1)
    assert table is not None
    assert rows_of(table) == ["B", "B"]


def test_an_operator_can_end_the_grace() -> None:
    restart = Restart()
    assert restart.consider("AB", 0) is None
    restart.machine.accept()
    assert restart.consider("AB", 1) is not None


@pytest.mark.rows("DU-32")
def test_an_operator_can_let_it_go_on_and_what_nobody_has_stays_dormant() -> None:
    restart = Restart()
    restart.machine.accept()
    table = restart.consider("A", 0)
    assert table is not None
    assert rows_of(table) == ["A", ""]
    assert set(table.dormant) == {1}


def test_the_word_of_an_operator_is_for_one_restart() -> None:
    restart = Restart()
    restart.machine.accept()
    assert restart.consider("B", 0) is not None
    assert restart.consider("B", 1) is None
    restart.machine.accept()
    restart.machine.forget()
    assert restart.consider("B", 2) is None


def test_the_wait_is_told_once_for_the_same_members() -> None:
    restart = Restart()
    for now in range(5):
        restart.consider("A", now)
    restart.consider("AD", 5)  # nobody waits for D
    assert len(restart.told(RestartWaits)) == 1
    restart.consider("AB", 9)
    (event,) = restart.told(RestartWaits)
    assert event.waits_for == (lone_id("C"),)


def test_by_an_operators_word_the_greatest_replica_that_is_here_comes_first() -> None:
    """1. A and B hold all, and A ends. 2. D joins B, which hands over to it, and crashes. 3. D ends. 4. A and D come back, and B does not."""
    begun = (LeaderEpoch(1, lone_id("A"), 0),)
    a = side("A", voters="AB")
    held = msgspec.structs.replace(a.positions[0], lineage=begun)
    gone_on = OwnerEpoch(0, 4, lone_id("D"), 9, (*begun, LeaderEpoch(4, lone_id("D"), held.seq)))
    sides = {
        member_id(address("A"), "A2"): msgspec.structs.replace(a, positions=(held,)),
        member_id(address("D"), "D2"): msgspec.structs.replace(
            side("D", voters="AB"), positions=(gone_on,), lacks_majority=True
        ),
    }
    machine = Restart().machine
    assert machine.consider(sides, 0) is None
    machine.accept()
    plan = machine.consider(sides, 1)
    assert plan is not None
    assert plan.table is not None
    assert rows_of(plan.table)[0] == "D"


def test_a_plan_is_made_only_when_others_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []

    def plan(
        sides: Mapping[MemberId, StoredSide], others: Collection[MemberId], number: int, *, is_accepted: bool
    ) -> Plan:
        planned.append(len(sides))
        return plan_restart(sides, others, number, is_accepted=is_accepted)

    monkeypatch.setattr("phalanx.partition.coordinator.restarting.plan_restart", plan)
    restart = Restart()
    for names, now in [("A", 0), ("A", 100), ("AB", 200), ("AB", 300), ("A", 400), ("A", 500), ("ABC", 600)]:
        restart.consider(names, now)
    assert planned == [1, 2, 1, 3]
    restart.consider("ABC", 700)
    assert planned == [1, 2, 1, 3, 3]  # the cluster went on, and was switched off again


@pytest.mark.rows("DU-26")
def test_who_waits_in_a_later_view_gives_other_versions() -> None:
    """1. A restarts with B in view 8, makes the table, and ends before B has it. 2. B restarts with C in view 9."""
    versions = set[int]()
    for number in (8, 9):
        restart = Restart()
        restart.number = number - 1
        assert restart.consider("AB", 0) is None
        restart.number = number
        table = restart.consider("AB", GRACE)
        assert table is not None
        versions |= {table.version, table.version + 1, *table.versions}
    assert len(versions) == 6


@pytest.mark.rows("DU-26")
def test_it_does_not_go_on_in_a_view_that_is_not_stable_yet() -> None:
    restart = Restart()
    restart.number = None
    assert restart.consider("ABC", 0) is None
    restart.number = 1
    assert restart.consider("ABC", 0) is not None


def test_without_a_grace_the_majority_is_enough() -> None:
    assert Restart(grace_ms=0).consider("AB", 0) is not None


# --- the other members ---------------------------------------------------------------------------------------------------


def told_to(restart: Restart, names: str, now: Millis, cluster_version: int = 9) -> list[tuple[str, RestartWait]]:
    view = msgspec.structs.replace(lone_view(names, 1), cluster_version=cluster_version)
    restart.out.take()
    restart.machine.tell(view, now)
    sent = [each for each in restart.out.take() if isinstance(each, Send)]
    return [(name_of(each.to), each.message.wait) for each in sent if isinstance(each.message, RestartAwaited)]


def test_the_other_members_are_told_for_whom_the_cluster_waits() -> None:
    """DU-33: whichever member is asked can say it."""
    restart = Restart()
    assert restart.consider("B", 0) is None
    wait = RestartWait((lone_id("A"), lone_id("C")), 0, True, 0)
    assert told_to(restart, "ABC", 0) == [("B", wait), ("C", wait)]
    assert told_to(restart, "ABC", 1) == []
    assert restart.consider("BC", 2, empty="C") is None
    again = told_to(restart, "ABC", 2)
    assert [name for name, _ in again] == ["B", "C"]
    assert again[0][1].members == (lone_id("A"),)


def test_they_are_told_again_and_again_as_some_have_come_since() -> None:
    restart = Restart()
    assert restart.consider("B", 0) is None
    told_to(restart, "AB", 0)
    retry = NodeConfig().retry_interval_ms
    assert told_to(restart, "ABC", retry - 1) == []
    assert [name for name, _ in told_to(restart, "ABC", retry)] == ["B", "C"]


def test_members_of_an_older_release_are_told_nothing() -> None:
    restart = Restart()
    assert restart.consider("B", 0) is None
    assert told_to(restart, "AB", 0, cluster_version=8) == []


def test_nobody_is_told_of_a_wait_that_is_over() -> None:
    restart = Restart()
    assert restart.consider("B", 0) is None
    assert restart.consider("ABC", 1) is not None
    assert told_to(restart, "ABC", 1) == []


@pytest.mark.rows("DU-29")
def test_members_that_have_joined_and_got_no_table_are_not_waited_for_while_they_are_here() -> None:
    """A, with data, admits B and C, and ends before they have its table. They go on waiting, and A comes back to them."""
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=0)
    c.start("A")
    c.advance(1_500)
    c.assign(rows=["A"])
    c.put("A", c.key(0), b"\0\0\0\0value")
    c.swallow = lambda sender, receiver, message: isinstance(message, TableUpdate)
    for name in "BC":
        c.start(name)
        c.advance(1_500)
    assert c.views_of("ABC") == ["ABC"] * 3
    c.crash("A")
    c.swallow = lambda sender, receiver, message: False
    c.start("A", seeds="BC")
    c.stay_together("ABC")
    assert c.get(c.replicas("B")[0], c.key(0)) == b"\0\0\0\0value"
