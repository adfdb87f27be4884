"""What a process has read from its folder: the replicas of the incarnation that has written it, until a cluster takes them up."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phalanx.common.table import PartitionTable
from phalanx.grid.replica.replica import Replica
from phalanx.wire.table_messages import OwnerEpoch, StoredSide


class RestoredReplicas(NamedTuple):
    """Replicas as they were read, and whose they are."""

    replicas: dict[int, Replica]
    side: StoredSide
    last_stamp: int
    """What the grid's clock showed when the folder was written last: later stamps are greater."""

    def awaited_by(self, table: PartitionTable) -> RestoredReplicas | None:
        """Return what dormant partitions of a table wait for, or can yet; None: nothing.

        1. A comes back, and is in the list before the master takes its former incarnation out of the rows. 2. A gets that table. 3.
        The master does so, and what only A has is dormant.
        """
        formers = frozenset(self.side.formers)
        named = [p for p in range(table.partition_count) if not formers.isdisjoint(table.replicas(p))]
        awaited = table.dormant.keys() | named
        if not awaited or (self.side.table is not None and self.side.table.partition_count != table.partition_count):
            return None
        replicas = {partition: replica for partition, replica in self.replicas.items() if partition in awaited}
        positions = tuple(each for each in self.side.positions if each.partition in replicas)
        return RestoredReplicas(replicas, msgspec.structs.replace(self.side, positions=positions), self.last_stamp)


def positions_of(replicas: dict[int, Replica]) -> tuple[OwnerEpoch, ...]:
    """Return the position of each replica."""
    return tuple(
        OwnerEpoch(partition, replica.epoch, replica.leader, replica.seq)
        for partition, replica in sorted(replicas.items())
    )
