"""Choose the owned partitions to compare with their backups: all of them once in each interval.

A backup that is out of sync is found by the next write, because it applies writes in order only. Without writes it is
found here: the owner probes the backup, and copies the partition if the backup differs. Migrations never rely on this
(docs/protocol/migrations.md): it repairs what should not have happened.
"""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.grid.replication.ownership import Ownership

TICK_MS = 1_000
"""Between two checks, each of a share of the partitions."""


class AntiEntropy:
    """Visits all partitions in turn."""

    def __init__(self, ownership: Ownership, interval_ms: Millis) -> None:
        self._ownership = ownership
        self._interval_ms = interval_ms
        self._next = 0
        """The partition that was visited last."""
        self._due_at: Millis = 0

    def next_deadline(self) -> Millis | None:
        return self._due_at if self._interval_ms else None

    def end(self) -> None:
        """Compare nothing any more: this incarnation is over."""
        self._interval_ms = 0

    def on_time(self, now: Millis) -> None:
        """Compare some more partitions."""
        if not self._interval_ms or now < self._due_at:
            return
        is_first, self._due_at = self._due_at == 0, now + TICK_MS
        if is_first:
            return
        owned = self._ownership.owned
        count = min(-(-len(owned) * TICK_MS // self._interval_ms), len(owned))
        for _ in range(count):
            self._next = (self._next + 1) % len(owned)
            partition = owned[self._next]
            if partition is not None and partition.streams:
                partition.check_backups()
