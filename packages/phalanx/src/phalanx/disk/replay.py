"""Make the replicas of a member from the records of its log: what a backup does with what its owner sends.

A log begins somewhere: the beginning was removed once complete later copies of all replicas were behind it. So the first
records can be of replicas whose beginning is gone. They are passed over: a replica begins with a copy, with an empty
one, or as a part of one that was divided, and only if the log is known to have everything from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from typing import Any

from phalanx.codec.hashing import HASH_SEED, partitions_of
from phalanx.codec.rows import unpack_rows
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import PhalanxError
from phalanx.common.ids import MemberId, Millis
from phalanx.disk.log_index import ALL, LogIndex
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, keep, set_aside
from phalanx.grid.replica import native
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.mutation import APPLY, apply
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.replica_split import Division
from phalanx.grid.replication.copying import IncomingCopy
from phalanx.wire.disk_records import (
    ClusterLeft,
    CopyBegun,
    CopyDropped,
    EpochBegun,
    IncarnationEnded,
    KeptMerged,
    KeptTakenBack,
    KnownCluster,
    LogRecord,
    MergeBegun,
    PlainPuts,
    ReplicaDropped,
    ReplicasDivided,
    ReplicasKept,
    TableRecord,
)
from phalanx.wire.messages import CopyChunk, Mutation

_FOLLOWER = native.NATIVE.Follower(Replica, MapStore, IncomingCopy) if native.NATIVE is not None else None


class LogIsWrong(PhalanxError):
    """The records of a log do not follow from each other: this build cannot have written them so, or it has a bug."""


class Replay:
    """The replicas of a member as of the records that were given so far, in order."""

    def __init__(self, beginnings: Container[int] = ALL, sure_from: int = 0) -> None:
        """`beginnings`, `sure_from`: which beginnings of replicas the log has, as in `LogIndex`."""
        self.index = LogIndex(KnownCluster(), {}, beginnings, sure_from)
        """Where the replicas and the copies begin."""
        self.replicas: dict[int, Replica] = {}
        """Partition to its replica."""
        self.orphaned = OrphanedReplicas()
        """What former incarnations have left, and wait to be merged."""
        self.arriving: dict[int, IncomingCopy] = {}
        """Partition to a copy that arrives from its owner, and is not complete yet."""
        self._to_disk: dict[int, IncomingCopy] = {}
        """As `arriving`, for a copy of the member's own replica."""
        self._counts: dict[int, int] = {}
        """Partition to the number of partitions of which its replica is one; 0: of so many as the first table will have."""

    def take(self, lsn: int, record: LogRecord, now: Millis) -> None:
        """Follow one record. `now`: when it was written, by the clock of the process that will use the replicas.

        Raises `LogIsWrong` if it cannot follow what was given before.
        """
        body = record.body
        kind = type(body)
        if kind in APPLY:
            self._mutate(body, now, to_copy=record.to_copy)  # type: ignore[arg-type]  # one of these kinds
            return
        if kind is PlainPuts:
            self._put_plainly(body, now)  # type: ignore[arg-type]  # by its kind
            return
        if kind is ReplicasKept:
            self._keep(body, now)  # type: ignore[arg-type]  # by its kind
        elif kind is MergeBegun:
            self._begin_merge(body, now)  # type: ignore[arg-type]  # by its kind
        elif kind is CopyChunk:
            self._take_chunk(body, now, to_copy=record.to_copy)  # type: ignore[arg-type]  # by its kind
        elif (follow := _FOLLOW.get(kind)) is not None:
            follow(self, body, lsn)
        self.index.take(lsn, record)

    def follower(self, now: Millis) -> Callable[[Any, int, int], tuple[int, int]] | None:
        """Return a function that follows records of puts from their bytes, as `take` does one by one (`read_records`); None: without
        native code that is no faster."""
        if _FOLLOWER is None:
            return None
        return partial(_FOLLOWER.follow, self.replicas, self._to_disk, now, HASH_SEED)

    # --- writes ------------------------------------------------------------------------------------------------------

    def _mutate(self, mutation: Mutation, now: Millis, *, to_copy: bool) -> None:
        partition = mutation.partition
        if to_copy:
            if (found := self.arriving.get(partition)) is not None:
                _apply(found.replica, mutation, now)
            return
        if (replica := self.replicas.get(partition)) is not None:
            _apply(replica, mutation, now)
        if self._to_disk and (found := self._to_disk.get(partition)) is not None:
            _apply(found.replica, mutation, now)

    def _put_plainly(self, record: PlainPuts, now: Millis) -> None:
        keys, values = unpack_rows(record.rows)
        name, replicas, to_disk = record.map, self.replicas, self._to_disk
        for key, stored, partition in zip(keys, values, partitions_of(keys, record.of), strict=True):
            if (replica := replicas.get(partition)) is not None:
                _put(replica, name, key, stored, now)
            if to_disk and (found := to_disk.get(partition)) is not None:
                _put(found.replica, name, key, stored, now)

    def _written(self, partition: int) -> list[Replica]:
        """Return what a write of a partition changes: its replica, and the copy of it that is under way to the disk."""
        found = [self.replicas[partition]] if partition in self.replicas else []
        return [*found, self._to_disk[partition].replica] if partition in self._to_disk else found

    # --- copies ------------------------------------------------------------------------------------------------------

    def _begin_copy(self, record: CopyBegun, lsn: int) -> None:
        copies = self._to_disk if record.from_disk_copy else self.arriving
        copies.pop(record.start.partition, None)
        if self.index.begins(lsn):
            copy = IncomingCopy(MemberId(record.leader), record.start)
            copy.replica.ended = record.ended
            copies[record.start.partition] = copy

    def _take_chunk(self, chunk: CopyChunk, now: Millis, *, to_copy: bool) -> None:
        copies = self.arriving if to_copy else self._to_disk
        copy = copies.get(chunk.partition)
        if copy is None:
            return
        if not copy.accepts(copy.source, chunk):
            raise LogIsWrong(f"chunk {chunk.index} of the copy of partition {chunk.partition} is not the next one")
        copy.apply(chunk, now)
        if chunk.last:
            self.replicas[chunk.partition] = copies.pop(chunk.partition).replica
            self._counts[chunk.partition] = copy.partition_count
            if to_copy:
                self._to_disk.pop(chunk.partition, None)  # it is of the replica that this one replaces

    def _drop_copy(self, record: CopyDropped, lsn: int) -> None:
        self.arriving.pop(record.partition, None)

    # --- replicas ----------------------------------------------------------------------------------------------------

    def _begin_epoch(self, record: EpochBegun, lsn: int) -> None:
        partition = record.partition
        if partition not in self.replicas and partition not in self._to_disk and self.index.begins(lsn):
            self.replicas[partition] = Replica()
            table = self.index.cluster.table
            self._counts[partition] = table.partition_count if table is not None else 0
        for replica in self._written(partition):
            replica.ended = record.ended
            replica.begin_epoch(record.epoch, record.leader)

    def _drop(self, record: ReplicaDropped, lsn: int) -> None:
        self.replicas.pop(record.partition, None)
        self._to_disk.pop(record.partition, None)

    def _number(self, record: TableRecord, lsn: int) -> None:
        if self.index.cluster.table is None:
            count = record.table.partition_count
            self._counts = {partition: of or count for partition, of in self._counts.items()}

    def partition_count(self) -> int:
        """Return of how many partitions the replicas are; 0: there are none, or it is not known yet."""
        return max((self._counts.get(partition, 0) for partition in self.replicas), default=0)

    def undivided(self) -> list[ReplicasDivided]:
        """Return the divisions that the table wants and the member had not made yet: it divides one replica after another."""
        table = self.index.cluster.table
        if table is None:
            return []
        count = table.partition_count
        former = {partition: self._counts.get(partition, 0) for partition in sorted(self.replicas)}
        return [ReplicasDivided(p, of, count) for p, of in former.items() if of and of < count and count % of == 0]

    def _divide(self, record: ReplicasDivided, lsn: int) -> None:
        replica = self.replicas.pop(record.partition, None)
        self._to_disk.pop(record.partition, None)
        if replica is None:
            return
        division = Division(replica, record.partition, record.former_count, record.partition_count)
        while not division.go_on():
            pass
        self.replicas |= division.children
        self._counts |= dict.fromkeys(division.children, record.partition_count)

    def _keep(self, record: ReplicasKept, now: Millis) -> None:
        """Do what the incarnation did when it ended."""
        table, named = record.table, (*record.partitions, *record.empty)
        held = {partition: self.replicas.pop(partition) for partition in named if partition in self.replicas}
        if record.is_as_read:
            self.orphaned.add(set_aside(record.former, table, held, record.ended))
            for partition in held:
                self._to_disk.pop(partition, None)
            return
        self.orphaned.add(keep(record.former, table, held, record.ended, now))
        self.orphaned.losses = self.orphaned.losses.united_with(table.losses)

    def _begin_merge(self, record: MergeBegun, now: Millis) -> None:
        side = self.orphaned.sides.get(record.former)
        if side is not None and record.partition in side.replicas:
            side.begin_merge(record.partition, now)

    def _end_merge(self, record: KeptMerged, lsn: int) -> None:
        if (side := self.orphaned.sides.get(record.former)) is not None:
            side.replicas.pop(record.partition, None)
            side.done.add(record.partition)

    def _take_back(self, record: KeptTakenBack, lsn: int) -> None:
        side = self.orphaned.sides.get(record.former)
        if side is not None and (kept := side.replicas.pop(record.partition, None)) is not None:
            self.replicas[record.partition] = kept.replica
            self._counts[record.partition] = side.partition_count
            self._to_disk.pop(record.partition, None)

    def _forget_replicas(self, record: IncarnationEnded | ClusterLeft, lsn: int) -> None:
        if type(record) is ClusterLeft and record.keeps:
            return
        dormant = record.dormant if type(record) is IncarnationEnded else ()
        for partition in [partition for partition in self.replicas if partition not in dormant]:
            del self.replicas[partition]
        self.arriving.clear()
        self._to_disk.clear()


def _put(replica: Replica, name: str, key: bytes, stored: bytes, now: Millis) -> None:
    store = replica.maps.get(name)
    if store is not None and store.is_plain:
        # As `MapStore.put` does, which costs a call more: this runs for each entry.
        old = store.entries.get(key)
        store.held_bytes += len(stored) - (len(old) if old is not None else STAMP_BYTES - len(key))
        store.entries[key] = stored
    else:
        replica.map(name).put(key, stored, 0, now)
    replica.seq += 1


def _apply(replica: Replica, mutation: Mutation, now: Millis) -> None:
    if mutation.seq != replica.seq + 1:
        raise LogIsWrong(
            f"partition {mutation.partition} is at write {replica.seq}, and the next record has write {mutation.seq}"
        )
    apply(replica, mutation, now)


_FOLLOW: dict[type, Callable[[Replay, Any, int], None]] = {
    CopyBegun: Replay._begin_copy,
    CopyDropped: Replay._drop_copy,
    EpochBegun: Replay._begin_epoch,
    ReplicaDropped: Replay._drop,
    TableRecord: Replay._number,
    ReplicasDivided: Replay._divide,
    KeptMerged: Replay._end_merge,
    KeptTakenBack: Replay._take_back,
    IncarnationEnded: Replay._forget_replicas,
    ClusterLeft: Replay._forget_replicas,
}
