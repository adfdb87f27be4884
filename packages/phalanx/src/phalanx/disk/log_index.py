"""Where in a log each replica and each open copy begins, and what the log says of the cluster: while it is written, and when it is read.

The beginning of the log is not needed once each replica begins behind it, with a complete copy or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

from phalanx.codec.hashing import children_of
from phalanx.common.ids import MemberId
from phalanx.wire.disk_records import (
    ClockReserved,
    ClusterLeft,
    CopyBegun,
    CopyDropped,
    DiskRecord,
    EpochBegun,
    IncarnationEnded,
    KeptMerged,
    KeptTakenBack,
    KnownCluster,
    LogRecord,
    ReplicaDropped,
    ReplicasDivided,
    ReplicasKept,
    ReplicaStart,
    SegmentStart,
    TableRecord,
    ViewRecord,
    after_record,
)
from phalanx.wire.messages import CopyChunk


class _All:
    """Contains every number."""

    def __contains__(self, number: object) -> bool:
        return True


ALL = _All()


class LogIndex:
    """Follows the records of a log, as far as it matters for the beginning of another segment."""

    def __init__(
        self, cluster: KnownCluster, began: dict[int, int], beginnings: Container[int] = ALL, sure_from: int = 0
    ) -> None:
        """`began`: partition to the record with which its replica begins. `beginnings`: the numbers of the records with which
        replicas begin of which the log has everything. From `sure_from` on every beginning is one.
        """
        self.cluster = cluster
        self.began = began
        self.kept: dict[tuple[MemberId, int], int] = {}
        """Former incarnation and partition to the record with which the replica begins that it has left to be merged."""
        self.arriving: dict[int, int] = {}
        """Partition to the record with which a copy from its owner begins."""
        self.to_disk: dict[int, int] = {}
        """The same of a copy of the member's own replica."""
        self.reserved = 0
        """The greatest stamp of the grid's clock that the process that wrote this can have given."""
        self._beginnings = beginnings
        self._sure_from = sure_from

    def going_on(self) -> LogIndex:
        """Return the index of the process that goes on with this log: it takes over what is complete."""
        index = LogIndex(self.cluster, self.began)
        index.kept = self.kept
        return index

    def __repr__(self) -> str:
        return f"LogIndex(replicas={len(self.began)}, needed_from={self.needed_from(0)})"

    def take_all(self, first_lsn: int, records: Sequence[LogRecord]) -> None:
        """Follow records, of which most are writes: those do not matter here."""
        for lsn, record in enumerate(records, first_lsn):
            if type(record.body) in _FOLLOW:
                self.take(lsn, record)

    def take(self, lsn: int, record: LogRecord) -> None:
        """Follow one record."""
        follow = _FOLLOW.get(type(record.body))
        if follow is not None:
            follow(self, record.body, lsn, record.to_copy)

    def begins(self, lsn: int) -> bool:
        """Return whether the log has everything of what begins with this record."""
        return lsn >= self._sure_from or lsn in self._beginnings

    def needed_from(self, end: int) -> int:
        """Return the first record that a replica, or a copy that is not complete, needs. `end`: if none needs any."""
        needed = [*self.began.values(), *self.arriving.values(), *self.to_disk.values(), *self.kept.values()]
        return min(needed, default=end)

    def starts(self) -> tuple[ReplicaStart, ...]:
        """Return from where on the log has everything of each replica, and of copies that are not complete."""
        unfinished = [*self.arriving.items(), *self.to_disk.items()]
        kept = [(partition, lsn) for (_, partition), lsn in self.kept.items()]
        return tuple(ReplicaStart(*each) for each in sorted({*self.began.items(), *unfinished, *kept}))

    def oldest(self) -> int | None:
        """Return the partition whose replica begins first in the log; None: there is none, or what waits for a merge begins earlier."""
        lsn, first = min(((lsn, partition) for partition, lsn in self.began.items()), default=(0, None))
        # A copy of it would make the log longer, and let nothing of it go.
        return None if first is None or min(self.kept.values(), default=lsn) < lsn else first

    # --- records -----------------------------------------------------------------------------------------------------

    def _note_cluster(self, record: DiskRecord, lsn: int, to_copy: bool) -> None:
        self.cluster = after_record(self.cluster, record)

    def _end_incarnation(self, record: IncarnationEnded, lsn: int, to_copy: bool) -> None:
        self._forget_replicas(record.dormant)
        self._note_cluster(record, lsn, to_copy)

    def _keep(self, record: ReplicasKept, lsn: int, to_copy: bool) -> None:
        for partition in record.partitions:
            self.to_disk.pop(partition, None)  # nobody goes on with a copy of what is set aside
            if (began := self.began.pop(partition, None)) is not None:
                self.kept[record.former, partition] = began

    def _end_merge(self, record: KeptMerged, lsn: int, to_copy: bool) -> None:
        self.kept.pop((record.former, record.partition), None)

    def _take_back(self, record: KeptTakenBack, lsn: int, to_copy: bool) -> None:
        began = self.kept.pop((record.former, record.partition), None)
        self._drop(ReplicaDropped(record.partition), lsn, to_copy)
        if began is not None:
            self.began[record.partition] = began

    def _leave(self, record: ClusterLeft, lsn: int, to_copy: bool) -> None:
        if not record.keeps:
            self._forget_replicas()
        self._note_cluster(record, lsn, to_copy)

    def _reserve(self, record: ClockReserved, lsn: int, to_copy: bool) -> None:
        self.reserved = max(self.reserved, record.until)

    def _forget_replicas(self, but: Container[int] = ()) -> None:
        for partition in [partition for partition in self.began if partition not in but]:
            del self.began[partition]
        self.arriving.clear()
        self.to_disk.clear()

    def _begin_epoch(self, record: EpochBegun, lsn: int, to_copy: bool) -> None:
        if self.begins(lsn):
            self.began.setdefault(record.partition, lsn)

    def _begin_copy(self, record: CopyBegun, lsn: int, to_copy: bool) -> None:
        copies = self.to_disk if record.from_disk_copy else self.arriving
        copies.pop(record.start.partition, None)
        if self.begins(lsn):
            copies[record.start.partition] = lsn

    def _take_chunk(self, chunk: CopyChunk, lsn: int, to_copy: bool) -> None:
        if not chunk.last:
            return
        began = (self.arriving if to_copy else self.to_disk).pop(chunk.partition, None)
        if began is not None:
            self.began[chunk.partition] = began
        if to_copy:
            self.to_disk.pop(chunk.partition, None)

    def _drop_copy(self, record: CopyDropped, lsn: int, to_copy: bool) -> None:
        self.arriving.pop(record.partition, None)

    def _drop(self, record: ReplicaDropped, lsn: int, to_copy: bool) -> None:
        self.began.pop(record.partition, None)
        self.to_disk.pop(record.partition, None)

    def _divide(self, record: ReplicasDivided, lsn: int, to_copy: bool) -> None:
        self.to_disk.pop(record.partition, None)
        began = self.began.pop(record.partition, None)
        if began is not None:
            children = children_of(record.partition, record.partition_count, record.former_count)
            self.began |= dict.fromkeys(children, began)


_FOLLOW: dict[type, Callable[[LogIndex, Any, int, bool], None]] = {
    SegmentStart: LogIndex._note_cluster,
    ViewRecord: LogIndex._note_cluster,
    TableRecord: LogIndex._note_cluster,
    IncarnationEnded: LogIndex._end_incarnation,
    ReplicasKept: LogIndex._keep,
    KeptMerged: LogIndex._end_merge,
    KeptTakenBack: LogIndex._take_back,
    ClusterLeft: LogIndex._leave,
    ClockReserved: LogIndex._reserve,
    EpochBegun: LogIndex._begin_epoch,
    CopyBegun: LogIndex._begin_copy,
    CopyChunk: LogIndex._take_chunk,
    CopyDropped: LogIndex._drop_copy,
    ReplicaDropped: LogIndex._drop,
    ReplicasDivided: LogIndex._divide,
}
