"""What the departure of members does to the partition table: pure rules, no state."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Replicas


class Repair(NamedTuple):
    """What became of a table when members left."""

    table: PartitionTable
    changed: list[int]
    """Partitions that lost a replica."""
    promoted: list[int]
    """Partitions whose first surviving backup is the owner now."""
    lost: list[int]
    """Partitions of which no replica survived."""


def repair(table: PartitionTable, live: Collection[MemberId]) -> Repair:
    """Take members that left out of the table; the hottest surviving replica of each partition becomes its owner.

    Colder replicas move up: every replica holds the whole partition, so no data moves. Where nobody survives, the row
    is empty and the master assigns a new owner (reference 004: the three cases in which the table changes).
    """
    alive = frozenset(live)
    changes: dict[int, Replicas] = {}
    promoted, lost = [], []
    for partition, row in enumerate(table.rows):
        if all(table.members[index] in alive for index in row):
            continue
        replicas = table.replicas(partition)
        survivors = tuple(member for member in replicas if member in alive)
        changes[partition] = survivors
        if not survivors:
            lost.append(partition)
        elif survivors[0] != replicas[0]:
            promoted.append(partition)
    return Repair(table.with_changes(changes) if changes else table, list(changes), promoted, lost)


def newest(tables: Iterable[PartitionTable]) -> PartitionTable:
    """The most recent of the tables that members returned to a new master."""
    return max(tables, key=lambda table: table.version)
