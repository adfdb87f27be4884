"""In which order a bounded map evicts its entries: exactly, found a few thousand in a turn.

Each entry has a rank, by the policy of its map; the entry with the least rank is evicted first.

    oldest             the stamp of its write
    lru                the stamp of its write, or the time of its last read if that is later
    lfu                how often it was read; of equal ones the stamp of its write
    soonest-to-expire  `MapStore` finds these in its heap of expiries; those that never expire follow by `oldest`

A read costs one number (`access_statistics`), and moves nothing. All entries are visited once and sorted in runs. Each run
keeps about the quarter with the least ranks; the runs are merged lazily. This stays exact although entries are used
meanwhile, because a rank only grows:

* an entry that was not kept has a rank above the greatest kept one (`_until`), and goes on having one;
* an entry that was kept, and has a greater rank by now, is put back (`_returned`) if its rank is still up to `_until`;
* a new entry has a greater stamp than all ranks by write or read. By `lfu` it was never read, so it is put among those to
  return, too.

By `lfu` a new entry would be the next to go, before anybody can have read it. So the newest entries, one of `WINDOW_OF`,
are not judged yet. And entries that were read often, long ago, would stay for ever: when they have been read
`HALVED_ABOVE` times on average, the next ranking halves all these numbers.

A merge can bring ranks that are less; it ends the ranking.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from phalanx.common.clock import COUNTER_BITS, STAMP_BYTES, stamp_of
from phalanx.common.map_settings import EvictionPolicy
from phalanx.grid.replica.access_statistics import AccessStatistics

RANKED_AT_ONCE = 2_048
"""Entries ranked in one turn; a map with no more of them is ranked in a single turn."""
RANKED_OF = 4
"""A ranking keeps one entry in so many: enough that rankings are rare."""
RANKED_AT_LEAST = 64
"""A ranking of a small map keeps at least so many entries."""
SKIPPED_AT_ONCE = 1_000
"""Entries that were used or removed since the ranking, and that one search passes over at most."""
WINDOW_OF, WINDOW = 100, 1_000
"""By `lfu` one of so many entries is too new to be judged, at least one and at most so many."""
HALVED_ABOVE = 50
"""With more reads for each entry than that, the next ranking halves them."""
STAMP_BITS = 8 * STAMP_BYTES

Ranked = tuple[int, bytes]
"""Rank and key."""


class RankedEntries(Protocol):
    """What is looked at of a store (`MapStore`)."""

    entries: dict[bytes, bytes]
    accesses: AccessStatistics | None


def _by_write(store: RankedEntries, key: bytes, stored: bytes) -> int:
    return stamp_of(stored)


def _by_use(store: RankedEntries, key: bytes, stored: bytes) -> int:
    stamp = stamp_of(stored)
    if store.accesses is not None and (read_at := store.accesses.read_at.get(key)) is not None:
        return max(stamp, read_at << COUNTER_BITS)
    return stamp


def _by_frequency(store: RankedEntries, key: bytes, stored: bytes) -> int:
    hits = store.accesses.hits.get(key, 0) if store.accesses is not None else 0
    return hits << STAMP_BITS | stamp_of(stored)


RANKS: dict[str, Callable[[RankedEntries, bytes, bytes], int]] = {
    EvictionPolicy.OLDEST: _by_write,
    EvictionPolicy.LRU: _by_use,
    EvictionPolicy.LFU: _by_frequency,
    EvictionPolicy.SOONEST: _by_write,
}
"""Policy to the rank of an entry."""


class EvictionOrder:
    """The ranking of the entries of one map, and the entries with the least ranks once it is ready."""

    __slots__ = (
        "_added", "_began_at", "_first", "_halves", "_hits", "_left", "_ranked", "_returned", "_runs", "_until", "_visited", "_window",
        "policy",
    )  # fmt: skip

    def __init__(self, store: RankedEntries, policy: str, began_at: int, before: EvictionOrder | None = None) -> None:
        """`began_at`: no entry has a greater stamp. `before`: the order that this one follows."""
        self.policy = policy
        self._began_at = began_at
        self._left = list(store.entries)
        """Keys to visit, from the end on."""
        self._window: frozenset[bytes] | set[bytes] = frozenset()
        self._added: dict[bytes, None] | None = None
        """By `lfu`: keys that are not ranked, as they came later or are too new to be judged, in the order in which they came."""
        if policy == EvictionPolicy.LFU:
            newest = list(islice(reversed(self._left), _window_of(len(self._left))))
            self._window = set(newest)
            self._added = dict.fromkeys(reversed(newest))
        self._hits = 0
        self._visited = 0
        """How many reads the entries visited have had, and how many these are."""
        self._halves = before is not None and before.has_many_hits and before.policy == policy
        self._runs: list[list[Ranked]] = []
        self._until = 0
        """The greatest rank of the entries that were kept."""
        self._ranked: Iterator[Ranked] = iter(())
        self._first: Ranked | None = None
        """The next of `_ranked`; None: there is none."""
        self._returned: list[Ranked] = []
        """Heap of entries that are not among the ranked, or were used since."""

    @property
    def is_ready(self) -> bool:
        return not self._left

    @property
    def is_used_up(self) -> bool:
        """Whether all that it has ranked was taken: a new ranking is due."""
        return self._first is None and not self._returned and not self._left

    @property
    def has_many_hits(self) -> bool:
        """Whether entries were read so often, on average, that these numbers are to be halved."""
        return self._hits > HALVED_ABOVE * self._visited

    def on_new_key(self, key: bytes) -> None:
        """Note that an entry with a new key is about to be stored."""
        if self._added is not None:
            self._added[key] = None

    def on_removed(self, key: bytes) -> None:
        """Note that an entry is gone."""
        if self._added is not None:
            self._added.pop(key, None)

    def rank_some(self, store: RankedEntries) -> None:
        """Rank the next `RANKED_AT_ONCE` entries."""
        some, rank, entries = self._left[-RANKED_AT_ONCE:], RANKS[self.policy], store.entries
        del self._left[-RANKED_AT_ONCE:]
        if self._halves and store.accesses is not None:
            store.accesses.halve_hits(some)
        run = [
            (rank(store, key, stored), key)
            for key in some
            if (stored := entries.get(key)) is not None and key not in self._window
        ]
        self._hits += sum([ranked >> STAMP_BITS for ranked, _ in run])
        self._visited += len(run)
        self._runs.append(sorted(run))
        if not self._left:
            self._begin()

    def _begin(self) -> None:
        """Merge the runs: all entries are ranked."""
        runs = [run for run in self._runs if run]
        self._runs = []
        if runs:
            quarters = sorted(run[min(max(len(run) // RANKED_OF, RANKED_AT_LEAST), len(run) - 1)][0] for run in runs)
            self._until = quarters[len(quarters) // 2]
        if self._added is None:
            self._until = min(self._until, self._began_at)
        for run in runs:
            del run[bisect_right(run, self._until, key=_rank) :]
        self._ranked = heapq.merge(*runs) if len(runs) > 1 else iter(runs[0] if runs else ())
        self._first = next(self._ranked, None)

    def take(self, store: RankedEntries, entries: int, size: int, limit: int) -> list[bytes]:
        """Return the keys of the entries with the least ranks, in their order, which must be removed then.

        As many as have `entries` entries and `size` bytes together, at most `limit`; and less where many were used since
        they were ranked, or all that was ranked is used up.
        """
        found: dict[bytes, None] = {}
        rank, left = RANKS[self.policy], limit + SKIPPED_AT_ONCE
        self._judge_added(store)
        while (entries > 0 or size > 0) and len(found) < limit and left > 0:
            left -= 1
            ranked = self._pop()
            if ranked is None:
                break
            key = ranked[1]
            stored = store.entries.get(key)
            if stored is None or key in found or (self._added is not None and key in self._added):
                continue  # Gone, here twice, or removed and stored anew: then it is judged when it is not among the newest.
            now = rank(store, key, stored)
            if now == ranked[0]:
                found[key] = None
                entries, size = entries - 1, size - len(key) - len(stored) + STAMP_BYTES
            elif now <= self._until:
                heapq.heappush(self._returned, (now, key))
        return list(found)

    def _judge_added(self, store: RankedEntries) -> None:
        """Judge the added entries that are not among the newest any more."""
        added = self._added
        if added:
            over = len(added) - _window_of(len(store.entries))
            for key in list(islice(added, over)) if over > 0 else ():
                del added[key]
                if (stored := store.entries.get(key)) is not None:
                    ranked = _by_frequency(store, key, stored)
                    if ranked <= self._until:
                        heapq.heappush(self._returned, (ranked, key))

    def _pop(self) -> Ranked | None:
        """Take the entry with the least rank, by what it was when it was looked at."""
        first = self._first
        if self._returned and (first is None or self._returned[0] < first):
            return heapq.heappop(self._returned)
        if first is not None:
            self._first = next(self._ranked, None)
        return first


def _window_of(entries: int) -> int:
    return min(max(entries // WINDOW_OF, 1), WINDOW)


def _rank(ranked: Ranked) -> int:
    return ranked[0]
