"""On the master: which members can hold replicas, how many each partition should have, and the target rows.

All data members that do not want to leave share all partitions. A member that was just admitted takes part when the
master has first heard from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from phalanx.common.ids import MemberId, host_of
from phalanx.common.invariant import invariant
from phalanx.common.table import Slots
from phalanx.common.traits import USUAL
from phalanx.common.view import MembersView
from phalanx.partition.assignment import Candidate, assign
from phalanx.partition.coordinator.redundancy import lacking
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.recovery.repair import Repair


class EligibleMembers:
    """The present members that hold replicas or can get some."""

    def __init__(
        self,
        this: MemberId,
        installed_table: InstalledTable,
        publication: TablePublication,
        has_entries: Callable[[], bool],
    ) -> None:
        """`has_entries`: whether this member holds any entry."""
        self._this = this
        self._has_entries = has_entries
        self._installed = installed_table
        self._publication = publication
        self.view: MembersView | None = None
        self.leaving: Collection[MemberId] = ()
        """Members that hand over all their replicas."""
        self.missing: Collection[MemberId] = ()
        """Members that can come back, and for which the last leavers wait."""

    def joined(self) -> MembersView:
        """Return the view, which must exist."""
        invariant(self.view is not None, "this member has joined")
        return self.view  # type: ignore[return-value]  # held by the invariant

    def update(self, view: MembersView, leaving: Collection[MemberId]) -> str:
        """Take the present members. Return why targets must be planned again; empty: they need not."""
        before, self.view = self.view, view
        left_before, self.leaving = self.leaving, leaving
        if before is None or before.members != view.members:
            return "the members changed"
        if before.traits != view.traits:
            return "other members hold data"
        return "members want to hold nothing any more" if set(leaving) != set(left_before) else ""

    # --- who, and how many -----------------------------------------------------------------------------------------

    def staying(self) -> list[MemberId]:
        """Return the data members that do not want to leave."""
        return [member for member in self.joined().data_members if member not in self.leaving]

    def ready(self) -> Collection[MemberId]:
        """Return the members that can get replicas. A member that was just admitted can after it was first heard."""
        return {self._this, *self._publication.confirmed}

    def sharing(self) -> list[MemberId]:
        """Return the members that share the replicas now."""
        ready = {*self.ready(), *self._installed.table.members}
        members = self.staying()
        if any(member not in ready for member in members):
            # 1. L wants to leave, and J has been admitted but is not there yet. 2. Without J there would be room for
            # fewer replicas. 3. L would be drained to those, instead of to J a moment later. So L waits for J.
            members = [member for member in self.joined().data_members if member in ready]
        return members

    def takers(self, kept: Collection[MemberId]) -> list[MemberId]:
        """Return the members that can take over replicas of members that others cannot reach."""
        ready = self.ready()
        takers = [m for m in self.joined().data_members if m in kept and m in ready]
        return [m for m in takers if m not in self.leaving] or takers

    def wanted(self) -> int:
        """Return how many replicas each partition should have."""
        return min(self._installed.table.maps.depth + 1, len(self.staying()))

    def lacking(self) -> int:
        """Return how many partitions miss replicas on members that stay."""
        return lacking(self._installed.table, self.wanted(), self.leaving) if self._installed.is_assigned else 0

    def to_hand_over(self, member: MemberId, coming: int) -> int:
        """Return how many replicas others must take over before this member can go. `coming`: how many it is just getting."""
        nobody_stays = all(other in self.leaving or other == member for other in self.joined().data_members)
        if nobody_stays and (not self.missing or (member == self._this and not self._has_entries())):
            return 0
        return self._installed.table.loads().get(member, 0) + coming

    def waiting_in_vain(self) -> list[MemberId]:
        """Return the leavers that no member can take over from, and that wait for missing members (PX-50)."""
        if not self.missing or self.staying():
            return []
        return [member for member in self.joined().members if member in self.leaving and self.to_hand_over(member, 0)]

    # --- who should have what --------------------------------------------------------------------------------------

    def rows_for(self, members: list[MemberId], rows: Sequence[Slots]) -> list[tuple[MemberId, ...]]:
        """Return the replicas that each partition should have, shared among these members with few moves."""
        special = dict(self.joined().traits)
        all_traits = [(member, special.get(member, USUAL)) for member in members]
        candidates = [Candidate(member, traits.weight, traits.zone, host_of(member)) for member, traits in all_traits]
        return assign(rows, candidates, self._installed.table.maps.depth)

    def rows_for_lost(self, result: Repair) -> dict[int, Slots]:
        """Return new, empty replicas for partitions that have lost all replicas, balanced with the others."""
        members = self.staying() or list(self.joined().data_members)
        if not result.lost or not members:
            # Without data members the rows stay empty until there is one.
            return {}
        table = self._installed.table
        rows = [result.changes.get(p, table.slots(p)) for p in range(table.partition_count)]
        assigned = self.rows_for(members, rows)
        return {partition: assigned[partition] for partition in result.lost}
