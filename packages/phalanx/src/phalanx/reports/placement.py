"""Which members hold which partitions: who owns what, who backs it up, and what lacks a replica."""

from __future__ import annotations

from dataclasses import dataclass

from phalanx.common.ids import MemberId
from phalanx.common.table import HOLE, PartitionTable
from phalanx.common.view import MembersView
from phalanx.wire.messages import TableReply


@dataclass(frozen=True)
class Placement:
    """The members and the partition table, as one member has installed them."""

    view: MembersView
    table: PartitionTable
    backup_count: int
    """How many backups each partition should have by that table."""

    @property
    def wanted_replicas(self) -> int:
        """Return how many replicas each partition should have with these data members; at least one."""
        return min(self.backup_count + 1, max(len(self.view.data_members), 1))

    def lacking(self) -> list[int]:
        """Return the partitions that have fewer replicas on members of the view than they should."""
        table, present = self.table, [member in self.view.members for member in self.table.members]
        wanted = self.wanted_replicas
        return [
            partition for partition, row in enumerate(table.rows) if sum(present[i] for i in row if i != HOLE) < wanted
        ]

    def counts(self) -> dict[MemberId, tuple[int, int]]:
        """Return, for each member of the view, how many partitions it owns and how many it backs up."""
        loads, owners = self.table.loads(), self.table.owners()
        owned = {member: owners.count(member) for member in self.view.members}
        return {member: (count, loads.get(member, 0) - count) for member, count in owned.items()}


def placement_of(reply: TableReply) -> Placement:
    """Return the members and their replicas, by the list and the table that a member has told."""
    return Placement(reply.view, reply.table, reply.table.maps.depth)
