"""Which owner a follower believes, and which replicas it can hold: rules over one table and one replica."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.replica import Replica


def believes(
    table: PartitionTable | None, replica: Replica | None, sender: MemberId, partition: int, epoch: int
) -> bool:
    """Return whether the sender can be the partition's owner since that epoch.

    If the table is older than the epoch that the replica here follows, the table's owner is deposed and not
    believed.
    """
    followed = replica.epoch if replica is not None else -1
    if table is None:
        return epoch > followed
    known = table.versions[partition]
    return (followed <= known and table.owner(partition) == sender) or epoch > max(followed, known)


def may_hold(table: PartitionTable | None, replica: Replica | None, this: MemberId, partition: int, epoch: int) -> bool:
    """Return whether the table lists this member, or can still list it: it is too old for the epoch, or has a copy
    to commit.
    """
    if table is None or epoch > table.versions[partition] or this in table.replicas(partition):
        return True
    return replica is not None and replica.ordered_for >= table.versions[partition]


def is_older_than_loss(replica: Replica, partition: int, table: PartitionTable, this: MemberId) -> bool:
    """Return whether the partition was lost after this replica's epoch, so that the replica can lack confirmed
    writes.

    An exception is a replica that followed the owner of the new partition for a while: 1. A new master publishes
    the table that it found, then one in which O begins a lost partition anew, with B as its backup. 2. O has both
    tables; B has an older one, follows O and confirms writes. 3. The first table comes to B. It does not know O's
    epoch, so B follows no owner. 4. The second table comes. B has its entries from O, since the loss, and keeps
    them (`Replica.ended`).
    """
    birth = table.births[partition]
    begins_here = table.owner(partition) == this and table.versions[partition] == birth
    return replica.epoch < birth and (replica.ended < birth or begins_here)
