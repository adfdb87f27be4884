"""How many bytes the replicas at a member hold, counted some maps and entries at a time.

A put must not pay for this: so nothing is counted where entries change. A pass goes over all maps of all replicas, and
counts each map whose number of entries has changed by more than an eighth, or that was not counted for `RECOUNT_PASSES`
passes; of the others the last sum is taken, in proportion to the entries. So with maps at rest the size is exact after that
many passes, and while they change it follows the number of entries. Of a map with more than `COUNTED_AT_MOST` entries in one partition so many are counted, and stand for
all.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import NamedTuple

from phalanx.codec.rows import PREFIX_BYTES, row_count
from phalanx.common.hidden_maps import HiddenKind, is_hidden, kind_of
from phalanx.common.memory import ENTRY_BYTES, TOMBSTONE_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica

COUNTED_AT_MOST = 20_000
"""The most entries of one map that are counted."""
MAP_COST = 8
"""A map counts as so many entries of a turn, even if it is empty."""
RECOUNT_PASSES = 16


class Size(NamedTuple):
    """The size of data in bytes."""

    held: int = 0
    """With what entries, tombstones and events of journals cost besides their bytes."""
    reserved: int = 0
    """What rows that are staged will cost besides, when they are entries."""


class _Counted(NamedTuple):
    entries: int
    size: Size
    in_pass: int


class DataSize:
    """The size of all replicas, from the last pass that is complete."""

    def __init__(self, replicas: Callable[[], Iterable[Replica]]) -> None:
        self._replicas = replicas
        self.size = Size()
        self.passes = 0
        """Complete passes."""
        self._known: dict[tuple[int, str], _Counted] = {}
        """Replica and map to what was counted of it."""
        self._pass: Generator[int, None, None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Return whether a pass has begun and is not complete."""
        return self._pass is not None

    def go_on(self, most: int) -> bool:
        """Count about `most` entries. Return whether a pass is complete now."""
        if self._pass is None:
            self._pass = self._go_over_all()
        try:
            while most > 0:
                most -= next(self._pass)
        except StopIteration:
            self._pass = None
            return True
        return False

    def _go_over_all(self) -> Generator[int, None, None]:
        held = reserved = 0
        known: dict[tuple[int, str], _Counted] = {}
        for replica in list(self._replicas()):
            for name, store in list(replica.maps.items()):
                place = id(replica), name
                before = self._known.get(place)
                many, cost = len(store.entries), MAP_COST
                if (
                    before is None
                    or self.passes - before.in_pass >= RECOUNT_PASSES
                    or abs(many - before.entries) * 8 > before.entries
                ):
                    before = _Counted(many, _size_of(name, store), self.passes)
                    cost += min(many, COUNTED_AT_MOST)
                known[place] = before
                each, share = before.size, max(before.entries, 1)
                held += each.held * many // share + len(store.tombstones) * TOMBSTONE_BYTES
                reserved += each.reserved * many // share
                yield cost
            held += sum(journal.size for journal in replica.journals.values())
        self._known, self.size = known, Size(held, reserved)
        self.passes += 1


def _size_of(name: str, store: MapStore) -> Size:
    entries, many = store.entries, len(store.entries)
    if not many:
        return Size()
    keys, values = islice(entries, COUNTED_AT_MOST), islice(entries.values(), COUNTED_AT_MOST)
    held, counted = sum(map(len, keys)) + sum(map(len, values)), min(many, COUNTED_AT_MOST)
    rows = 0
    if is_hidden(name) and kind_of(name) is HiddenKind.ATTEMPT:
        rows = sum(row_count(page, PREFIX_BYTES) for page in islice(entries.values(), COUNTED_AT_MOST))
    return Size(held * many // counted + many * ENTRY_BYTES, rows * many // counted * ENTRY_BYTES)
