"""Dividing partitions while they are used: partition p of N becomes p, p + N, p + 2 N, ... of a multiple of N.

The table says so in one version, and no data is sent for it. Each member divides the replicas that it holds, and owner
and backup get the same children of the same writes:

1. An owner that hears of it confirms no more writes under its old rule, divides, and asks its backups whether they hold
   what it begins each child's rule with. Callers whose writes are open ask again.
2. A backup leaves a replica as it is until its owner asks for a child, or the table tells more of one. Writes of the old
   rule that were on their way come before that question on the same connection: so the backup has them by then.
3. A backup that hears of it later keeps the question until it does: it must not follow a child's rule by a table that
   knows no children. So a new master hears of the division from everybody who has acted upon it.

What is still to be divided at an owner is divided one partition in a turn, those that somebody waits for first: hashing
all keys of a member at once would keep it from everything else for too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from phalanx.common.hidden import Kind, is_hidden, kind_of
from phalanx.common.ids import Target
from phalanx.common.table import PartitionTable
from phalanx.grid.held import HeldRequests, Request
from phalanx.grid.journal import Journal
from phalanx.grid.outcomes import Outcomes
from phalanx.grid.staged import Staged
from phalanx.grid.steps import divided_page
from phalanx.grid.store import MapStore, Replica
from phalanx.partition.hashing import children_of, partitions_of


class Undivided(NamedTuple):
    """A replica of the partition of a smaller count."""

    replica: Replica
    version: int
    """Of all its children in the table that divided them."""


def divide(replica: Replica, partition: int, of: int, partition_count: int) -> dict[int, Replica]:
    """The children's replicas, by number. Equal replicas have equal children.

    Their ruler names the old count as well: a late write of the old rule belongs to none of them.
    """
    children = children_of(partition, partition_count, of)
    ruler = f"{replica.ruler} of {of}" if replica.ruler else ""
    divided = {child: Replica(replica.epoch, replica.seq, ruler) for child in children}
    for each in divided.values():
        each.ended = replica.ended
        each.outcomes = Outcomes(replica.outcomes.export())
        each.purged_to = replica.purged_to
        each.readings = replica.readings.copy()
        for name, journal in replica.journals.items():
            # The events of one child are among those of all, and their numbers are theirs together: it begins anew.
            limits = (journal.capacity, journal.max_bytes)
            each.keep_journal(name, Journal(*limits, replica.seq, each.epoch, each.ruler))
        each.staged = Staged(replica.staged.export())
    for name, store in replica.maps.items():
        if is_hidden(name) and kind_of(name) is Kind.ATTEMPT:
            for key, page in store.entries.items():
                for child, rows in divided_page(page, partition_count).items():
                    divided[child].map(name).entries[key] = rows
            continue
        keys = list(store.entries)
        stores: dict[int, MapStore] = {}
        for key, child in zip(keys, partitions_of(keys, partition_count), strict=True):
            own = stores.get(child)
            if own is None:
                own = stores[child] = divided[child].map(name)
            own.take(key, store)
        keys = list(store.tombstones)
        for key, child in zip(keys, partitions_of(keys, partition_count), strict=True):
            divided[child].map(name).tombstones[key] = store.tombstones[key]
        for each in divided.values():
            if name in each.maps or store.cleared_at or store.evicted_to:
                own = each.map(name)
                own.cleared_at, own.purged_to, own.evicted_to = store.cleared_at, store.purged_to, store.evicted_to
            else:
                each.purged_to = max(each.purged_to, store.purged_to)
    return divided


class UndividedReplicas:
    """Replicas at this member of partitions that the table has divided and this member has not."""

    def __init__(self, replicas: dict[int, Replica]) -> None:
        self._replicas = replicas
        """Where the children go."""
        self._waiting: dict[int, Undivided] = {}
        """By the number that the partition had."""
        self._of = 0
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __repr__(self) -> str:
        return f"UndividedReplicas({list(self._waiting)} of {self._of})"

    def begin(self, held: dict[int, Replica], of: int, table: PartitionTable) -> None:
        """The table has divided what is held here; what it was divided from before is divided now."""
        self._of, self._count = of, table.partition_count
        for partition, replica in held.items():
            self._waiting[partition] = Undivided(replica, table.versions[partition])
        self.follow_table(table)

    def follow_table(self, table: PartitionTable) -> None:
        """Where the table tells more of a child than the division, the children go ways of their own."""
        for partition, undivided in list(self._waiting.items()):
            versions = {table.versions[child] for child in children_of(partition, self._count, self._of)}
            if versions != {undivided.version}:
                self.divide_for(partition)

    def of_old_rule(self, partition: int, epoch: int, ruler: str) -> Replica | None:
        """The replica for which a write of the old rule is, if it is not divided yet."""
        undivided = self._waiting.get(partition)
        if undivided is None or (undivided.replica.epoch, undivided.replica.ruler) != (epoch, ruler):
            return None
        return undivided.replica

    def parent_of(self, partition: int) -> int | None:
        """The partition of the old count from which this one comes, if that is not divided yet."""
        return partition % self._of if self._waiting and partition % self._of in self._waiting else None

    def divide_for(self, partition: int) -> None:
        """Somebody needs the replica of this partition: divide what it comes from."""
        parent = self.parent_of(partition)
        if parent is not None:
            replica = self._waiting.pop(parent).replica
            self._replicas.update(divide(replica, parent, self._of, self._count))

    def divide_all(self) -> None:
        for partition in list(self._waiting):
            self.divide_for(partition)

    def replicas(self) -> Iterable[Replica]:
        return [undivided.replica for undivided in self._waiting.values()]

    def clear(self) -> None:
        self._waiting.clear()


class OwnedLater:
    """Partitions that this member owns by the table, and serves when they are divided; requests wait for that."""

    def __init__(self, take_over: Callable[[int], None], held: HeldRequests) -> None:
        self._take_over = take_over
        self._held = held
        self.partitions: dict[int, None] = {}

    def __repr__(self) -> str:
        return f"OwnedLater({list(self.partitions)})"

    def hold(self, caller: Target, request: Request, partition: int) -> bool:
        """Let a request wait, if its partition is still to be divided."""
        if partition not in self.partitions:
            return False
        self._held.hold(caller, request, partition)
        return True

    def go_on(self, parent_of: Callable[[int], int | None]) -> None:
        """Divide one partition, and serve its children: one that somebody waits for before others."""
        waited_for = (partition for partition in self._held.waiting if partition in self.partitions)
        first = next(waited_for, next(iter(self.partitions)))
        parent = parent_of(first)
        family = [p for p in self.partitions if parent_of(p) == parent] if parent is not None else [first]
        for partition in family:
            self.take(partition)

    def take(self, partition: int) -> None:
        """Serve this one now."""
        del self.partitions[partition]
        self._take_over(partition)
        self._held.release(partition)

    def drop(self, partition: int) -> None:
        """It is served already, or another member owns it by now: what has waited is served, or told so."""
        if partition in self.partitions:
            del self.partitions[partition]
            self._held.release(partition)

    def drop_all(self) -> None:
        for partition in list(self.partitions):
            self.drop(partition)
