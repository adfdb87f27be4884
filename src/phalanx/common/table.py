"""The partition table as a value: which members hold which replica of each partition.

Only the master makes a new table. Each partition has a version that grows by one with every committed change (by two
when a copy failed, so that both ends learn that it is over); the table's version is their sum. Every replica named
here is complete: a copy in progress is not in the table. So any of them may be promoted without losing a write that
was acknowledged.

Wire and memory form are one: members once, then indexes into them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from phalanx.common.ids import MemberId

Replicas = tuple[MemberId, ...]
"""The members that hold a partition: the owner (index 0) and its backups, hotter first; empty: nobody."""


class PartitionTable(msgspec.Struct, frozen=True, array_like=True):
    """An immutable partition table."""

    members: tuple[MemberId, ...]
    rows: tuple[tuple[int, ...], ...]
    """Of each partition: its replicas as indexes into `members`."""
    versions: tuple[int, ...]
    """Of each partition: how many changes it has seen."""
    version: int
    """The sum of `versions`."""
    births: tuple[int, ...]
    """Of each partition: its version when it last began empty because nobody had it any more; 0: never."""

    @property
    def partition_count(self) -> int:
        return len(self.rows)

    def replicas(self, partition: int) -> Replicas:
        """Who holds the partition, owner first."""
        members = self.members
        return tuple(members[index] for index in self.rows[partition])

    def owner(self, partition: int) -> MemberId | None:
        """Who owns the partition; None when all its replicas were lost or it was never assigned."""
        row = self.rows[partition]
        return self.members[row[0]] if row else None

    def owners(self) -> list[MemberId | None]:
        """The owner of each partition."""
        members = self.members
        return [members[row[0]] if row else None for row in self.rows]

    def loads(self) -> dict[MemberId, int]:
        """How many replicas each member named here holds."""
        counts = dict.fromkeys(self.members, 0)
        for row in self.rows:
            for index in row:
                counts[self.members[index]] += 1
        return counts

    def with_changes(
        self, changes: Mapping[int, Replicas], *, increment: int = 1, lost: Collection[int] = ()
    ) -> PartitionTable:
        """The table after the given partitions got new replicas, each with its version raised; `lost` begin empty."""
        rows = {partition: self.replicas(partition) for partition in range(len(self.rows))} | dict(changes)
        versions, births = list(self.versions), list(self.births)
        for partition in changes:
            versions[partition] += increment
        for partition in lost:
            births[partition] = versions[partition]
        return build_table([rows[partition] for partition in range(len(self.rows))], versions, births)


def build_table(
    replicas: Sequence[Replicas], versions: Sequence[int], births: Sequence[int] | None = None
) -> PartitionTable:
    """A table from the replicas of each partition."""
    members = tuple(sorted({member for row in replicas for member in row}))
    index_of = {member: index for index, member in enumerate(members)}
    rows = tuple(tuple(index_of[member] for member in row) for row in replicas)
    return PartitionTable(members, rows, tuple(versions), sum(versions), tuple(births or (0,) * len(rows)))


def unassigned_table(partition_count: int) -> PartitionTable:
    """The table before the first assignment: version 0, nobody owns anything."""
    return build_table([()] * partition_count, [0] * partition_count)
