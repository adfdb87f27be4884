"""Split one replica into the replicas of its child partitions, some entries in a turn.

A replica that is being split takes no writes, and a child is not read before it is complete. A child has its epoch,
leader and seq from the beginning, so decisions that depend on them need not wait. A child that is dropped meanwhile gets
no more entries. If the partitions are split once more before this is done, the split begins anew with the smaller
children: the original replica is kept until the end.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import TypeVar

from phalanx.codec.hashing import children_of, partitions_of
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.hidden_maps import HiddenKind, is_hidden, kind_of
from phalanx.common.ids import divided_leader
from phalanx.grid.replica.access_statistics import AccessStatistics
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replica.staged_steps import divided_page

ENTRIES_AT_ONCE = 4_000
"""Entries sorted in one turn: some milliseconds."""
BATCH = 200
"""Keys sorted before the cost is counted: keys can be long."""
ENTRY_BYTES = 256
"""So many bytes of keys cost as much as one more entry."""

Steps = Generator[int, None, None]
"""Yields about how many entries it has sorted since its last yield."""

T = TypeVar("T")


class Division:
    """The split of one replica, under way."""

    __slots__ = ("_at_once", "_steps", "children", "replica")

    def __init__(
        self, replica: Replica, partition: int, former_count: int, partition_count: int, at_once: int = ENTRIES_AT_ONCE
    ) -> None:
        self.replica = replica
        """The replica that is split; it takes no writes."""
        self.children = {
            child: _child_of(replica, former_count) for child in children_of(partition, partition_count, former_count)
        }
        """Partition to the child replica, of the children still needed. Their entries are complete only at the end."""
        self._at_once = at_once
        self._steps = _sort(replica, self.children, partition_count, at_once)

    def __repr__(self) -> str:
        return f"Division({self.replica} into {list(self.children)})"

    def go_on(self) -> bool:
        """Sort some more entries. Return True when the children are complete."""
        left = self._at_once
        while left > 0:
            done = next(self._steps, None)
            if done is None:
                return True
            left -= done
        return False

    def divide_further(self, former_count: int, partition_count: int, wanted: Collection[int]) -> list[Replica]:
        """Split each child as well, and begin anew; only the children of those in `wanted` are needed.

        Returns the former children, for the caller to free.
        """
        before, self.children = self.children, {}
        for number, child in before.items():
            if number in wanted:
                for each in children_of(number, partition_count, former_count):
                    self.children[each] = _child_of(child, former_count)
        self._steps = _sort(self.replica, self.children, partition_count, self._at_once)
        return list(before.values())


def _child_of(replica: Replica, former_count: int) -> Replica:
    """Make a child replica without entries, with all that it has from the beginning.

    Its leader contains the old partition count, so that a late write of the old epoch fits no child.
    """
    child = Replica(replica.epoch, replica.seq, divided_leader(replica.leader, former_count))
    child.ended, child.purged_to, child.lineage = replica.ended, replica.purged_to, replica.lineage
    child.cleared = dict(replica.cleared)
    for name, journal in replica.journals.items():
        # The events of all children share one sequence of numbers, so the journal of a child begins anew.
        child.keep_journal(
            name, MapJournal(journal.capacity, journal.max_bytes, replica.seq, child.epoch, child.leader)
        )
    return child


def _sort(replica: Replica, children: dict[int, Replica], partition_count: int, at_once: int) -> Steps:
    """Fill the children that are still in `children`, which can lose some meanwhile."""
    batch = min(BATCH, at_once)
    for caller in replica.deduplication.callers:
        records = replica.deduplication.export([caller])
        for each in children.values():
            each.deduplication.adopt(records)
        yield len(children) * (1 + len(records[0].numbers))
    staged = replica.staged.export()
    for each in children.values():
        each.staged = Staged(staged)
    for name, store in replica.maps.items():
        if is_hidden(name) and kind_of(name) is HiddenKind.ATTEMPT:
            yield from _sort_pages(name, store, children, partition_count, batch)
        else:
            yield from _sort_entries(name, store, children, partition_count, batch)


def _sort_pages(name: str, store: MapStore, children: dict[int, Replica], partition_count: int, batch: int) -> Steps:
    """Split each page of rows: a child gets a page of the same number if any of the rows is for it."""
    for key, page in store.entries.items():
        parts = yield from divided_page(page, partition_count, batch)
        for child, rows in parts.items():
            if child in children:
                children[child].map(name).put(key, rows, 0, 0)


def _sort_entries(name: str, store: MapStore, children: dict[int, Replica], partition_count: int, batch: int) -> Steps:
    stores = {number: child.map(name) for number, child in children.items()}
    for own in stores.values():
        own.cleared_at, own.purged_to, own.evicted_to = store.cleared_at, store.purged_to, store.evicted_to
        own.idle_since = store.idle_since
    yield len(stores)
    for entries in _batches(store.entries.items(), batch):
        held = {number: stores[number] for number in children}
        for (key, stored), child in _placed(entries, partition_count):
            if (into := held.get(child)) is not None:
                into.entries[key] = stored
                into.held_bytes += len(key) + len(stored) - STAMP_BYTES
        yield _cost(entries)
    for ends in _batches(store.expires_at.items(), batch):
        for (key, at), child in _placed(ends, partition_count):
            if child in children:
                stores[child].expire(key, at, is_covering=key in store.covering, idle=store.idle.get(key))
        yield _cost(ends)
    for removals in _batches(store.tombstones.items(), batch):
        for (key, stamp), child in _placed(removals, partition_count):
            if child in children:
                stores[child].tombstones[key] = stamp
        yield _cost(removals)
    if (accesses := store.accesses) is not None:
        for own in stores.values():
            own.accesses = AccessStatistics(accesses.recorded)
        for recorded in ("hits", "read_at"):
            for some in _batches(getattr(accesses, recorded).items(), batch):
                for (key, number), child in _placed(some, partition_count):
                    if child in children:
                        getattr(stores[child].accesses, recorded)[key] = number
                yield _cost(some)
    for number, each in children.items():
        stores[number].look_again()
        each.drop_if_empty(name, stores[number])


def _batches(of: Collection[tuple[bytes, T]], batch: int) -> Iterator[list[tuple[bytes, T]]]:
    """Yield the items in lists of at most `batch`."""
    left = iter(of)
    while some := list(islice(left, batch)):
        yield some


def _placed(some: list[tuple[bytes, T]], partition_count: int) -> Iterator[tuple[tuple[bytes, T], int]]:
    """Yield each item with the child partition of its key."""
    return zip(some, partitions_of([key for key, _ in some], partition_count), strict=True)


def _cost(some: list[tuple[bytes, T]]) -> int:
    return len(some) + sum([len(key) for key, _ in some]) // ENTRY_BYTES
