"""How the partition table changes when members leave: pure rules, no state."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phalanx.common.ids import MemberId
from phalanx.common.table import HOLE, PartitionTable, Slots


class Repair(NamedTuple):
    """The changes to the rows that name members which left."""

    changes: dict[int, Slots]
    """Partition to its replicas without them; empty: no replica survived."""
    promoted: list[int]
    """Partitions whose hottest surviving backup is the owner now."""
    lost: list[int]
    """Partitions of which no replica survived."""
    behind: list[int]
    """Promoted partitions whose new owner can lack acknowledged writes."""


def confirming_index(table: PartitionTable) -> int:
    """Return the index of the last replica that confirms every write of every map."""
    return min(count.synchronous for count in table.maps.backup_counts)


def repair(table: PartitionTable, live: Collection[MemberId], undecided: Collection[int] = ()) -> Repair:
    """Take members that left out of the table (docs/protocol/partition-table.md).

    Their places stay empty until a migration fills them, except the owner's: the hottest surviving replica takes it.
    If no replica survives, the row is empty and the master assigns a new owner. `undecided`: partitions whose row must
    wait until the destination of a migration says whether it has committed.
    """
    alive = frozenset(live)
    is_alive = [member in alive for member in table.members]
    if all(is_alive):
        return Repair({}, [], [], [])  # the usual case, after each migration
    changes: dict[int, Slots] = {}
    promoted, lost, behind = [], [], []
    confirming = confirming_index(table)
    for partition, row in enumerate(table.rows):
        if partition in undecided or all(index == HOLE or is_alive[index] for index in row):
            continue
        slots = [member if member in alive else None for member in table.slots(partition)]
        hottest = next((index for index, member in enumerate(slots) if member is not None), None)
        if hottest is None:
            lost.append(partition)
            slots = []
        elif hottest > 0:
            promoted.append(partition)
            if hottest > confirming:
                behind.append(partition)
            slots[0], slots[hottest] = slots[hottest], None
        changes[partition] = tuple(slots)
    return Repair(changes, promoted, lost, behind)
