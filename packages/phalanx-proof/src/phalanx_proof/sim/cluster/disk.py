"""The folder of a simulated host: what its members have written, and the replicas that reading it back would give."""

from __future__ import annotations

from random import Random

import msgspec

from phalanx.common.disk_state import DiskState
from phalanx.common.ids import Millis
from phalanx.common.invariant import known
from phalanx.common.store import StoreStart
from phalanx.disk.clock_reservation import ClockReservation
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import Restoration, restore
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import KnownCluster, LogRecord, ReplicaStart

SEGMENT_RECORDS = 40
"""After so many records a segment ends, and older ones that nothing needs are removed."""


class WrittenRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that is on the disk."""

    lsn: int
    record: LogRecord
    at: Millis
    """What the host's clock showed when it was written."""


class SegmentHeader(msgspec.Struct, frozen=True):
    """What the newest segment says of what is before it."""

    lsn: int = 1
    cluster: KnownCluster = KnownCluster()
    starts: tuple[ReplicaStart, ...] = ()


class SimDisk:
    """The folder of one host, through all processes that start there."""

    def __init__(self, seed: str, *, is_lasting: bool = True) -> None:
        """`is_lasting`: whether a process that starts here again reads what is there."""
        self._store = StoreStart(seed, 0) if is_lasting else None
        """The identity of the folder, and how often a process has started with it; None: none starts with it again."""
        self.state = DiskState.OK
        self.log = ReplicaLog(store=self._store)
        """Where the machines of the present process add records."""
        self.replay = Replay()
        """The replicas of what was written so far."""
        self.differs = False
        """Whether it was found that the log does not give what is in memory: it is told once."""
        self._written: list[WrittenRecord] = []
        self._header = SegmentHeader()
        self._last_stamp = 0
        self._reservation = ClockReservation()
        self._rng = Random(seed)

    def __repr__(self) -> str:
        return f"SimDisk({self.log!r})"

    @property
    def holds_replicas(self) -> bool:
        """Whether a process that starts here brings back replicas."""
        return bool(self.replay.replicas)

    def fail(self) -> None:
        """Write nothing any more. What was written stays, and is not read again."""
        self.state = DiskState.FAILED
        self.differs = True
        self.log.end()

    def write(self, shown: Millis, stamp: int) -> None:
        """Write what was added. `shown`, `stamp`: what the host's clock shows, and the grid's."""
        if not self.log.has_new:
            return
        self._reservation.extend(self.log, stamp)
        appended = known(self.log.take(), "something was logged", log=self.log)
        self._last_stamp = stamp
        for lsn, record in enumerate(appended.records, appended.first_lsn):
            self._written.append(WrittenRecord(lsn, record, shown))
            if self.differs:
                self.replay.index.take(lsn, record)
            else:
                self.replay.take(lsn, record, shown)
        if appended.last_lsn >= self._header.lsn + SEGMENT_RECORDS:
            self._begin_segment(appended.last_lsn + 1)

    def _begin_segment(self, lsn: int) -> None:
        """Note what older segments need not say any more, and remove those that nothing needs."""
        index = self.replay.index
        self._header = SegmentHeader(lsn, index.cluster, index.starts())
        needed = index.needed_from(lsn)
        self._written = [each for each in self._written if each.lsn >= needed]

    def draw_copy(self) -> int | None:
        """Return a partition whose replica is to be copied to this disk now; None: none is."""
        index = self.replay.index
        if self._rng.random() >= 0.02 or not index.began:
            return None
        oldest = index.oldest()
        return oldest if self._rng.random() < 0.7 else self._rng.choice(sorted(index.began))

    def begin_process(self) -> Restoration | None:
        """Begin with what an earlier process has written; None: that is nothing of use."""
        header, last_lsn = self._header, self.log.last_lsn
        lost = self.log.take()  # what was not written is lost with the process that had made it
        if lost is not None:
            last_lsn = lost.first_lsn - 1
        replay = Replay({each.lsn for each in header.starts}, header.lsn)
        replay.index.cluster = header.cluster
        for each in self._written:
            replay.take(each.lsn, each.record, each.at)
        replay.index.cluster = self.replay.index.cluster
        if self._store is not None:
            self._store = StoreStart(self._store.store, self._store.start + 1)
        self.log = ReplicaLog(last_lsn, store=self._store)
        return restore(replay, self._last_stamp, self.log)
