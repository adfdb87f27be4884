"""The partition table as a value: which members hold which replica of each partition.

Only the master makes a new table. Each partition has a version that grows by one with every committed change, and by
two if a migration failed: a destination that had committed it alone is then behind again. The table's version is
their sum (and that of the maps' settings and of the losses, which travel with it), so the same holds for it, while partitions change independently: of two tables the newer row counts for each
partition. Every replica named here is complete: a migration under way is not in the table. So any of them can be
promoted without losing a write that was acknowledged.

Wire and memory form are one: members once, then indexes into them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from phalanx.common.ids import MemberId, address_of
from phalanx.common.invariant import invariant
from phalanx.common.losses import NO_LOSSES, LossBook
from phalanx.common.map_plan import MapPlan

HOLE = -1
"""The index of nobody: no member holds this replica. The owner is missing only if the whole row is empty."""

Replicas = tuple[MemberId, ...]
"""The members that hold a partition: the owner and its backups, hotter first; empty: nobody."""
Slots = tuple[MemberId | None, ...]
"""The members by replica index; None where the replica of that index is missing."""
NONE_DORMANT: Mapping[int, Slots] = {}


class TableRow(NamedTuple):
    """All that the table says of one partition."""

    slots: Slots
    version: int
    birth: int
    """Its version when it last began empty, as in `PartitionTable.births`."""
    dormant: Slots = ()
    """As in `PartitionTable.dormant`; empty: it is not dormant."""


class Dormancy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A partition without an owner that waits for members which have it in their folders."""

    partition: int
    holders: Slots
    """Who held it last, by replica index."""


class PartitionTable(msgspec.Struct, frozen=True, array_like=True):
    """An immutable partition table."""

    members: tuple[MemberId, ...]
    rows: tuple[tuple[int, ...], ...]
    """By partition, then by replica index: an index into `members`, or `HOLE`; no holes at the end."""
    versions: tuple[int, ...]
    """By partition: its version, the number of changes that it has seen."""
    version: int
    """The sum of `versions` and of the versions of the maps' settings and of the losses."""
    births: tuple[int, ...]
    """By partition: its version when it last began empty because all replicas were lost; 0: never."""
    maps: MapPlan
    """The settings of maps, and so the number of backups."""
    losses: LossBook = NO_LOSSES
    """Losses that are not acknowledged yet."""
    dormancy: tuple[Dormancy, ...] = ()
    """In the order of the partitions."""

    @property
    def dormant(self) -> Mapping[int, Slots]:
        """Return the partitions that are dormant, and who held them last."""
        return {each.partition: each.holders for each in self.dormancy} if self.dormancy else NONE_DORMANT

    @property
    def partition_count(self) -> int:
        return len(self.rows)

    @property
    def is_assigned(self) -> bool:
        """Whether the partitions have ever had owners: a change of what travels with the table gives them none."""
        return self.version > self.maps.version + self.losses.version

    @property
    def version_of_parts(self) -> int:
        """Return what `version` must be."""
        return sum(self.versions) + self.maps.version + self.losses.version

    def replicas(self, partition: int) -> Replicas:
        """Return the members that hold the partition, owner first."""
        members = self.members
        return tuple([members[index] for index in self.rows[partition] if index != HOLE])

    def slots(self, partition: int) -> Slots:
        """Return which member holds which replica of the partition, by replica index."""
        members = self.members
        return tuple([members[index] if index != HOLE else None for index in self.rows[partition]])

    def owner(self, partition: int) -> MemberId | None:
        """Return the owner of the partition; None if all its replicas were lost or it was never assigned."""
        row = self.rows[partition]
        return self.members[row[0]] if row else None

    def owners(self) -> list[MemberId | None]:
        """List the owner of each partition; None for one without an owner."""
        members = self.members
        return [members[row[0]] if row else None for row in self.rows]

    def loads(self) -> dict[MemberId, int]:
        """Return how many replicas each member named here holds."""
        counts = dict.fromkeys(self.members, 0)
        for row in self.rows:
            for index in row:
                if index != HOLE:
                    counts[self.members[index]] += 1
        return counts

    def replica_count(self, partition: int) -> int:
        """Return how many replicas of the partition are available."""
        return sum(1 for index in self.rows[partition] if index != HOLE)

    def with_changes(
        self,
        changes: Mapping[int, Slots],
        *,
        increment: int = 1,
        increments: Mapping[int, int] | None = None,
        lost: Collection[int] = (),
        dormant: Mapping[int, Slots] = NONE_DORMANT,
        losses: LossBook | None = None,
    ) -> PartitionTable:
        """Give some partitions new replicas, and raise their versions.

        `increment`: by how much to raise a version. `increments`: the same for partitions that need another number. `lost`:
        partitions that begin empty. `dormant`: who held the partitions that wait for one of these from now on. `losses`: the book
        of losses to use from now on.
        """
        versions, births = list(self.versions), list(self.births)
        for partition in changes:
            versions[partition] += increments.get(partition, increment) if increments else increment
        for partition in lost:
            births[partition] = versions[partition]
        table = self.with_rows(
            {p: TableRow(slots, versions[p], births[p], dormant.get(p, ())) for p, slots in changes.items()}
        )
        return table.with_losses(losses) if losses is not None else table

    def row(self, partition: int) -> TableRow:
        """Return all that this table says of a partition."""
        dormant = self.dormant.get(partition, ()) if self.dormancy else ()
        return TableRow(self.slots(partition), self.versions[partition], self.births[partition], dormant)

    def with_rows(self, changes: Mapping[int, TableRow]) -> PartitionTable:
        """Replace all that this table says of some partitions."""
        members = self.members
        known = set(members)
        new = {member for row in changes.values() for member in row.slots if member is not None} - known
        if new:
            table = _with_members(self, tuple(sorted(known | new)))
            members, rows = table.members, list(table.rows)
        else:
            rows = list(self.rows)
        index_of = {member: index for index, member in enumerate(members)}
        versions, births = list(self.versions), list(self.births)
        displaced: set[int] = set()
        dormant = [each for each in self.dormancy if each.partition not in changes]
        for partition, row in changes.items():
            displaced.update(rows[partition])
            rows[partition] = _row(row.slots, index_of)
            versions[partition], births[partition] = row.version, row.birth
            if row.dormant:
                dormant.append(Dormancy(partition, row.dormant))
        version = sum(versions) + self.maps.version + self.losses.version
        table = PartitionTable(
            members,
            tuple(rows),
            tuple(versions),
            version,
            tuple(births),
            self.maps,
            self.losses,
            tuple(sorted(dormant, key=lambda each: each.partition)),
        )
        # A member that holds no replica is not named any more. Most often the first rows show that all are still named.
        unnamed = displaced - {HOLE}
        for held in rows:
            if not unnamed:
                return table
            unnamed.difference_update(held)
        return _with_members(table, tuple(member for index, member in enumerate(members) if index not in unnamed))

    def with_maps(self, maps: MapPlan) -> PartitionTable:
        """Replace the settings of maps if these are newer."""
        if maps.version <= self.maps.version:
            return self
        version = self.version - self.maps.version + maps.version
        return msgspec.structs.replace(self, version=version, maps=maps)

    def with_losses(self, losses: LossBook) -> PartitionTable:
        """Replace the book of losses if this one is newer."""
        if losses.version <= self.losses.version:
            return self
        version = self.version - self.losses.version + losses.version
        return msgspec.structs.replace(self, version=version, losses=losses)

    def with_partition_count(self, count: int) -> PartitionTable:
        """Split each partition into equal parts: partition p of N becomes p, p + N, p + 2 N, and so on.

        A key's partition is its hash modulo the count, so these parts together hold what p held. The replicas of each part are
        those of p. Its version is higher than p's, so nothing that was said of p applies to it.
        """
        times, rest = divmod(count, self.partition_count)
        invariant(
            rest == 0 and times > 1, "partitions are divided into equal parts", count=count, before=len(self.rows)
        )
        versions = tuple([version + 1 for version in self.versions]) * times
        rows, births = self.rows * times, self.births * times
        version = sum(versions) + self.maps.version + self.losses.version
        invariant(not self.dormancy, "partitions that wait for their holders are not divided", dormancy=self.dormancy)
        return PartitionTable(self.members, rows, versions, version, births, self.maps, self.losses)

    def newer_rows(self, than: PartitionTable) -> dict[int, TableRow]:
        """Return the rows of this table whose versions are higher than in the other one."""
        return {
            partition: self.row(partition)
            for partition, (version, other) in enumerate(zip(self.versions, than.versions, strict=True))
            if version > other
        }


def holders_of(rows: Iterable[Slots]) -> tuple[MemberId, ...]:
    """List the members that these rows name, each once, in order of their names."""
    return tuple(sorted({member for slots in rows for member in slots if member is not None}))


def why_dormant(table: PartitionTable, partition: int) -> str:
    """Say for whom a partition waits, for callers that want to use it; empty: it is not dormant."""
    holders = holders_of([table.dormant.get(partition, ())])
    if not holders:
        return ""
    names = ", ".join(map(address_of, holders))
    them = "it" if len(holders) == 1 else "them"
    return (
        f"partition {partition} waits for its last holders, which have it in their folders: {names}; start {them} again"
    )


def build_table(
    replicas: Sequence[Slots],
    versions: Sequence[int],
    births: Sequence[int] | None = None,
    maps: MapPlan | None = None,
) -> PartitionTable:
    """Build a table from the replicas of each partition."""
    members = tuple(sorted({member for row in replicas for member in row if member is not None}))
    index_of = {member: index for index, member in enumerate(members)}
    rows = tuple(_row(row, index_of) for row in replicas)
    plan = maps if maps is not None else MapPlan()
    version = sum(versions) + plan.version
    return PartitionTable(members, rows, tuple(versions), version, tuple(births or (0,) * len(rows)), plan)


def unassigned_table(partition_count: int, maps: MapPlan | None = None) -> PartitionTable:
    """Build the table before the first assignment: version 0, without owners."""
    return build_table([()] * partition_count, [0] * partition_count, maps=maps)


def _row(slots: Slots, index_of: Mapping[MemberId, int]) -> tuple[int, ...]:
    row = [HOLE if member is None else index_of[member] for member in slots]
    while row and row[-1] == HOLE:
        row.pop()
    return tuple(row)


def _with_members(table: PartitionTable, members: tuple[MemberId, ...]) -> PartitionTable:
    """Return the same rows by other indexes: `members` names all that hold something."""
    index_of = {member: index for index, member in enumerate(members)}
    moved = [index_of.get(member, HOLE) for member in table.members]
    rows = tuple([tuple([moved[index] if index != HOLE else HOLE for index in row]) for row in table.rows])
    return msgspec.structs.replace(table, members=members, rows=rows)
