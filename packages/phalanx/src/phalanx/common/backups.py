"""How many backups a map has, and how many of them confirm a write.

A map's writes are confirmed when its *synchronous* backups have them: the replicas with the hottest indexes, 1 up to the
count. *Asynchronous* backups come behind those; they get every write too, and nobody waits for them. Every partition has
as many replicas as the map with the most backups wants, and each of them holds all maps: so any can be promoted, and a
map's counts can change while it is used.
"""

from __future__ import annotations

import msgspec

from phalanx.common.errors import UsageError

MAX_BACKUPS = 6
"""A partition has at most seven replicas, numbered 0 (the owner) to 6."""


class BackupCount(msgspec.Struct, frozen=True, array_like=True):
    """The backups of one map."""

    synchronous: int
    asynchronous: int = 0

    @property
    def total(self) -> int:
        return self.synchronous + self.asynchronous

    def __str__(self) -> str:
        return f"{self.synchronous} synchronous and {self.asynchronous} asynchronous"


def check_backups(synchronous: int, asynchronous: int) -> None:
    """Raise `UsageError` for counts that no map can have."""
    for name, count in (("backup_count", synchronous), ("async_backup_count", asynchronous)):
        if not 0 <= count <= MAX_BACKUPS:
            raise UsageError(f"{name}: {count} is not between 0 and {MAX_BACKUPS}")
    if synchronous + asynchronous > MAX_BACKUPS:
        raise UsageError(
            f"backup_count and async_backup_count: {synchronous} and {asynchronous} are more than {MAX_BACKUPS} together"
        )
