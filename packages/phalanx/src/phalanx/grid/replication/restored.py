"""What a process has read from its folder: the replicas of the incarnation that has written it, until a cluster takes them up."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import msgspec

from phalanx.common.clock import COUNTER_BITS, ClockStart
from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.quorum import VoterHistory, after_master_loss
from phalanx.common.table import PartitionTable, unassigned_table
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.replica_split import Division
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import KnownCluster, ReplicaDropped, ReplicasDivided, ReplicasKept, with_incarnation
from phalanx.wire.table_messages import OwnerEpoch, StoredSide


class SetAside(NamedTuple):
    """Replicas as they were read, where the cluster goes on with others."""

    former: MemberId
    """The incarnation that has written them."""
    table: PartitionTable
    """Its last table; one without owners where that is unknown."""
    replicas: dict[int, Replica]
    ended: int
    """What the grid's clock showed when the folder was written last."""


class RestoredReplicas(NamedTuple):
    """Replicas as they were read, and whose they are."""

    replicas: dict[int, Replica]
    side: StoredSide
    clock: ClockStart
    """How the clock of the grid goes on."""
    partition_count: int = 0
    """Of how many partitions the replicas are; 0: unknown."""
    later: frozenset[int] = frozenset()
    """Partitions of which the incarnation that has the table waits with another replica for a merge: these are of a later one."""

    def configure(self, config: NodeConfig) -> NodeConfig:
        """Return the settings with which these replicas are used: they can have been divided since the process began."""
        return msgspec.structs.replace(config, partition_count=self.partition_count) if self.partition_count else config

    def held_by(self, member: MemberId) -> RestoredReplicas:
        """Return these as those of an incarnation, too, that has had no table with owners: rows can name it all the same.

        1. A cluster comes back, and master A gives B's incarnation what B has in its folder. 2. A ends before B hears of it, and comes
        back with that table in its folder.
        """
        formers = with_incarnation(self.side.formers, member)
        return self._replace(side=msgspec.structs.replace(self.side, formers=formers))

    def awaited_by(self, table: PartitionTable) -> RestoredReplicas | None:
        """Return what dormant partitions of a table wait for, or can yet; None: nothing.

        1. A comes back, and is in the list before the master takes its former incarnation out of the rows. 2. A gets that table. 3.
        The master does so, and what only A has is dormant.
        """
        awaited = self._awaited_in(table)
        if not awaited or self.partition_count not in (0, table.partition_count):
            return None
        return self.only(awaited)._replace(partition_count=table.partition_count)

    def only(self, partitions: Set[int]) -> RestoredReplicas:
        """Return those of some partitions."""
        replicas = {partition: replica for partition, replica in self.replicas.items() if partition in partitions}
        positions = tuple(each for each in self.side.positions if each.partition in replicas)
        side = msgspec.structs.replace(self.side, positions=positions)
        return self._replace(replicas=replicas, side=side)

    def without(self, partitions: Set[int], of: int, log: ReplicaLog) -> tuple[RestoredReplicas, list[SetAside]]:
        """Return what is left without some replicas, and these, which are set aside. `of`: how many partitions the cluster has.

        1. A asks B to follow it, and writes. 2. B is killed before it has its first table, and comes back: its folder does not say of how
        many partitions these replicas are.
        """
        for partition in sorted(partition for partition in partitions if not self.replicas[partition].has_data):
            log.add(ReplicaDropped(partition))
        aside = [each for each in self._by_former(partitions, of) if each.replicas]
        for each in aside:
            log.add(ReplicasKept(each.former, each.ended, each.table, tuple(each.replicas), is_as_read=True))
        return self.only(self.replicas.keys() - partitions), aside

    def _by_former(self, partitions: Set[int], of: int) -> tuple[SetAside, SetAside]:
        """Return those of some partitions in which something is stored, by the incarnations that have written them.

        1. B's replica of p is set aside, because it has what the cluster has not. 2. B gets a copy of p, and is killed before it has a
        table. 3. B comes back: both replicas of p are in its folder, and neither is instead of the other.
        """
        held = {p: self.replicas[p] for p in sorted(partitions) if self.replicas[p].has_data}
        table = self.side.table or unassigned_table(self.partition_count or of)
        formers = self.side.formers or (self.side.history.voter,)
        earlier = {partition: replica for partition, replica in held.items() if partition not in self.later}
        later = {partition: replica for partition, replica in held.items() if partition in self.later}
        # Who else held them then is unknown.
        without_rows = msgspec.structs.replace(table, rows=((),) * table.partition_count)
        ended = self.clock.last_stamp
        return SetAside(formers[0], table, earlier, ended), SetAside(formers[-1], without_rows, later, ended)

    def divided_for(self, table: PartitionTable, former_count: int, log: ReplicaLog) -> RestoredReplicas | None:
        """Return the parts of what a table waits for that has more partitions, divided at once; None: it waits for nothing.

        1. B crashes. 2. The partitions are divided before it is missed. 3. B is taken out of the rows, and the parts are dormant. 4. B
        comes back, and has heard of no division.
        """
        parents = sorted({child % former_count for child in self._awaited_in(table)} & self.replicas.keys())
        if not parents:
            return None
        parts: dict[int, Replica] = {}
        for partition in parents:
            division = Division(self.replicas[partition], partition, former_count, table.partition_count)
            while not division.go_on():
                pass
            log.add(ReplicasDivided(partition, former_count, table.partition_count))
            parts |= division.children
        known = self.side.table
        if known is not None:
            known = msgspec.structs.replace(known, dormancy=()).with_partition_count(table.partition_count)
        side = msgspec.structs.replace(self.side, table=known, positions=positions_of(parts))
        later = frozenset(partition for partition in parts if partition % former_count in self.later)
        return RestoredReplicas(parts, side, self.clock, table.partition_count, later)

    def _awaited_in(self, table: PartitionTable) -> Set[int]:
        formers = frozenset(self.side.formers)
        named = [p for p in range(table.partition_count) if not formers.isdisjoint(table.replicas(p))]
        return table.dormant.keys() | named


def side_of(known: KnownCluster, replicas: dict[int, Replica], start: int, reserved: int) -> StoredSide | None:
    """Return what a log tells of these replicas, which it has; None: its member was in no cluster.

    `known`: what it says of the cluster. `start`: that of the present process. `reserved`: the greatest stamp that can have been given.
    """
    if known.view is None or known.footing is None:
        return None
    footing = msgspec.structs.replace(
        after_master_loss(known.footing, known.view),
        left=known.footing.left,
        has_table=known.table is not None or (known.footing.has_table and not known.has_left),
    )
    if known.has_left:
        # What was open when it left has been decided without it, by those that got its vote, and those that it counted as the master.
        footing = msgspec.structs.replace(footing, pending=(), left=())
    return StoredSide(
        known.members, VoterHistory(known.voter, footing), known.table, positions_of(replicas), start, reserved >> COUNTER_BITS,
        known.had_table, known.lacks_majority, known.incarnations, tuple(MemberId(each.member) for each in known.away),
        disk_failed=known.disk_failed,
    )  # fmt: skip


def positions_of(replicas: dict[int, Replica]) -> tuple[OwnerEpoch, ...]:
    """Return the position of each replica."""
    return tuple(
        OwnerEpoch(partition, replica.epoch, replica.leader, replica.seq, replica.lineage)
        for partition, replica in sorted(replicas.items())
    )
