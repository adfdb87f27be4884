"""How far a rebalancing is, how fast it goes, and how much longer it takes: counted on the master, for events and commands."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import Millis
from phalanx.common.table import PartitionTable
from phalanx.machine.outbox import Outbox
from phalanx.wire.table_events import RebalancingProgress

TELL_EVERY_MS = 5_000
"""Between two events about the progress of a rebalancing."""


class Progress(msgspec.Struct, frozen=True):
    """How far the present rebalancing is, or how far the last one came."""

    arrived: int
    planned: int
    """Partitions that were to change; `arrived` of them are where they should be."""
    copied_entries: int
    copied_bytes: int
    took_ms: Millis
    left_ms: Millis | None
    """At the pace of the partitions so far; None: no partition has arrived yet."""


class ProgressCount:
    """Counts what the migrations of one rebalancing have done."""

    def __init__(self, outbox: Outbox) -> None:
        self._out = outbox
        self.begin_anew()

    def __repr__(self) -> str:
        return f"ProgressCount(done={self.done}, arrived={self.arrived}, copied_bytes={self._copied_bytes})"

    def begin_anew(self) -> None:
        """Begin to count another rebalancing."""
        self.done = 0
        """Migrations committed."""
        self.arrived = 0
        """Partitions that have reached their targets."""
        self._copied_entries = self._copied_bytes = 0
        self._began_at: Millis | None = None
        """When the first migration began; None: none has begun."""
        self._ended_at: Millis | None = None
        """When the last one ended; None: some go on, or none has begun."""
        self._tell_at: Millis = 0
        """When the next event is due."""

    def note_begin(self, now: Millis) -> None:
        """Note that a migration begins."""
        if self._began_at is None:
            self._began_at, self._tell_at = now, now + TELL_EVERY_MS
        self._ended_at = None

    def note_committed(self, entries: int, size: int) -> None:
        """Count a committed migration, for which so many entries and bytes were copied."""
        self.done += 1
        self._copied_entries += entries
        self._copied_bytes += size

    def next_deadline(self) -> Millis:
        """Return when the next event is due, while migrations are under way."""
        return self._tell_at

    def progress(self, left: int, now: Millis) -> Progress:
        """Return how far the rebalancing is. `left`: partitions that have not reached their targets."""
        took_ms = 0
        if self._began_at is not None:
            took_ms = (self._ended_at if self._ended_at is not None else now) - self._began_at
        left_ms = took_ms * left // self.arrived if self.arrived else None if left else 0
        return Progress(
            self.arrived, self.arrived + left, self._copied_entries, self._copied_bytes, took_ms, left_ms
        )  # fmt: skip

    def tell(self, table: PartitionTable, left: int, now: Millis, *, is_over: bool) -> None:
        """Record the progress, if that is due: now and then, and when the rebalancing is over."""
        if self._began_at is None or self._ended_at is not None:
            return
        if is_over:
            self._ended_at = now
        elif now < self._tell_at:
            return
        self._tell_at = now + TELL_EVERY_MS
        progress = msgspec.structs.astuple(self.progress(left, now))
        self._out.record(RebalancingProgress(table.version, *progress))
