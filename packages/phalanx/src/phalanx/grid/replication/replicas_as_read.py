"""What a member has read from its folder, and what the cluster neither serves nor lets follow an owner: it stays as it was read."""

from __future__ import annotations

from collections.abc import Set

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.follower_rules import is_older_than_loss
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.replication.restored import RestoredReplicas, SetAside
from phalanx.machine.facts import FolderTakenUp, ReplicasSetAside
from phalanx.machine.outbox import Outbox
from phalanx.wire.table_messages import StoredSide


class ReplicasAsRead:
    """The replicas that a cluster can take up as they are, and those that are set aside because it has others."""

    def __init__(self, this: MemberId, replicas: dict[int, Replica], log: ReplicaLog, outbox: Outbox) -> None:
        """`replicas`: all complete replicas of this member; these are among them, until they are set aside."""
        self._this = this
        self._replicas = replicas
        self._log = log
        self._out = outbox
        self.awaited: RestoredReplicas | None = None
        """All that was read, until there is a table with owners, and what dormant partitions of that table wait for; None: nothing, or
        a cluster has taken it up."""
        self.copied_of = 0
        """Of how many partitions the cluster was that has begun to copy to this member last; 0: none has."""
        self._aside: list[SetAside] = []
        """What is in nobody's way any more, until it is taken (`take_aside`)."""

    def __repr__(self) -> str:
        return f"ReplicasAsRead({sorted(self.partitions)}, aside={len(self._aside)})"

    @property
    def partitions(self) -> Set[int]:
        """Return the partitions of those that are not set aside."""
        return self.awaited.replicas.keys() if self.awaited is not None else frozenset()

    def is_of_other_count(self, partition_count: int) -> bool:
        """Return whether what was read is known to be of another number of partitions."""
        return self.awaited is not None and self.awaited.partition_count not in (0, partition_count)

    def note_count(self, partition_count: int) -> None:
        """Note of how many partitions the cluster has that copies to this member: it can be parted from it before it has a table."""
        self.copied_of = partition_count
        if self.awaited is not None and not self.awaited.partition_count:
            self.awaited = self.awaited._replace(partition_count=partition_count)

    def side_under(self, table: PartitionTable) -> StoredSide | None:
        """Return what was read and no cluster has taken up yet, for masters that ask while this member has this table; None: nothing."""
        if self.awaited is None:
            return None
        return self.awaited.side if table.is_assigned else self.awaited.held_by(self._this).side

    def restore(self, read: RestoredReplicas) -> None:
        """Take what was read from the folder, or the parts of it."""
        self.awaited = read
        self._replicas.update(read.replicas)

    def take_aside(self) -> list[SetAside]:
        """Return what was set aside since the last call: the cluster has others, and perhaps not all that these have."""
        aside, self._aside = self._aside, []
        return aside

    def set_aside(self, partitions: Set[int], of: int) -> None:
        """Set the replicas of these partitions, of so many, aside, as far as there are some: others are in their place."""
        if self.awaited is None or partitions.isdisjoint(self.awaited.replicas):
            return
        partitions = partitions & self.awaited.replicas.keys()
        self.awaited, aside = self.awaited.without(partitions, of, self._log)
        for partition in partitions:
            del self._replicas[partition]
        if aside:
            self._aside += aside
            self._out.tell(ReplicasSetAside())

    def follow_table(self, table: PartitionTable) -> None:
        """Let a table with owners take up what it lists, or waits for. Set the rest aside."""
        if not table.is_assigned or self.awaited is None:
            return
        awaited = self.awaited.awaited_by(table)
        here = {
            p
            for p, replica in self.awaited.replicas.items()
            if p < table.partition_count and self._this in table.replicas(p)
            if not is_older_than_loss(replica, p, table, self._this)
        }
        still = awaited.replicas.keys() if awaited is not None else set[int]()
        self.set_aside(self.awaited.replicas.keys() - still - here, table.partition_count)
        self.awaited = awaited
        if awaited is None:
            self._out.tell(FolderTakenUp())

    def divide(self, former_count: int, table: PartitionTable) -> RestoredReplicas | None:
        """Return the parts of what a table waits for that has more partitions; None: it waits for nothing. Set the rest aside, but
        for what it lists."""
        if self.awaited is None:
            return None
        divided = self.awaited.divided_for(table, former_count, self._log)
        parents = {child % former_count for child in divided.replicas} if divided is not None else set[int]()
        here = {p % former_count for p in range(table.partition_count) if self._this in table.replicas(p)}
        self.set_aside(self.awaited.replicas.keys() - parents - here, former_count)
        for partition in parents:
            del self._replicas[partition]
        # What the table lists is divided with the replicas that follow owners: it is no more as it was read.
        self.awaited = self.awaited.only(parents)
        return divided
