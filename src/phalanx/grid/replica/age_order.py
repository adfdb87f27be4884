"""The oldest entries of a large map, found a few thousand in a turn, for a bounded map that evicts them.

All entries are visited once and sorted by stamp in runs. Each run keeps the entries that belong to about the oldest
quarter of the map; the runs are merged lazily. A write during the ranking has a newer stamp than every entry that was
there at the beginning, so ranked entries stay older than new ones. The user of the order skips entries that were
overwritten since.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from phalanx.common.clock import STAMP_BYTES

RANKED_AT_ONCE = 4_096
"""Entries ranked in one turn; a map with no more of them is ranked in a single turn."""
RANKED_OF = 4
"""A ranking remembers one entry in so many: enough that rankings are rare."""

Aged = tuple[bytes, bytes]
"""Stamp and key."""


class AgeOrder:
    """A ranking that is under way."""

    __slots__ = ("_began_at", "_left", "_runs")

    def __init__(self, entries: Mapping[bytes, bytes], began_at: bytes) -> None:
        """`began_at`: a stamp greater than those of all entries."""
        self._left = list(entries)
        self._began_at = began_at
        self._runs: list[list[Aged]] = []

    @property
    def is_ready(self) -> bool:
        return not self._left

    def rank_some(self, entries: Mapping[bytes, bytes]) -> None:
        """Rank the next `RANKED_AT_ONCE` entries."""
        some = self._left[-RANKED_AT_ONCE:]
        del self._left[-RANKED_AT_ONCE:]
        self._runs.append(sorted([(entries[key][:STAMP_BYTES], key) for key in some if key in entries]))

    def oldest_first(self) -> Iterator[Aged]:
        """Return the oldest entries, with the stamps that they had when they were visited; perhaps none."""
        runs = [run for run in self._runs if run]
        quarters = sorted(run[len(run) // RANKED_OF][0] for run in runs)
        until = min(quarters[len(quarters) // 2], self._began_at) if quarters else b""
        for run in runs:
            del run[bisect_right(run, until, key=_stamp) :]
        return heapq.merge(*runs)


def _stamp(aged: Aged) -> bytes:
    return aged[0]
