"""What a process has read from its folder: as it was read, until a cluster has a table with owners."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.clock import ClockStart, GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.ids import Millis, member_id
from phalanx.common.lineage import LeaderEpoch
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.common.table import build_table, unassigned_table
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import Restoration, note_repair, restore
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, set_aside
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.replication.restored import positions_of
from phalanx.machine.effects import Finished, Record
from phalanx.machine.facts import IncarnationOver, TableConfirmed
from phalanx.machine.inputs import Started
from phalanx.membership.service import LONG_OFF_MS
from phalanx.node.node import Node
from phalanx.wire.disk_records import (
    ClusterLeft,
    CopyBegun,
    CopyDropped,
    DiskRecord,
    EpochBegun,
    IncarnationEnded,
    KnownCluster,
    LogRecord,
    ReplicasDivided,
    SegmentStart,
    TableRecord,
    ViewRecord,
)
from phalanx.wire.restart_events import ClockJumped
from phalanx.wire.table_messages import OwnerEpoch
from support.disk_records import copy_start, put, replay_of, stored
from support.harness import address, key_of, lone_id, lone_view
from support.masters import table_of

A, NEXT = lone_id("A"), member_id(address("A"), "A2")
OF = 3
CLOCK = ClockStart(77, 77, 5, 9)
TABLE = table_of("A", "A", "A")
FOOTING = QuorumRecord(A, QuorumView(1, 1, A, (A,)), 1)
JOINED = ViewRecord(lone_view("A", 1), FOOTING, A, A)
HELD = (
    JOINED, TableRecord(TABLE, A), EpochBegun(0, 1, A, -1), put(0, 1, key_of(0, OF), stored("v")), EpochBegun(2, 4, A, 3),
)  # fmt: skip


def restored(replay: Replay, clock: ClockStart = CLOCK) -> tuple[Restoration | None, list[LogRecord]]:
    """What a folder gives, and what the log is told of it."""
    log = ReplicaLog()
    restoration = restore(replay, clock, log)
    appended = log.take()
    return restoration, appended.records if appended is not None else []


def found(replay: Replay) -> Restoration:
    restoration, _ = restored(replay)
    assert restoration is not None
    return restoration


def test_a_folder_gives_replicas_positions_and_the_vote() -> None:
    restoration = found(replay_of(*HELD))
    read = restoration.kept.restored
    assert read is not None
    assert read.side.formers == (A,)
    assert read.side.table == TABLE
    assert read.side.history.voter == A
    lineages = (LeaderEpoch(1, A, 0),), (LeaderEpoch(4, A, 0),)
    assert read.side.positions == (OwnerEpoch(0, 1, A, 1, lineages[0]), OwnerEpoch(2, 4, A, 0, lineages[1]))
    assert not read.side.lacks_majority
    assert read.clock == CLOCK
    assert restoration.past.off_ms == 9
    assert restoration.partition_count == OF
    assert restoration.carried.voter == A
    assert restoration.past.members == (A,)
    assert restoration.past.has_started


def test_what_was_read_without_a_table_is_of_as_many_partitions_as_the_cluster_has() -> None:
    """An owner asks a member to follow it before this has its first table, and it is killed before that."""
    read = found(
        replay_of(JOINED, EpochBegun(2, 1, lone_id("B"), -1), put(2, 1, key_of(2, OF), stored("v")))
    ).kept.restored
    assert read is not None
    assert read.partition_count == 0
    left, aside = read.without({2}, OF, ReplicaLog())
    assert left.replicas == {}
    assert [each.table.partition_count for each in aside] == [OF]
    [side] = [set_aside(*each) for each in aside]
    assert (side.partition_count, list(side.replicas)) == (OF, [2])


def test_an_empty_folder_gives_nothing() -> None:
    assert restored(Replay()) == (None, [])


def test_whoever_left_has_neither_data_nor_a_vote_and_knows_whom_it_left() -> None:
    restoration, told = restored(replay_of(*HELD, ClusterLeft()))
    assert restoration is not None
    read = restoration.kept.restored
    assert read is not None
    assert (read.replicas, read.side.formers, read.side.table, read.side.positions) == ({}, (), None, ())
    assert restoration.carried.voter == ""
    assert restoration.past.members == (A,)
    assert told == []


@pytest.mark.parametrize("end", ["crash", "cut", "disk failed", "leave", "leave with data"])
def test_only_a_master_that_was_one_to_the_end_has_the_votes_of_those_that_left(end: str) -> None:
    """DU-60, DU-61: one that has left has handed them over, and one whose log ends too early can have done so."""
    voters = QuorumView(1, 1, A, (A, lone_id("B"), lone_id("C")))
    footing = QuorumRecord(A, voters, 0, left=(lone_id("B"), lone_id("C")))
    ends = {"leave": (ClusterLeft(),), "leave with data": (ClusterLeft(keeps=True),)}.get(end, ())
    replay = replay_of(ViewRecord(lone_view("A", 2), footing, A, A), *HELD[1:], *ends)
    if end in ("cut", "disk failed"):
        note_repair(replay, begun(2), "s", repaired=2, cut=2 if end == "cut" else 0)
    history = found(replay).carried.memory
    assert history is not None
    assert history.footing.left == (footing.left if end == "crash" else ())
    assert (history.voter == A) == (end == "crash")


def begun(start: int) -> SegmentStart:
    return SegmentStart(1, "s", start, 1, 1, None, "test", A, "boot", "", 9, KnownCluster())


@pytest.mark.rows("DU-61")
@pytest.mark.parametrize("cut", [0, 2])
def test_a_repaired_folder_votes_for_nobody_who_has_had_a_vote_and_a_cut_one_holds_nothing(cut: int) -> None:
    """DU-60, DU-61: what it held when its disk failed is there; who knows of its vote in stable views sees that it is another one now."""
    replay = replay_of(*HELD)
    assert note_repair(replay, begun(2), "s", repaired=2, cut=cut)
    first, _ = restored(replay)
    assert first is not None
    read = first.kept.restored
    assert read is not None
    assert read.side.history.voter == first.carried.voter == member_id(address("A"), "repaired-s-2")
    assert (A in read.side.formers) == (cut == 0)
    assert (A in read.side.incarnations) == (cut == 0)
    assert read.side.disk_failed == (cut == 0)
    again = replay_of(*HELD)
    assert note_repair(again, begun(3), "s", repaired=3, cut=cut)
    second, _ = restored(again)
    assert second is not None
    assert second.carried.voter != first.carried.voter, "a folder can be repaired again"


def test_who_has_started_since_a_repair_keeps_the_vote_that_it_has() -> None:
    replay = replay_of(*HELD)
    assert not note_repair(replay, begun(3), "s", repaired=2, cut=2)
    assert not note_repair(replay, None, "s", repaired=2, cut=2)
    restoration, _ = restored(replay)
    assert restoration is not None
    assert restoration.carried.voter == A


def test_behind_an_incarnation_that_ended_there_are_no_replicas_but_a_vote() -> None:
    restoration, told = restored(replay_of(*HELD, IncarnationEnded()))
    assert restoration is not None
    read = restoration.kept.restored
    assert read is not None
    assert (read.replicas, read.side.formers, read.side.table) == ({}, (), None)
    assert restoration.carried.voter == A
    assert told == []


def test_replicas_without_a_table_are_those_of_whoever_has_one() -> None:
    restoration, told = restored(replay_of(JOINED, EpochBegun(0, 1, A, -1)))
    assert restoration is not None
    read = restoration.kept.restored
    assert read is not None
    assert (set(read.replicas), read.side.formers, read.side.table) == ({0}, (A,), None)
    assert told == []


def test_a_copy_that_was_arriving_is_given_up_in_the_log_too() -> None:
    _, told = restored(replay_of(*HELD, CopyBegun(copy_start(1), A, -1, False)))
    assert told == [LogRecord(CopyDropped(1))]


def node_with(restoration: Restoration) -> Node:
    return Node(NEXT, NodeConfig(seeds=(address("A"),)), kept=restoration.kept, carried=restoration.carried)


def test_a_new_member_holds_them_and_serves_none() -> None:
    restoration = found(replay_of(*HELD))
    node = node_with(restoration)
    stored_side = node.grid.stored()
    assert stored_side is not None
    assert stored_side.positions == positions_of(node.grid.follower.replicas)
    assert set(node.grid.follower.replicas) == {0, 2}
    assert node.grid.ownership.all_owned() == []
    assert restoration.kept.restored is None  # one incarnation has it


def test_its_stamps_are_above_all_that_were_given() -> None:
    late = GridClock().read(0) + (1 << 50)
    restoration, _ = restored(replay_of(*HELD), ClockStart(late, late, 0, 0))
    assert restoration is not None
    assert node_with(restoration).clock.next(5) > late


def test_a_side_that_joins_another_one_hands_on_what_it_has_read() -> None:
    node = node_with(found(replay_of(*HELD)))
    before = node.grid.stored()
    assert before is not None
    node._out.effects.append(Finished("others have the majority", rejoin=(lone_id("B"),)))
    node.data_merging.on_over(IncarnationOver(), 9)
    (finished,) = [each for each in node._out.take() if isinstance(each, Finished)]
    assert isinstance(finished.kept, OrphanedReplicas)
    assert finished.kept.restored is not None
    assert finished.kept.restored.side == before
    assert not finished.kept.sides  # it is not merged
    following = Node(member_id(address("A"), "A3"), NodeConfig(seeds=(address("A"),)), kept=finished.kept)
    # Rows can name this one, too.
    assert following.grid.stored() == msgspec.structs.replace(before, formers=(*before.formers, following.this))
    assert following.grid.follower.replicas[0].seq == 1


def test_a_table_with_owners_takes_them_up() -> None:
    """The new table names this incarnation for partition 0, and nobody here for 2."""
    node = node_with(found(replay_of(*HELD)))
    node.grid.follower.follow_table(table_of("B", "B", "B", versions=[1, 1, 9]), {}, reconfirmed=False)
    assert node.grid.stored() is None
    assert 2 not in node.grid.follower.replicas


@pytest.mark.parametrize(("of", "taken"), [(OF, True), (2 * OF, False)])
def test_no_copy_of_a_divided_partition_is_taken_before_the_table_that_divides_what_was_read(
    of: int, taken: bool
) -> None:
    """Else the table would divide the copy, too."""
    follower = node_with(found(replay_of(*HELD))).grid.follower
    follower.on_copy_start(lone_id("B"), copy_start(1, epoch=9, of=of), 0)
    assert (1 in follower.copies) == taken


def test_a_first_table_divides_what_was_read_and_it_lists() -> None:
    """Of the parts of 0 it lists one here, and that is not the one with the number that was read."""
    node = node_with(found(replay_of(*HELD)))
    rows = [(NEXT,) if partition == OF else (lone_id("B"),) for partition in range(2 * OF)]
    table = build_table(rows, [9] * (2 * OF))
    node.grid.on_table(TableConfirmed(table, table.version, frozenset(), lone_id("B"), ()), 0)
    assert node.grid.stored() is None
    assert OF in node.grid.follower.finish_splits()


def test_a_table_that_assigns_nothing_leaves_them() -> None:
    node = node_with(found(replay_of(*HELD)))
    node.grid.follower.follow_table(unassigned_table(OF), {}, reconfirmed=False)
    assert node.grid.stored() is not None


def test_a_replica_that_was_not_divided_yet_is_divided_at_the_start() -> None:
    keys = [key_of(partition, 2 * OF) for partition in range(2 * OF)]
    writes = [put(0, seq, key, stored("v")) for seq, key in enumerate((keys[0], keys[3]), 1)]
    written: tuple[DiskRecord, ...] = (JOINED, TableRecord(TABLE, A), EpochBegun(0, 1, A, -1), *writes)
    divided = TableRecord(TABLE.with_partition_count(2 * OF), A)
    restoration, told = restored(replay_of(*written, divided))
    assert restoration is not None
    read = restoration.kept.restored
    assert read is not None
    found = {p: [key for store in each.maps.values() for key in store.entries] for p, each in read.replicas.items()}
    assert found == {0: [keys[0]], 3: [keys[3]]}
    assert told == [LogRecord(ReplicasDivided(0, OF, 2 * OF))]
    assert restored(replay_of(*written, ReplicasDivided(0, OF, 2 * OF), divided))[1] == []


@pytest.mark.rows("DU-28")
@pytest.mark.parametrize("off_ms", [0, LONG_OFF_MS, LONG_OFF_MS + 1])
def test_who_was_off_for_more_than_a_day_says_so(off_ms: Millis) -> None:
    """DU-28: its machine's clock can have jumped, and times to live ran by it."""
    restoration = found(replay_of(*HELD))
    past = msgspec.structs.replace(restoration.past, off_ms=off_ms)
    node = Node(NEXT, NodeConfig(), kept=restoration.kept, carried=restoration.carried)
    told = [each.event for each in node.handle(Started(past), 0) if isinstance(each, Record)]
    assert [each for each in told if isinstance(each, ClockJumped)] == [ClockJumped(off_ms)] * (off_ms > LONG_OFF_MS)
