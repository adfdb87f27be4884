"""Whole splits of replicas, where a member makes them in turns."""

from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.replica_split import Division


def divide(replica: Replica, partition: int, former_count: int, partition_count: int) -> dict[int, Replica]:
    """The child replicas by partition. Equal replicas have equal children."""
    division = Division(replica, partition, former_count, partition_count)
    while not division.go_on():
        pass
    return division.children
