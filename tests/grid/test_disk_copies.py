"""Copies of a member's replicas to its own disk: what reading the log back gives, whatever happens to the replica meanwhile."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.disk.replay import Replay
from phalanx.grid.durability.disk_copies import PAUSE_MS, QUIET_PAUSE_MS, DiskCopies
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.outbox import Outbox
from phalanx.wire.disk_records import CopyBegun, DiskRecord, EpochBegun, LogRecord, ReplicaDropped, ReplicasDivided
from phalanx.wire.messages import CopyChunk, ReplicatePut
from support.disk_records import MAP, put, stored
from support.harness import key_of, lone_id

OF = 3
KEYS = [key_of(0, OF, number) for number in range(8)]
ROW_BYTES = 40


class Disk:
    """A member with one replica, and the log that it writes."""

    def __init__(self, keys: int = 8, chunk_bytes: int = ROW_BYTES) -> None:
        self.log = ReplicaLog()
        self.held: dict[int, Replica] = {}
        self.flow = CopyFlow(Outbox(lone_id("A")), chunk_bytes)
        self.copies = DiskCopies(self.log, self.flow, self.held.get, lambda: OF)
        self.replay = Replay()
        self.now: Millis = 1_000
        self.lsn = 1
        self.held[0] = Replica()
        self.held[0].begin_epoch(1, "A")
        self.log.add(EpochBegun(0, 1, "A", -1))
        for key in KEYS[:keys]:
            self.put(key, stored("v"))

    def put(self, key: bytes, value: bytes, name: str = MAP) -> None:
        replica = self.held[0]
        mutation: ReplicatePut = put(0, replica.seq + 1, key, value, epoch=replica.epoch, name=name)
        apply(replica, mutation, self.now)
        self.log.add(mutation)

    def turn(self) -> None:
        """The next turn of the copy."""
        deadline = self.copies.next_deadline()
        assert deadline is not None
        self.now = deadline
        self.copies.on_time(self.now)

    def written(self) -> list[LogRecord]:
        """Write what was added, and follow it."""
        appended = self.log.take()
        records = appended.records if appended is not None else []
        for record in records:
            self.replay.take(self.lsn, record, self.now)
            self.lsn += 1
        return records

    def finish(self) -> None:
        while self.copies.next_deadline() is not None:
            self.turn()
        self.written()

    def is_as_in_memory(self) -> bool:
        here, there = self.held[0], self.replay.replicas[0]
        stores = {name: store.entries for name, store in here.maps.items()}
        return (here.epoch, here.leader, here.seq, stores) == (
            there.epoch, there.leader, there.seq, {name: store.entries for name, store in there.maps.items()},
        )  # fmt: skip


def kinds(records: list[LogRecord]) -> list[type[DiskRecord]]:
    return [type(record.body) for record in records]


def test_a_copy_is_a_beginning_and_chunks_and_the_replica_begins_there_then() -> None:
    disk = Disk()
    began_at = len(disk.written()) + 1
    disk.copies.begin(0, disk.now)
    disk.turn()
    assert disk.replay.index.began == {0: 1}
    records = disk.written()
    assert kinds(records) == [CopyBegun, CopyChunk]
    begun = records[0].body
    assert isinstance(begun, CopyBegun)
    assert (begun.leader, begun.from_disk_copy, begun.start.seq, begun.start.of) == ("A", True, 8, OF)
    assert not any(record.to_copy for record in records)
    disk.finish()
    assert disk.replay.index.began == {0: began_at}
    assert disk.is_as_in_memory()


def test_writes_between_chunks_are_in_the_copy() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    number = 0
    while disk.copies.next_deadline() is not None:
        disk.turn()
        disk.put(KEYS[number % 8], stored("w", 5 + number))
        number += 1
    disk.written()
    assert number > 2
    assert disk.is_as_in_memory()
    assert disk.replay.index.began[0] > 1


def test_one_replica_is_copied_at_a_time() -> None:
    disk = Disk()
    disk.held[1] = Replica()
    disk.copies.begin(0, disk.now)
    disk.copies.begin(1, disk.now)
    disk.finish()
    assert 1 not in disk.replay.replicas


def test_what_is_not_here_is_not_copied() -> None:
    disk = Disk()
    disk.written()
    disk.copies.begin(2, disk.now)
    assert disk.copies.next_deadline() is None
    assert disk.written() == []


def test_a_dropped_replica_is_copied_no_further() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    disk.log.add(ReplicaDropped(0))
    del disk.held[0]
    disk.finish()
    assert disk.replay.replicas == {}


def test_another_replica_of_the_partition_is_not_taken_for_the_copied_one() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    disk.log.add(ReplicaDropped(0))
    disk.held[0] = Replica()
    disk.held[0].begin_epoch(2, "A")
    disk.log.add(EpochBegun(0, 2, "A", -1))
    disk.finish()
    assert disk.is_as_in_memory()
    assert disk.replay.replicas[0].entry_count() == 0


def test_a_divided_replica_is_copied_no_further() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    disk.log.add(ReplicasDivided(0, OF, 2 * OF))
    del disk.held[0]
    disk.finish()
    assert set(disk.replay.replicas) == {0, 3}
    assert sum(each.entry_count() for each in disk.replay.replicas.values()) == 8


def test_a_step_that_needs_what_is_not_copied_yet_begins_the_copy_anew() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    disk.written()
    disk.copies.on_step(0, [MAP], "", MAP)
    assert kinds(disk.written()) == [CopyBegun]
    disk.finish()
    assert disk.is_as_in_memory()


def test_a_step_changes_no_copy_that_has_what_it_needs_or_is_of_another_partition() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    disk.written()
    disk.copies.on_step(0, ["other"], "", "other")
    disk.copies.on_step(1, [MAP], "", MAP)
    assert disk.written() == []


def test_a_map_that_a_step_made_of_one_that_is_not_copied_yet_is_copied_too() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    made = disk.held[0].map("made")
    for key in KEYS:
        made.put(key, stored("v"), 0, disk.now)
    disk.copies.on_step(0, [], "made", MAP)
    disk.finish()
    assert disk.is_as_in_memory()


def test_callers_slow_a_copy_down() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    assert disk.copies.next_deadline() == disk.now + QUIET_PAUSE_MS
    disk.flow.traffic.last_at = disk.now + QUIET_PAUSE_MS
    disk.turn()
    assert disk.copies.next_deadline() == disk.now + PAUSE_MS


def test_before_its_time_nothing_is_copied() -> None:
    disk = Disk()
    disk.copies.begin(0, disk.now)
    disk.turn()
    disk.written()
    disk.copies.on_time(disk.now)
    assert disk.written() == []
