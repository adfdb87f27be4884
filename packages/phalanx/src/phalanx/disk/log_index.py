"""What the log of a running member has behind each replica, and what a new segment says of the cluster.

The beginning of the log is not needed once each replica begins behind it, with a complete copy or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from phalanx.codec.hashing import children_of
from phalanx.wire.disk_records import (
    ClusterLeft,
    CopyBegun,
    CopyDropped,
    EpochBegun,
    IncarnationEnded,
    KnownCluster,
    LogRecord,
    ReplicaDropped,
    ReplicasDivided,
    ReplicaStart,
    TableRecord,
    ViewRecord,
    after_leaving,
    with_table,
    with_view,
)
from phalanx.wire.messages import CopyChunk


class LogIndex:
    """Follows what is appended to a log, as far as it matters for the beginning of another segment."""

    def __init__(self, cluster: KnownCluster, began: dict[int, int]) -> None:
        """`began`: partition to the record with which its replica begins."""
        self.cluster = cluster
        self.began = began
        self._arriving: dict[int, int] = {}
        """Partition to the record with which a copy from its owner begins."""
        self._to_disk: dict[int, int] = {}
        """The same of a copy of the member's own replica."""

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

    @property
    def is_copying(self) -> bool:
        """Whether a copy of one of the member's own replicas is not complete yet."""
        return bool(self._to_disk)

    def needed_from(self, end: int) -> int:
        """Return the first record that a replica, or a copy that is not complete, needs. `end`: if none needs any."""
        return min([*self.began.values(), *self._arriving.values(), *self._to_disk.values()], default=end)

    def starts(self) -> tuple[ReplicaStart, ...]:
        """Return from where on the log has everything of each replica, and of copies that are not complete."""
        unfinished = [*self._arriving.items(), *self._to_disk.items()]
        return tuple(ReplicaStart(*each) for each in sorted({*self.began.items(), *unfinished}))

    def oldest(self) -> int | None:
        """Return the partition whose replica begins first in the log; None: there is none."""
        return min(self.began, key=lambda partition: self.began[partition], default=None)

    # --- records -----------------------------------------------------------------------------------------------------

    def _note_view(self, record: ViewRecord, lsn: int, to_copy: bool) -> None:
        self.cluster = with_view(self.cluster, record)

    def _note_table(self, record: TableRecord, lsn: int, to_copy: bool) -> None:
        self.cluster = with_table(self.cluster, record)

    def _end_incarnation(self, record: IncarnationEnded, lsn: int, to_copy: bool) -> None:
        self._forget_replicas()
        self.cluster = msgspec.structs.replace(self.cluster, table=None, members=())

    def _leave(self, record: ClusterLeft, lsn: int, to_copy: bool) -> None:
        if not record.keeps:
            self._forget_replicas()
        self.cluster = after_leaving(self.cluster, record)

    def _forget_replicas(self) -> None:
        self.began.clear()
        self._arriving.clear()
        self._to_disk.clear()

    def _begin_epoch(self, record: EpochBegun, lsn: int, to_copy: bool) -> None:
        self.began.setdefault(record.partition, lsn)

    def _begin_copy(self, record: CopyBegun, lsn: int, to_copy: bool) -> None:
        (self._to_disk if record.from_disk_copy else self._arriving)[record.start.partition] = lsn

    def _take_chunk(self, chunk: CopyChunk, lsn: int, to_copy: bool) -> None:
        if not chunk.last:
            return
        began = (self._arriving if to_copy else self._to_disk).pop(chunk.partition, None)
        if began is not None:
            self.began[chunk.partition] = began
        if to_copy:
            self._to_disk.pop(chunk.partition, None)

    def _drop_copy(self, record: CopyDropped, lsn: int, to_copy: bool) -> None:
        self._arriving.pop(record.partition, None)

    def _drop(self, record: ReplicaDropped, lsn: int, to_copy: bool) -> None:
        self.began.pop(record.partition, None)
        self._to_disk.pop(record.partition, None)

    def _divide(self, record: ReplicasDivided, lsn: int, to_copy: bool) -> None:
        self._to_disk.pop(record.partition, None)
        began = self.began.pop(record.partition, None)
        if began is not None:
            children = children_of(record.partition, record.partition_count, record.former_count)
            self.began |= dict.fromkeys(children, began)


_FOLLOW: dict[type, Callable[[LogIndex, Any, int, bool], None]] = {
    ViewRecord: LogIndex._note_view,
    TableRecord: LogIndex._note_table,
    IncarnationEnded: LogIndex._end_incarnation,
    ClusterLeft: LogIndex._leave,
    EpochBegun: LogIndex._begin_epoch,
    CopyBegun: LogIndex._begin_copy,
    CopyChunk: LogIndex._take_chunk,
    CopyDropped: LogIndex._drop_copy,
    ReplicaDropped: LogIndex._drop,
    ReplicasDivided: LogIndex._divide,
}
