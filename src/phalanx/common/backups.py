"""How many backups the cluster keeps, and how many of them confirm a write: a value that travels with the table.

A map's writes are confirmed when its *synchronous* backups have them: the replicas with the hottest indexes, 1 up to the
count. *Asynchronous* backups come behind those; they get every write too, and nobody waits for them. Every partition has
as many replicas as the map with the most backups wants, and each of them holds all maps: so any may be promoted, and a
map's counts may change while it is used.
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


class BackupPlan(msgspec.Struct, frozen=True, array_like=True):
    """The backups of all maps. `version` grows with every change."""

    version: int = 0
    usual: BackupCount = BackupCount(1)
    """Of maps that are not named."""
    maps: tuple[tuple[str, BackupCount], ...] = ()
    """Of maps with counts of their own, by name."""

    def of(self, name: str) -> BackupCount:
        """The backups of a map."""
        return next((count for other, count in self.maps if other == name), self.usual)

    @property
    def depth(self) -> int:
        """How many backups every partition has, as far as there are members for them."""
        return max(self.usual.total, *(count.total for _, count in self.maps)) if self.maps else self.usual.total

    def with_change(self, name: str, count: BackupCount) -> BackupPlan:
        """The plan after the backups of a map have changed; an empty name: of all that have none of their own.

        Raises `UsageError` for counts that no map can have.
        """
        check_backups(count.synchronous, count.asynchronous)
        if not name:
            return BackupPlan(self.version + 1, count, self.maps)
        others = tuple((other, each) for other, each in self.maps if other != name)
        return BackupPlan(self.version + 1, self.usual, tuple(sorted((*others, (name, count)))))


def check_backups(synchronous: int, asynchronous: int) -> None:
    """Raise `UsageError` for counts that no map can have."""
    for name, count in (("backup_count", synchronous), ("async_backup_count", asynchronous)):
        if not 0 <= count <= MAX_BACKUPS:
            raise UsageError(f"{name}: {count} is not between 0 and {MAX_BACKUPS}")
    if synchronous + asynchronous > MAX_BACKUPS:
        raise UsageError(
            f"backup_count and async_backup_count: {synchronous} and {asynchronous} are more than {MAX_BACKUPS} together"
        )
