"""Sorting one replica into the replicas of its children, some entries in a turn.

Nobody writes to a replica that is being divided, and nobody reads a child before it is whole. What tells whom a child has
followed, and how far (epoch, ruler, seq), it has from the beginning, so that whatever is decided by that can be decided
meanwhile. A child that is not wanted any more is left out from then on. When partitions are divided once more before this is
done, it begins anew with the smaller children: the replica is kept as it is until the end.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from itertools import islice
from typing import TypeVar

from phalanx.codec.hashing import children_of, partitions_of
from phalanx.common.hidden_maps import HiddenKind, is_hidden, kind_of
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replica.staged_steps import divided_page
from phalanx.grid.replica.store import MapStore, Replica

ENTRIES_AT_ONCE = 4_000
"""In one turn: some milliseconds."""
BATCH = 200
"""Keys that are looked at without a look at how much it was: they may be long."""
ENTRY_BYTES = 256
"""So many bytes of keys count as one more entry."""

Steps = Generator[int, None, None]
"""Yields about how many entries it has sorted since it last did."""

T = TypeVar("T")


class Division:
    """One replica on its way to be divided."""

    __slots__ = ("_at_once", "_steps", "children", "replica")

    def __init__(
        self, replica: Replica, partition: int, of: int, partition_count: int, at_once: int = ENTRIES_AT_ONCE
    ) -> None:
        self.replica = replica
        """What is divided; nobody writes to it."""
        self.children = {child: _child_of(replica, of) for child in children_of(partition, partition_count, of)}
        """By number, those that are wanted. Their entries are not all there before the end."""
        self._at_once = at_once
        self._steps = _sort(replica, self.children, partition_count, at_once)

    def __repr__(self) -> str:
        return f"Division({self.replica} into {list(self.children)})"

    def go_on(self) -> bool:
        """Sort some more entries; True when the children are whole."""
        left = self._at_once
        while left > 0:
            done = next(self._steps, None)
            if done is None:
                return True
            left -= done
        return False

    def divide_further(self, of: int, partition_count: int, wanted: Collection[int]) -> list[Replica]:
        """Each child is divided, too; of those in `wanted` the children are wanted. Returns what is to be taken apart."""
        before, self.children = self.children, {}
        for number, child in before.items():
            if number in wanted:
                for each in children_of(number, partition_count, of):
                    self.children[each] = _child_of(child, of)
        self._steps = _sort(self.replica, self.children, partition_count, self._at_once)
        return list(before.values())


def divide(replica: Replica, partition: int, of: int, partition_count: int) -> dict[int, Replica]:
    """The children's replicas, by number, in one go. Equal replicas have equal children."""
    division = Division(replica, partition, of, partition_count)
    while not division.go_on():
        pass
    return division.children


def _child_of(replica: Replica, of: int) -> Replica:
    """Make a child replica with all that it has from the beginning.

    Its ruler names the old count as well: a late write of the old rule belongs to no child.
    """
    child = Replica(replica.epoch, replica.seq, f"{replica.ruler} of {of}" if replica.ruler else "")
    child.ended, child.purged_to = replica.ended, replica.purged_to
    for name, journal in replica.journals.items():
        # The events of one child are among those of all, and their numbers are theirs together: it begins anew.
        child.keep_journal(name, MapJournal(journal.capacity, journal.max_bytes, replica.seq, child.epoch, child.ruler))
    return child


def _sort(replica: Replica, children: dict[int, Replica], partition_count: int, at_once: int) -> Steps:
    """Fill the children that are wanted at each moment."""
    batch = min(BATCH, at_once)
    for caller in replica.deduplication.callers:
        told = replica.deduplication.export([caller])
        for each in children.values():
            each.deduplication.adopt(told)
        yield len(children) * (1 + len(told[0].numbers))
    staged = replica.staged.export()
    for each in children.values():
        each.staged = Staged(staged)
    for name, read in replica.readings.of.items():
        for some in _batches(read.items(), batch):
            for (key, reading), child in _placed(some, partition_count):
                if child in children:
                    children[child].readings.of.setdefault(name, {})[key] = reading
            yield _cost(some)
    for name, store in replica.maps.items():
        if is_hidden(name) and kind_of(name) is HiddenKind.ATTEMPT:
            yield from _sort_pages(name, store, children, partition_count, batch)
        else:
            yield from _sort_entries(name, store, children, partition_count, batch)


def _sort_pages(name: str, store: MapStore, children: dict[int, Replica], partition_count: int, batch: int) -> Steps:
    """Divide the rows of each page: to each child goes a page of the same number, if any row is for it."""
    for key, page in store.entries.items():
        parts = yield from divided_page(page, partition_count, batch)
        for child, rows in parts.items():
            if child in children:
                children[child].map(name).entries[key] = rows


def _sort_entries(name: str, store: MapStore, children: dict[int, Replica], partition_count: int, batch: int) -> Steps:
    stores = {number: child.map(name) for number, child in children.items()}
    for own in stores.values():
        own.cleared_at, own.purged_to, own.evicted_to = store.cleared_at, store.purged_to, store.evicted_to
    yield len(stores)
    for entries in _batches(store.entries.items(), batch):
        held = {number: stores[number].entries for number in children}
        for (key, stored), child in _placed(entries, partition_count):
            if (into := held.get(child)) is not None:
                into[key] = stored
        yield _cost(entries)
    for ends in _batches(store.expires_at.items(), batch):
        for (key, at), child in _placed(ends, partition_count):
            if child in children:
                stores[child].expire(key, at, is_covering=key in store.covering)
        yield _cost(ends)
    for removals in _batches(store.tombstones.items(), batch):
        for (key, stamp), child in _placed(removals, partition_count):
            if child in children:
                stores[child].tombstones[key] = stamp
        yield _cost(removals)
    for number, each in children.items():
        each.drop_if_empty(name, stores[number])


def _batches(of: Collection[tuple[bytes, T]], batch: int) -> Iterator[list[tuple[bytes, T]]]:
    """Keys and what belongs to them, some at a time."""
    left = iter(of)
    while some := list(islice(left, batch)):
        yield some


def _placed(some: list[tuple[bytes, T]], partition_count: int) -> Iterator[tuple[tuple[bytes, T], int]]:
    """Each with the child to which its key belongs."""
    return zip(some, partitions_of([key for key, _ in some], partition_count), strict=True)


def _cost(some: list[tuple[bytes, T]]) -> int:
    return len(some) + sum([len(key) for key, _ in some]) // ENTRY_BYTES
