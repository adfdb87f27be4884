"""On the master: which members can hold replicas, how many each partition should have, and the target rows.

All data members that do not want to leave share all partitions. A member that was just admitted takes part when the
master has first heard from it. A member whose disk has failed gets nothing any more, and keeps what it holds only where there
are too few others. Where only such members stay, those that leave keep what they have on working disks until others come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from phalanx.common.ids import MemberId, host_of
from phalanx.common.table import Slots
from phalanx.common.traits import USUAL
from phalanx.common.view import MembersView
from phalanx.partition.assignment import Candidate, assign
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.recovery.repair import Repair


class EligibleMembers:
    """The present members that hold replicas or can get some."""

    def __init__(self, publication: TablePublication) -> None:
        self._publication = publication
        self.leaving: Collection[MemberId] = ()
        """Members that hand over all their replicas, or stop."""
        self.to_stop: frozenset[MemberId] = frozenset()
        self.failed: frozenset[MemberId] = frozenset()
        """Members whose disks have failed."""

    def update(self, before: MembersView | None, view: MembersView, leaving: Collection[MemberId]) -> str:
        """Take the present members. Return why targets must be planned again; empty: they need not."""
        left_before, self.leaving = self.leaving, leaving
        if before is None or before.members != view.members:
            return "the members changed"
        if before.traits != view.traits:
            return "other members hold data"
        return "members want to hold nothing any more" if set(leaving) != set(left_before) else ""

    @property
    def stopping(self) -> frozenset[MemberId]:
        """Return those of them that stop, and come back with what they hold: their disks work."""
        return self.to_stop - self.failed if self.to_stop else self.to_stop

    # --- who, and how many -----------------------------------------------------------------------------------------

    def staying(self) -> list[MemberId]:
        """Return the data members that do not want to leave."""
        return [member for member in self._publication.joined().data_members if member not in self.leaving]

    def working(self) -> list[MemberId]:
        """Return those of them whose disks work. If none works: the members that leave with working disks, or else all that stay."""
        staying = self.staying()
        if self.failed.isdisjoint(staying):
            return staying
        return self._well(staying) or self._well(self._publication.joined().data_members) or staying

    def uncounted(self) -> list[MemberId]:
        """Return the members whose replicas do not count as such: they leave, or their disks have failed and others' work."""
        working = self.working()
        return [*self.leaving, *sorted(member for member in self.failed if member not in working)]

    def ready(self) -> Collection[MemberId]:
        """Return the members that can get replicas. A member that was just admitted can after it was first heard."""
        return {self._publication.this, *self._publication.confirmed}

    def sharing(self) -> list[MemberId]:
        """Return the members that share the replicas now."""
        if not self._awaits_others():
            return self.working()
        # 1. L wants to leave, and J has been admitted but is not there yet. 2. Without J there would be room for
        # fewer replicas. 3. L would be drained to those, instead of to J a moment later. So L waits for J.
        ready = {*self.ready(), *self._publication.table.members}
        members = [member for member in self._publication.joined().data_members if member in ready]
        return self._well(members) or members

    def _awaits_others(self) -> bool:
        ready = {*self.ready(), *self._publication.table.members}
        return any(member not in ready for member in self.working())

    def _well(self, members: Iterable[MemberId]) -> list[MemberId]:
        return [member for member in members if member not in self.failed]

    def takers(self, kept: Collection[MemberId]) -> list[MemberId]:
        """Return the members that can take over replicas of members that others cannot reach."""
        ready = self.ready()
        takers = [m for m in self._publication.joined().data_members if m in kept and m in ready]
        return [m for m in takers if m not in self.leaving] or takers

    def wanted(self) -> int:
        """Return how many replicas each partition should have."""
        return min(self._publication.table.maps.depth + 1, len(self.working()))

    def know_table(self) -> bool:
        """Return whether every other member that stays has the present table: then the next master will find it."""
        staying = (member for member in self._publication.others if member not in self.leaving)
        return not self._publication.table.is_assigned or self._publication.is_known_to(staying)

    # --- who should have what --------------------------------------------------------------------------------------

    def rows_for(self, members: list[MemberId], rows: Sequence[Slots]) -> list[tuple[MemberId, ...]]:
        """Return the replicas that each partition should have, shared among these members with few moves.

        Where they are too few, members whose disks have failed keep what they hold.
        """
        special = dict(self._publication.joined().traits)
        all_traits = [(member, special.get(member, USUAL)) for member in members]
        candidates = [Candidate(member, traits.weight, traits.zone, host_of(member)) for member, traits in all_traits]
        depth = self._publication.table.maps.depth
        assigned = assign(rows, candidates, depth)
        if not self.failed or len(members) > depth:
            return assigned
        holders = self._publication.joined().data_members if self._awaits_others() else self.staying()
        keeps = [member for member in holders if member in self.failed and member not in members]
        return [
            (*target, *[member for member in row if member in keeps][: depth + 1 - len(target)])
            for target, row in zip(assigned, rows, strict=True)
        ]

    def rows_for_lost(self, result: Repair) -> dict[int, Slots]:
        """Return new, empty replicas for partitions that have lost all replicas, balanced with the others."""
        members = self.working() or list(self._publication.joined().data_members)
        if not result.lost or not members:
            # Without data members the rows stay empty until there is one.
            return {}
        table = self._publication.table
        rows = [result.changes.get(p, table.slots(p)) for p in range(table.partition_count)]
        assigned = self.rows_for(members, rows)
        return {partition: assigned[partition] for partition in result.lost}
