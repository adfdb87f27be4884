"""What the membership knows of the partition table: which members hold data, and what the master is told of it."""

from __future__ import annotations

from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.table import PartitionTable, holders_of
from phalanx.machine.facts import MembershipChanged, TableConfirmed


class TableNews:
    """The installed table, as its machine told it last."""

    def __init__(self, partition_count: int) -> None:
        """`partition_count`: of the settings, until a table says how many partitions the cluster has."""
        self._partition_count = partition_count
        self.table: PartitionTable | None = None
        """The installed partition table; None: not told yet."""
        self.version = 0
        """The version of that table, if this member's master has confirmed it; -1: it has not."""

    def on_table(self, membership: MembershipChanged, fact: TableConfirmed, now: Millis) -> None:
        """Note the table that is installed, and which version the present master has confirmed."""
        self.table = fact.table
        self.version = fact.installed_version if fact.confirmed_by == membership.master else -1

    @property
    def partition_count(self) -> int:
        """Return the number of partitions of the cluster, as far as this member knows."""
        return self.table.partition_count if self.table is not None else self._partition_count

    @property
    def has_data(self) -> bool:
        """Whether the partitions are assigned."""
        return self.table is not None and self.table.is_assigned

    def waiting_for(self, address: Address) -> int:
        """Return how many dormant partitions wait for a member that was at an address."""
        rows = self.table.dormant.values() if self.table is not None else ()
        return sum(any(member is not None and address_of(member) == address for member in row) for row in rows)

    def awaited_holders(self) -> tuple[MemberId, ...]:
        """Return the members for which dormant partitions wait."""
        return holders_of(self.table.dormant.values()) if self.table is not None else ()

    def replicas_of(self, member: MemberId) -> int:
        """Return how many replicas a member holds."""
        return self.table.loads().get(member, 0) if self.table is not None else 0
