"""Members that stop in order to come back with what they have in their folders: what moves, who goes when, and what is left in the list."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.partition.coordinator.stopping_members import STOP_TOGETHER_MS, STOPS_AT_MOST_MS
from phalanx.wire.disk_records import ClusterLeft
from phalanx.wire.join_events import ClusterStops, LeaveStarted, Stopped
from phalanx.wire.messages import CopyChunk, CopyStart, StopOrder
from phalanx.wire.restart_events import PartitionsDormant
from phalanx.wire.table_events import MigrationStarted
from phalanx.wire.view_events import MemberRemoved
from support.dormancy import LATER, VALUE, filled, owner_of, read
from support.harness import Cluster


def write(c: Cluster, partition: int, value: bytes) -> None:
    put = c.put(owner_of(c, partition), c.key(partition), value)
    c.advance(500)
    assert c.is_done(put)


def stop(c: Cluster, names: str) -> None:
    for name in names:
        c.leave(name, keeps=True)


def back(c: Cluster, names: str) -> None:
    for name in names:
        c.start(name, seeds="".join(c.nodes) or "ABCDE")
    c.advance(8_000)


def watch_copies(c: Cluster) -> list[tuple[str, str]]:
    """Who sends copies to whom from now on."""
    copies: list[tuple[str, str]] = []

    def note(sender: str, receiver: str, message: Any) -> bool:
        if isinstance(message, CopyStart | CopyChunk):
            copies.append((sender, receiver))
        return False

    c.swallow = note
    return copies


# --- one stops ------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-38")
@pytest.mark.parametrize("leaver", "ABC")
def test_one_that_stops_gives_its_partitions_to_its_backups_and_copies_nothing(leaver: str) -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=60_000)
    copies = watch_copies(c)
    stop(c, leaver)
    c.advance(STOP_TOGETHER_MS + 3_000)
    assert leaver not in c.nodes
    rest = "ABC".replace(leaver, "")
    assert c.views_of(rest) == [rest, rest]
    assert all(c.nodes[name].membership.has_majority for name in rest)
    assert copies == []
    assert [read(c, partition) for partition in range(3)] == [VALUE] * 3
    assert all(c.events_of(name, PartitionsDormant) == [] for name in rest)


@pytest.mark.rows("DU-38")
def test_one_that_stops_stays_for_a_moment_in_case_others_stop_too() -> None:
    c = filled("ABC", "AB", "BC", "CA")
    stop(c, "C")
    c.advance(STOP_TOGETHER_MS - 500)
    assert c.view("A") == "ABC"
    assert owner_of(c, 2) == "A"


@pytest.mark.rows("DU-38")
def test_what_nobody_else_holds_is_dormant_where_there_are_no_backups() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    copies = watch_copies(c)
    stop(c, "C")
    c.advance(STOP_TOGETHER_MS + 3_000)
    assert c.views_of("AB") == ["AB", "AB"]
    assert c.row("A", 2) == ""
    assert list(c.table("A").dormant) == [2]
    assert copies == []
    back(c, "C")
    assert read(c, 2) == VALUE


@pytest.mark.rows("DU-38")
def test_what_only_those_have_that_stop_is_copied_first_where_there_are_backups() -> None:
    c = filled("ABCDE", "AB", "BC", "CD", "DE", "EA")
    stop(c, "AB")
    c.advance(STOP_TOGETHER_MS + 6_000)
    assert sorted(c.nodes) == ["C", "D", "E"]
    assert all(c.events_of(name, PartitionsDormant) == [] for name in "CDE")
    assert [read(c, partition) for partition in range(5)] == [VALUE] * 5


@pytest.mark.rows("DU-38")
def test_one_that_was_told_to_hand_over_everything_still_does() -> None:
    c = filled("ABC", "A", "B", "C", backup_count=0)
    c.leave("C")
    stop(c, "C")
    c.advance(8_000)
    assert "C" not in c.nodes
    assert not c.table("A").dormant
    assert read(c, 2) == VALUE
    assert not c.events_of("A", LeaveStarted)[0].keeps


# --- and is waited for ------------------------------------------------------------------------------------------------


def lacking(c: Cluster) -> list[int]:
    table = c.table(next(iter(c.nodes)))
    return [p for p in range(table.partition_count) if len(table.replicas(p)) < 2]


@pytest.mark.rows("DU-39")
@pytest.mark.parametrize("leaver", "AC")
def test_replicas_of_one_that_stops_are_made_elsewhere_after_a_grace(leaver: str) -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=20_000)
    stop(c, leaver)
    c.advance(STOP_TOGETHER_MS + 15_000)
    assert len(lacking(c)) == 2
    c.advance(15_000)
    assert lacking(c) == []


@pytest.mark.rows("DU-39")
def test_whoever_is_back_within_the_grace_gets_its_replicas_again_and_nobody_else_does() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=60_000)
    stop(c, "C")
    c.advance(STOP_TOGETHER_MS + 3_000)
    copies = watch_copies(c)
    back(c, "C")
    assert lacking(c) == []
    assert {receiver for _, receiver in copies} <= {"C"}
    assert sorted("".join(sorted(c.replicas("A", partition))) for partition in range(3)) == ["AB", "AC", "BC"]


@pytest.mark.rows("DU-39")
def test_after_a_crash_copies_begin_at_once_where_only_one_other_holds_the_partition() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=600_000)
    c.crash("C")
    c.advance(15_000)
    assert lacking(c) == []


@pytest.mark.rows("DU-39")
def test_after_a_crash_others_wait_where_two_of_them_hold_the_partition() -> None:
    c = filled("ABCD", "ABC", "BCD", "CDA", "DAB", backup_count=2, restart_grace_ms=30_000)
    c.crash("D")
    c.advance(20_000)
    table = c.table("A")
    assert [len(table.replicas(p)) for p in range(4)] == [3, 2, 2, 2]
    c.advance(30_000)
    assert all(len(c.table("A").replicas(p)) == 3 for p in range(4))


@pytest.mark.rows("DU-39")
def test_another_crash_within_the_grace_ends_it_for_what_is_left_once() -> None:
    c = filled("ABCD", "ABC", "BCD", "CDA", "DAB", backup_count=2, restart_grace_ms=600_000)
    c.crash("D")
    c.advance(12_000)
    c.crash("C")
    c.advance(20_000)
    table = c.table("A")
    assert [len(table.replicas(p)) for p in range(4)] == [2, 2, 2, 2]


# --- all stop -------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-58")
@pytest.mark.parametrize("order", ["ABC", "CBA", "BAC"])
@pytest.mark.parametrize("returning", ["AB", "AC", "BC"])
def test_any_majority_of_a_cluster_that_was_stopped_goes_on_without_the_others(order: str, returning: str) -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
    for name in order:
        stop(c, name)
        c.advance(800)
    c.advance(2_000)
    assert not c.nodes
    assert len([each for _, each in c.events if isinstance(each, ClusterStops)]) == 1
    assert len([each for _, each in c.events if isinstance(each, Stopped)]) == 3
    for name in returning:
        c.start(name, seeds=returning)
    c.advance(12_000)
    assert sorted(c.nodes) == sorted(returning)
    assert [read(c, partition) for partition in range(3)] == [VALUE] * 3
    write(c, 0, LATER)


@pytest.mark.rows("DU-58")
def test_a_minority_of_a_cluster_that_was_stopped_waits() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=1_000)
    stop(c, "ABC")
    c.advance(2_000)
    c.start("A", seeds="A")
    c.advance(60_000)
    assert not c.nodes["A"].membership.has_majority
    assert not c.table("A").is_assigned
    assert [str(each)[0] for each in c.nodes["A"].coordinator.restarting.waits_for] == ["B", "C"]


@pytest.mark.rows("DU-58")
def test_nobody_leaves_the_list_once_more_than_half_stop() -> None:
    c = filled("ABCDE", "AB", "BC", "CD", "DE", "EA")
    stop(c, "CDE")
    c.advance(STOP_TOGETHER_MS - 500)
    assert c.view("A") == "ABCDE"
    assert c.table("A").loads()[c.id("C")] == 2
    c.advance(4_000)
    assert sorted(c.nodes) == ["A", "B"]
    assert not c.nodes["A"].membership.has_majority
    assert list(c.table("A").dormant) == [2, 3]
    assert (read(c, 0), read(c, 1), read(c, 4)) == (VALUE, VALUE, VALUE)
    back(c, "CDE")
    assert [read(c, partition) for partition in range(5)] == [VALUE] * 5


@pytest.mark.rows("DU-58")
def test_the_master_ends_last_and_counts_no_member_as_gone_that_it_has_told_to_end() -> None:
    c = filled("ABC", "AB", "BC", "CA")
    stop(c, "BC")
    c.settle()
    c.hold("A", "C")
    stop(c, "A")
    c.advance(1_000)
    assert sorted(c.nodes) == ["A", "C"]
    assert c.view("A") == "ABC"
    assert c.events_of("A", MemberRemoved) == []
    c.release("A", "C")
    c.advance(1_000)
    assert not c.nodes
    back(c, "BC")
    c.advance(40_000)
    assert [read(c, partition) for partition in range(3)] == [VALUE] * 3


@pytest.mark.rows("DU-58")
def test_a_member_that_hears_of_no_end_does_not_keep_the_master_for_ever() -> None:
    c = filled("ABC", "AB", "BC", "CA")
    c.swallow = lambda sender, receiver, message: isinstance(message, StopOrder) and receiver == "C"
    stop(c, "ABC")
    c.advance(STOPS_AT_MOST_MS + 10_000)
    assert "A" not in c.nodes


@pytest.mark.rows("DU-58")
def test_what_is_under_way_ends_before_a_cluster_stops() -> None:
    c = filled("ABCD", "AB", "BC", "CA")
    c.leave("C")
    c.hold("BC", "D")
    c.settle()
    assert [each for _, each in c.events if isinstance(each, MigrationStarted)]
    stop(c, "ABD")
    c.advance(STOP_TOGETHER_MS + 1_000)
    assert "A" in c.nodes
    c.advance(STOPS_AT_MOST_MS)
    assert "A" not in c.nodes


@pytest.mark.rows("DU-58")
def test_one_that_waits_for_others_after_a_restart_and_stops_keeps_its_vote() -> None:
    c = filled("ABC", "AB", "BC", "CA", restart_grace_ms=6_000_000)
    c.crash("ABC")
    for name in "CB":
        c.start(name, seeds="C")
        c.advance(30_000)
    assert c.views_of("BC") == ["CB", "CB"]
    assert not c.table("B").is_assigned
    stop(c, "B")
    c.advance(10_000)
    assert "B" not in c.nodes
    assert not [each for each in c.folders["B"] if isinstance(each[1].body, ClusterLeft)]
