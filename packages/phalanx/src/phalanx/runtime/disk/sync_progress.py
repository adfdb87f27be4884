"""Which appended records are on the disk, which are on their way, and when the next sync must begin. No thread, no clock, no file.

Records are numbered by the member (lsn). A sync is of all that was appended before it began, so those who wait during one share the next
(group commit): it begins when the present one is over and somebody waits, or when what was appended has waited for the interval.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from phalanx.common.invariant import invariant
from phalanx.runtime.disk.segment_files import SegmentFile

PAUSE_SHARE = 0.25
"""For which part of the last sync's time the next one waits at most, so that more callers share it."""
LONGEST_PAUSE_S = 0.002
"""The longest such pause."""
ENOUGH_SHARE = 0.9
"""The next sync waits no longer when this part of the expected bytes is there."""


class SyncBatch(NamedTuple):
    """What one sync covers."""

    lsn: int
    """The last record that it covers."""
    segments: tuple[SegmentFile, ...]
    """Where it is, in order: more than one after a change of segments."""
    size: int
    """In bytes."""
    since_s: float
    """When the first of it was appended."""


class SyncProgress:
    """The progress of one log. Its owner guards it by a lock."""

    def __init__(self, lsn: int) -> None:
        """Begin behind the record `lsn`, which is on the disk."""
        self.appended = lsn
        """The last record that the system has."""
        self.synced = lsn
        """The last record that is on the disk."""
        self._wanted = lsn
        """The last record for whose sync somebody waits."""
        self._dirty: list[SegmentFile] = []
        """Segments with records that no sync has covered yet, in order."""
        self._size = 0
        """How many bytes these records have."""
        self._since_s = math.inf
        """When the first of these records was appended."""
        self._expected_bytes = 0.0
        """So many unsynced bytes are expected soon: who was told of the last sync can ask again at once. (Records do not count: the
        writes of one turn can be one record.)"""
        self._begins_s = 0.0
        """Until when the next sync waits for these, if somebody waits for it."""
        self._batch: SyncBatch | None = None
        """What the present sync covers."""

    def note_append(self, segment: SegmentFile, lsn: int, size: int, now_s: float) -> bool:
        """Note that records up to `lsn` were appended. Return whether they are the first since a sync began."""
        invariant(
            lsn >= self.appended, "records are appended in the order of their numbers", lsn=lsn, last=self.appended
        )
        is_first = not self._dirty
        if is_first:
            self._since_s = now_s
        if is_first or self._dirty[-1] is not segment:
            self._dirty.append(segment)
        self.appended = lsn
        self._size += size
        return is_first

    def want(self, lsn: int) -> bool:
        """Note that somebody waits for the sync of a record that no sync under way covers. Return whether that is new, or all are there
        who are expected."""
        invariant(lsn <= self.appended, "what is to be synced was appended", lsn=lsn, last=self.appended)
        covered = self._batch.lsn if self._batch is not None else self.synced
        is_new = lsn > covered and self._wanted <= covered
        self._wanted = max(self._wanted, lsn)
        return is_new or (lsn > covered and self._expected_bytes > 0 and self._has_expected)

    def wait_s(self, interval_s: float, now_s: float) -> float:
        """Return how long the next sync has to wait; 0: it begins now; infinite: there is nothing to sync."""
        if not self._dirty:
            return math.inf
        if self._wanted > self.synced:
            return 0.0 if self._has_expected else max(0.0, self._begins_s - now_s)
        return max(0.0, self._since_s + interval_s - now_s)

    def begin(self) -> SyncBatch:
        """Return what the sync that begins now covers: all that was appended."""
        invariant(self._batch is None, "one sync is under way at a time")
        batch = SyncBatch(self.appended, tuple(self._dirty), self._size, self._since_s)
        self._batch, self._dirty, self._size, self._since_s = batch, [], 0, math.inf
        return batch

    @property
    def _has_expected(self) -> bool:
        return self._size >= self._expected_bytes

    def end(self, lasted_s: float = 0.0, now_s: float = 0.0) -> list[SegmentFile]:
        """Note that the present sync was successful, and lasted so long. Return the segments that nobody uses from now on.

        1. Half of the callers wait for a sync, and the other half ask meanwhile. 2. If the next sync began at once, it would be for
        the second half, and the first half would come too late again: each sync would be for half of them, for ever.
        """
        batch = self._batch
        invariant(batch is not None, "a sync that ends has begun")
        if batch is None:
            return []
        self._expected_bytes = ENOUGH_SHARE * (batch.size + self._size)
        self._begins_s = now_s + min(lasted_s * PAUSE_SHARE, LONGEST_PAUSE_S)
        self.synced, self._batch = batch.lsn, None
        return [each for each in batch.segments if each.is_sealed and each not in self._dirty]

    def seal(self, segment: SegmentFile) -> bool:
        """Note that nothing more is appended to a segment. Return whether all of it is on the disk, so nobody uses it from now on."""
        segment.is_sealed = True
        return segment not in self._dirty and (self._batch is None or segment not in self._batch.segments)

    @property
    def is_done(self) -> bool:
        """Whether all that was appended is on the disk."""
        return not self._dirty and self._batch is None

    @property
    def unsynced_bytes(self) -> int:
        """Return how many appended bytes are not known to be on the disk."""
        return self._size + (self._batch.size if self._batch is not None else 0)

    def unsynced_for_s(self, now_s: float) -> float:
        """Return how long the oldest appended record has not been known to be on the disk; 0: all are."""
        since_s = min(self._since_s, self._batch.since_s if self._batch is not None else math.inf)
        return max(0.0, now_s - since_s) if since_s < math.inf else 0.0
