"""The log of a member with a folder: every change of a replica that it holds, numbered, in the order of the changes.

The disk follows a member as a backup follows an owner. Whoever changes a replica adds what it did here: a mutation, a
chunk of a copy, another epoch. The driver takes what was added and writes it before anything leaves the member that
tells of it. Reading the records back, in order, gives the replicas as they were in memory (`disk.replay`).

What is written outlives the process, and what is synced outlives the machine. The driver says what is synced (`Synced`).
Machines that hold something until a record is synced say that they wait for it (`want_sync`). If what was added waits for its
sync for longer than `lag_ms`, all writes wait for theirs, so that a power cut never costs more than so much (DU-03).

A member without a folder has a log that is off: nothing is added. So it is when its disk has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from phalanx.codec.rows import pack_rows
from phalanx.common.ids import NEVER, Millis
from phalanx.common.store import StoreStart
from phalanx.wire.disk_records import DiskRecord, KnownCluster, LogRecord, PlainPuts, after_record

StepObserver: TypeAlias = Callable[[int, Collection[str], str, str], None]
"""Is told of a step with staged rows: its partition, the maps that it needed whole, the map that it made (empty: none), and from which."""


class Appended(NamedTuple):
    """Records that are to be written next."""

    first_lsn: int
    records: list[LogRecord]

    @property
    def last_lsn(self) -> int:
        """Return the number of the last of them."""
        return self.first_lsn + len(self.records) - 1


class ReplicaLog:
    """Numbers the records of one member's log, and holds them until the driver takes them."""

    __slots__ = (
        "_held_lsn", "_keys", "_lag_ms", "_map", "_marks", "_partition_count", "_records", "_values", "cluster", "is_on", "last_lsn", "late_from",
        "note_step", "store", "synced_lsn", "wanted_lsn",
    )  # fmt: skip

    def __init__(
        self, last_lsn: int = 0, *, is_on: bool = True, store: StoreStart | None = None, lag_ms: Millis = NEVER
    ) -> None:
        """`last_lsn`: the number of the last record that the folder has. `store`: the folder; None where the log only shows what
        would be written. `lag_ms`: how long what was added can wait for its sync before all writes wait."""
        self.store = store
        """The folder with which a process that starts again goes on; None: there is none."""
        self.cluster = KnownCluster()
        """What the log says of the cluster, as a process that starts again would read it."""
        self.is_on = is_on
        """Whether the member has a folder. Where each write counts, callers look at this first."""
        self.last_lsn = last_lsn
        """The number of the last record that was made. Entries that `put` has taken since have none yet."""
        self.synced_lsn = last_lsn
        """The number of the last record that is known to be synced."""
        self.wanted_lsn = last_lsn
        """The number of the last record for whose sync somebody waits."""
        self.note_step: StepObserver = _ignore
        """Is told of each step with staged rows that is in the log: it mends the copy under way to the disk (`DiskCopies`)."""
        self.late_from = NEVER
        """From when on all writes wait for their sync, because records do for too long; 0: for another reason."""
        self._lag_ms = lag_ms
        self._held_lsn = 0
        """All writes wait until this record is synced."""
        self._marks: deque[tuple[int, Millis]] = deque()
        """When records were written that are not synced, as far as that counts: the last of them, and when the first of them was."""
        self._records: list[LogRecord] = []
        self._map, self._partition_count = "", 0
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        """Entries of one map that were set and are no record yet, in the order of the writes."""

    def __repr__(self) -> str:
        return f"ReplicaLog(last_lsn={self.last_lsn}, is_on={self.is_on}, new={len(self._records)})"

    def end(self) -> None:
        """Forget what was added and not taken, and take nothing any more: it cannot be written. Nobody waits for a sync any more."""
        self.is_on = False
        self._held_lsn = 0
        self._marks.clear()
        self._follow_marks()
        self._records.clear()
        self._keys.clear()
        self._values.clear()

    def add(self, body: DiskRecord, *, to_copy: bool = False) -> None:
        """Add a record. `to_copy`: what it changes is a copy that arrives, and not a replica."""
        if not self.is_on:
            return
        if self._keys:
            self._end_puts()
        self.last_lsn += 1
        self._records.append(LogRecord(body, to_copy))

    def add_of_cluster(self, body: DiskRecord) -> None:
        """Add a record of a view or a table, or of the end of an incarnation."""
        if self.is_on:
            self.add(body)
            self.cluster = after_record(self.cluster, body)

    def put(self, name: str, key: bytes, stored: bytes, partition_count: int) -> None:
        """Add an entry that was set for ever by the next write of its partition, of which no other member has to know."""
        if name != self._map or partition_count != self._partition_count:
            self._begin_puts(name, partition_count)
        self._keys.append(key)
        self._values.append(stored)

    def puts_of(self, name: str, partition_count: int) -> tuple[list[bytes], list[bytes]]:
        """Return two lists for what `put` takes: whoever sets entries of this map adds each key and its stored value, in the order of
        the writes, before anything else is added to the log or taken from it."""
        if name != self._map or partition_count != self._partition_count:
            self._begin_puts(name, partition_count)
        return self._keys, self._values

    def _begin_puts(self, name: str, partition_count: int) -> None:
        if self._keys:
            self._end_puts()
        self._map, self._partition_count = name, partition_count

    def _end_puts(self) -> None:
        """Make one record of the entries that were set."""
        rows = pack_rows(self._keys, self._values)
        self._keys.clear()
        self._values.clear()
        self.last_lsn += 1
        self._records.append(LogRecord(PlainPuts(self._map, self._partition_count, rows)))

    @property
    def has_new(self) -> bool:
        """Return whether anything was added since the last `take`."""
        return bool(self._records or self._keys)

    def want_sync(self) -> int:
        """Note that somebody waits for the sync of all that was added so far. Return the number of the last of it."""
        if self._keys:
            self._end_puts()
        self.wanted_lsn = self.last_lsn
        return self.last_lsn

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a sync."""
        return self.wanted_lsn > self.synced_lsn

    @property
    def is_all_synced(self) -> bool:
        """Whether all that was added is synced."""
        return self.synced_lsn >= self.last_lsn and not self._keys

    def note_written(self, now: Millis) -> None:
        """Note that all that was added is written now."""
        marks, step_ms = self._marks, self._lag_ms // 8
        if not marks or now - marks[-1][1] > step_ms:
            marks.append((self.last_lsn, now))
            self._follow_marks()
        else:
            marks[-1] = self.last_lsn, marks[-1][1]

    def note_synced(self, lsn: int) -> None:
        """Note that all records up to this one are synced."""
        self.synced_lsn = max(self.synced_lsn, lsn)
        marks = self._marks
        while marks and marks[0][0] <= lsn:
            marks.popleft()
        self._follow_marks()

    def hold_writes(self, lsn: int) -> None:
        """Let all writes wait until a record is synced."""
        self._held_lsn = lsn
        self._follow_marks()

    def _follow_marks(self) -> None:
        if self._held_lsn > self.synced_lsn:
            self.late_from = 0
        else:
            self.late_from = self._marks[0][1] + self._lag_ms if self._marks else NEVER

    def take(self) -> Appended | None:
        """Return what was added since the last call; None: nothing."""
        if self._keys:
            self._end_puts()
        if not self._records:
            return None
        records, self._records = self._records, []
        return Appended(self.last_lsn - len(records) + 1, records)


def _ignore(partition: int, needed: Collection[str], made: str, of: str) -> None:
    """Ignore a step: nothing is copied to a disk."""
