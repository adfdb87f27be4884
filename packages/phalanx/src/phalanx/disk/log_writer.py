"""What a member appends to its log, block by block, and which segments it needs no more. Pure: the driver writes, syncs and removes.

Each start of a member begins a segment behind what was read (DU-13), and another one when one is full. A segment begins with all
that older ones need not say any more. Once that is synced, segments go that no replica needs (DU-12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.invariant import invariant, known
from phalanx.common.store import StoreStart
from phalanx.disk.blocks import FIRST_BLOCK, LAST_BLOCK, BlockTimes, chain_start, encode_block
from phalanx.disk.clock_reservation import ClockReservation
from phalanx.disk.log_index import LogIndex
from phalanx.disk.scanning import LogScan
from phalanx.disk.segment_head import SegmentHead
from phalanx.grid.replication.replica_log import Appended, ReplicaLog
from phalanx.wire.disk_records import FORMAT, CleanEnd, LogPosition, SegmentStart

LEAST_SEGMENTS = 4
"""A log of so many segments is never too long."""
PARTLY_NEEDED = 2
"""How many segments of a log are not counted, that has just been copied: the first begins before what is needed, and the last is not full.
Without this a log of two or three segments of copies would be copied again and again while nobody writes."""


class AppendTarget(Protocol):
    """The segment file that is written at the moment."""

    def append(self, data: bytes | bytearray, lsn: int) -> int:
        """Append a block, whose last record has this number, and return where it begins."""


class LogOwner(NamedTuple):
    """Who writes a log: what each of its segments says."""

    generation: int
    cluster: str
    release: str
    boot_id: str


class SegmentInUse(msgspec.Struct):
    """A segment of this process, or of an earlier one."""

    number: int
    first_lsn: int
    needed_from: int
    """The first record that a replica needed when it began."""
    size: int
    """How many bytes of blocks it has."""


class LogWriter:
    """The log of one start, behind what was found of earlier ones."""

    def __init__(
        self, owner: LogOwner, store: StoreStart, found: LogScan, index: LogIndex, lag_ms: Millis = NEVER
    ) -> None:
        """`store`: the folder, and the number of this start. `found`: what the folder has; everything of it is on the disk. `index`: what that says."""
        self._owner = owner
        self._store = store
        self._index = index.going_on()
        self._reservation = ClockReservation()
        self.log = ReplicaLog(found.end.lsn - 1 if found.end is not None else 0, store=store, lag_ms=lag_ms)
        """Where the machines of the member add records."""
        self.log.cluster = index.cluster
        self._head: SegmentHead | None = None
        """Of the segment that is appended to; None: this start has not begun one."""
        self._end = found.end
        """The end of what was written; None: nothing was."""
        self.segments = [SegmentInUse(each.segment, each.first_lsn, 0, each.end - each.start) for each in found.extents]
        """Those of which something is needed, the oldest first."""
        self._copied: tuple[int, int] | None = None
        """The partition whose replica was to be copied to the disk last, and where it began in the log before."""
        self._is_settled = False
        """Whether nothing has happened since `find_copy` looked that gives another answer."""
        self._synced_lsn = self.log.last_lsn
        self.blocks = 0
        """How many blocks were written since the start."""

    def __repr__(self) -> str:
        return f"LogWriter({self.log!r}, {self._end})"

    def begin_segment(self, head: SegmentHead, member: MemberId, times: BlockTimes, target: AppendTarget) -> None:
        """Begin a segment. `member`: the present incarnation."""
        index, owner = self._index, self._owner
        invariant(not self.log.has_new, "a segment begins behind all that was logged", log=self.log)
        version = index.cluster.view.cluster_version if index.cluster.view is not None else 0
        self.log.add(
            SegmentStart(
                FORMAT, head.store.hex(), self._store.start, owner.generation, head.number, self._end, owner.cluster, member,
                owner.boot_id, owner.release, version, index.cluster, index.starts(),
            )
        )  # fmt: skip
        if index.cluster.view is not None:
            self._reservation.begin(self.log, times.clock)
        appended = known(self.log.take(), "a segment begins with what it is", log=self.log)
        first, before = appended.first_lsn, self._end.chain if self._end is not None else 0
        self._head = head
        self._end = LogPosition(head.number, 0, chain_start(head.store, head.number, before), first)
        self.segments.append(SegmentInUse(head.number, first, index.needed_from(first), 0))
        self._is_settled = False
        self._append(appended, times, target, FIRST_BLOCK)

    def take(self, times: BlockTimes) -> Appended:
        """Return what was logged, which is to be written next. There is something."""
        self._reservation.extend(self.log, times.clock)
        return known(self.log.take(), "something was logged", log=self.log)

    def write(self, appended: Appended, times: BlockTimes, target: AppendTarget) -> None:
        """Append what was taken, as one block."""
        self._index.take_all(appended.first_lsn, appended.records)
        self._append(appended, times, target)

    def end(self, times: BlockTimes, target: AppendTarget) -> None:
        """Append the rest of what was logged, and that the process stops in good order."""
        self.log.add(CleanEnd())
        self._append(known(self.log.take(), "the log ends with a record", log=self.log), times, target, LAST_BLOCK)

    def _append(self, appended: Appended, times: BlockTimes, target: AppendTarget, flags: int = 0) -> None:
        """Append records as one block."""
        end = known(self._end, "a segment has begun", log=self.log)
        head = known(self._head, "a segment has begun", log=self.log)
        block, chain = encode_block(head, end, self._synced_lsn, times, appended.records, flags)
        size = len(block)
        offset = target.append(block, appended.last_lsn)
        self.segments[-1].size += size
        self._end = LogPosition(head.number, offset + size, chain, appended.last_lsn + 1)
        self.blocks += 1
        self.log.note_written(times.mono_ms)

    def note_synced(self, lsn: int) -> int | None:
        """Note that all up to this record is on the disk. Return the first segment that is still needed; None: as before."""
        self._synced_lsn = lsn
        current = next((each for each in reversed(self.segments) if each.first_lsn <= lsn), None)
        if current is None:
            return None
        needed = [each for each in self.segments if each.first_lsn <= current.needed_from]
        if not needed or needed[-1] is self.segments[0]:
            return None
        self.segments = self.segments[self.segments.index(needed[-1]) :]
        return self.segments[0].number

    def in_oldest_segment(self) -> list[int]:
        """Return the partitions whose replicas begin in the oldest segment: copies of them let it go."""
        second = self.segments[1].first_lsn if len(self.segments) > 1 else self.log.last_lsn + 1
        return [partition for partition, lsn in self._index.began.items() if lsn < second]

    def look_again(self) -> None:
        """Let `find_copy` look whatever it has found before."""
        self._is_settled = False

    def find_copy(
        self, segment_bytes: int, count_live_bytes: Callable[[], int], *, is_full: bool = False
    ) -> int | None:
        """Return the partition whose replica is to be copied to the disk next, because the log is long; None: none is.

        `segment_bytes`: the size of a segment's file. `count_live_bytes`: returns the size of what the member holds. `is_full`: whether
        the disk is full: then a log is long if copies would make it shorter.
        """
        index = self._index
        if self._copied is not None and index.began.get(self._copied[0]) != self._copied[1]:
            self._copied, self._is_settled = None, False  # this copy is over
        if self._is_settled or index.to_disk or not self.log.is_on:
            return None
        self._is_settled = True
        # The files count, and not what is in them: each start leaves one that is not full.
        files = len(self.segments)
        if files < (PARTLY_NEEDED + 1 if is_full else LEAST_SEGMENTS):
            return None
        live = count_live_bytes()
        if (files - PARTLY_NEEDED) * segment_bytes <= (live if is_full else 2 * live):
            return None
        oldest = index.oldest()
        if oldest is not None and not is_full and index.began[oldest] >= self.segments[-1].first_lsn:
            # 1. Four starts leave four files with little in them. 2. All replicas are copied. 3. The older files go when the next segment
            # begins: until then another copy of them would make nothing shorter, and be the first of very many. A full disk needs them:
            # they fill this segment.
            return None
        if oldest is not None:
            self._copied = oldest, index.began[oldest]
        return oldest
