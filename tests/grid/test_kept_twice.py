"""DU-36: a folder has two replicas of a partition, of two incarnations: neither takes the place of the other."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.common.clock import COUNTER_BITS, ClockStart
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, member_id
from phalanx.common.lineage import LeaderEpoch
from phalanx.common.quorum import QuorumRecord, QuorumView
from phalanx.disk.restoring import restore
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Finished
from phalanx.machine.facts import IncarnationOver, ReplicasSetAside
from phalanx.node.node import Node
from phalanx.wire.disk_records import (
    CopyBegun,
    DiskRecord,
    EpochBegun,
    LogRecord,
    ReplicasKept,
    TableRecord,
    ViewRecord,
)
from phalanx_proof.sim.cluster.disk_contents import find_difference
from support.disk_records import chunk, copy_start, put, replay_of, stored, to_copy
from support.harness import address, key_of, lone_id, lone_view
from support.masters import table_of

A, B = lone_id("A"), lone_id("B")
NEXT, THIRD, FOURTH = (member_id(address("A"), f"A{number}") for number in (2, 3, 4))
OF = 2
KEY = key_of(0, OF)
CLOCK = ClockStart(77, 77, 5, 9)
FOOTING = QuorumRecord(A, QuorumView(1, 1, A, (A,)), 1)
OF_A: tuple[DiskRecord, ...] = (
    ViewRecord(lone_view("A", 1), FOOTING, A, A),
    TableRecord(table_of("A", "A"), A),
    *(EpochBegun(partition, 1, A, -1) for partition in range(OF)),
    *(put(partition, 1, key_of(partition, OF), stored("of A")) for partition in range(OF)),
)
SET_ASIDE: tuple[DiskRecord, ...] = (
    ViewRecord(lone_view("A", 2), FOOTING, A, NEXT),
    ReplicasKept(A, 9, table_of("A", "A"), (0,), is_as_read=True),
)
"""The cluster has gone on with partition 0 at others, and does not have what A has written."""
COPIED: tuple[DiskRecord | LogRecord, ...] = (
    CopyBegun(copy_start(0, epoch=2, seq=0, of=OF), B, -1, False),
    *to_copy(chunk(0, last=True)),
    put(0, 1, KEY, stored("of B", 2), epoch=2),
)
"""The next incarnation gets that partition, and a write."""
TAKEN_UP = TableRecord(table_of("B", "B", versions=[2, 2]), NEXT)


class Process:
    """A third incarnation, which has started with a log."""

    def __init__(self, *records: DiskRecord | LogRecord) -> None:
        self._written = list(records)
        self._log = ReplicaLog()
        self._log.is_on = True
        restoration = restore(replay_of(*records), CLOCK, self._log)
        assert restoration is not None
        self._config = NodeConfig(seeds=(address("B"),))
        self.node = Node(THIRD, self._config, kept=restoration.kept, carried=restoration.carried, log=self._log)

    def set_aside(self, *partitions: int) -> None:
        """Let others be in the place of what was read."""
        self.node.grid.follower.as_read.set_aside(set(partitions), OF)
        self.node.data_merging.on_aside(ReplicasSetAside(), 0)

    def get(self, of: int = OF, *, stamp: int = 2) -> None:
        """Get a copy of partition 0 for a migration, and the beginning of another one."""
        follower = self.node.grid.follower
        for copy_id in (1, 2):
            start = copy_start(0, epoch=1 + copy_id, seq=0, of=of, copy_id=copy_id)
            follower.on_copy_start(B, msgspec.structs.replace(start, base_version=2), 0)
            self.node.data_merging.on_aside(ReplicasSetAside(), 0)
            if copy_id == 1:
                follower.on_copy_chunk(B, chunk(0, {KEY: stored("of B", stamp)}, last=True), 0)
        assert set(follower.copies) == {0}

    def join_another_side(self) -> None:
        """End this incarnation, and begin the next one."""
        fact, node = IncarnationOver(), self.node
        node._out.effects.append(Finished("others have the majority", rejoin=(B,)))
        for part in (node.data_merging.on_over, node.grid.on_over, node._on_over):
            part(fact, 0)
        (finished,) = [each for each in node._out.take() if isinstance(each, Finished)]
        self.node = Node(FOURTH, self._config, kept=finished.kept, log=self._log)

    def kept(self) -> dict[tuple[MemberId, int], bytes]:
        """Return for each replica that waits for a merge what it has of the key; the log has the same."""
        appended = self._log.take()
        self._written += appended.records if appended is not None else []
        read = replay_of(*self._written)
        assert not find_difference(self.node, read, 0)
        return {
            (side.former, p): each.replica.maps["m"].entries[key_of(p, side.partition_count)][8:]
            for side in read.orphaned.unmerged()
            for p, each in side.replicas.items()
        }


@pytest.mark.rows("DU-36")
def test_what_was_copied_before_there_was_a_table_is_not_kept_in_the_place_of_what_was_there() -> None:
    """1. A's replica is set aside. 2. A gets a copy, and is killed before it has a table. 3. Others are in its place once more."""
    process = Process(*OF_A, *SET_ASIDE, *COPIED)
    process.set_aside(0, 1)
    assert process.kept() == {(A, 0): b"of A", (A, 1): b"of A", (NEXT, 0): b"of B"}
    later = process.node.data_merging.orphaned.sides[NEXT].replicas[0]
    assert not later.ahead, "who else held it is unknown"


def test_who_had_a_table_gives_its_name_to_what_it_held() -> None:
    process = Process(*OF_A, *SET_ASIDE, *COPIED, TAKEN_UP)
    process.set_aside(0, 1)
    assert process.kept() == {(A, 0): b"of A", (NEXT, 0): b"of B", (NEXT, 1): b"of A"}


@pytest.mark.rows("DU-36")
def test_what_came_back_takes_no_place_of_what_was_read_since() -> None:
    """1. A's replica is set aside. 2. A gets a copy and a table, and goes on alone. 3. It is killed, and begins again. 4. An owner says what
    it has of the partition: what A had first is a prefix of that, and what it had last is none.
    """
    process = Process(*OF_A, *SET_ASIDE, *COPIED, TAKEN_UP)
    process.set_aside(1)
    start = copy_start(0, seq=5, epoch=7, of=OF)
    asks = msgspec.structs.replace(start, lineage=(LeaderEpoch(1, A, 0),), is_question=True, log_begins=1)
    process.node.grid.follower.on_copy_start(B, asks, 0)
    process.node.data_merging.on_aside(ReplicasSetAside(), 0)
    assert process.kept() == {(NEXT, 0): b"of B", (NEXT, 1): b"of A"}
    assert process.node.grid.follower.replicas[0].maps["m"].entries[KEY][8:] == b"of A"
    process.node.grid.follower.follow_table(table_of("B", "B", versions=[6, 2]), {}, reconfirmed=False)
    assert process.kept() == {(NEXT, 0): b"of B", (NEXT, 1): b"of A"}
    assert set(process.node.grid.follower.replicas) == {0}


@pytest.mark.rows("DU-07", "DU-34")
def test_what_came_before_there_was_a_table_is_handed_on_beside_what_was_read() -> None:
    """Also where its copy has taken the place of what was read."""
    process = Process(*OF_A)
    process.get()
    process.join_another_side()
    assert process.kept() == {(A, 0): b"of A"}
    replica = process.node.grid.follower.replicas[0]
    assert replica.maps["m"].entries[KEY][8:] == b"of B"
    assert replica.ordered_for == -1
    process.set_aside(0, 1)
    assert process.kept() == {(A, 0): b"of A", (A, 1): b"of A", (THIRD, 0): b"of B"}


@pytest.mark.rows("DU-27", "DU-34")
def test_a_clock_goes_beyond_what_came_before_there_was_a_table() -> None:
    process = Process(*OF_A)
    late = 1 << 50
    process.get(stamp=late)
    process.join_another_side()
    assert process.node.clock.next(0) > late
    side = process.node.grid.stored()
    assert side is not None
    assert side.seen_ms >= late >> COUNTER_BITS


def test_what_came_before_there_was_a_table_says_of_how_many_partitions_it_is() -> None:
    process = Process(OF_A[0])
    process.get(of=3)
    process.join_another_side()
    assert process.node.config.partition_count == 3
    assert not process.kept()
