"""What a process has read from its folder: the replicas of the incarnation that has written it, until a cluster takes them up."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.grid.replica.replica import Replica
from phalanx.wire.table_messages import OwnerEpoch, StoredSide


class RestoredReplicas(NamedTuple):
    """Replicas as they were read, and whose they are."""

    replicas: dict[int, Replica]
    side: StoredSide
    last_stamp: int
    """What the grid's clock showed when the folder was written last: later stamps are greater."""


def positions_of(replicas: dict[int, Replica]) -> tuple[OwnerEpoch, ...]:
    """Return the position of each replica."""
    return tuple(
        OwnerEpoch(partition, replica.epoch, replica.leader, replica.seq)
        for partition, replica in sorted(replicas.items())
    )
