"""The oldest entries of a large map, ranked some thousand in a turn, for a bounded map that evicts them.

All entries are gone through once, and sorted by their stamps in runs; of each run those are kept that belong to about the
oldest quarter of all, and the runs are merged as they are used. What is written meanwhile has a newer stamp than anything
that was there at the beginning: so what is ranked stays older than what comes, and what was written over is skipped by
whoever uses the order.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Mapping

from phalanx.common.clock import STAMP_BYTES

RANKED_AT_ONCE = 4_096
"""Entries that are ranked in one turn; a map with no more is ranked when its oldest are wanted."""
RANKED_OF = 4
"""One of so many entries is remembered, so that ranking is seldom."""

Aged = tuple[bytes, bytes]
"""Stamp and key."""


class AgeOrder:
    """A ranking that is under way."""

    __slots__ = ("_began_at", "_left", "_runs")

    def __init__(self, entries: Mapping[bytes, bytes], began_at: bytes) -> None:
        """`began_at`: a stamp that is greater than all that are there."""
        self._left = list(entries)
        self._began_at = began_at
        self._runs: list[list[Aged]] = []

    @property
    def is_ready(self) -> bool:
        return not self._left

    def rank_some(self, entries: Mapping[bytes, bytes]) -> None:
        """Go through some more of the entries."""
        some = self._left[-RANKED_AT_ONCE:]
        del self._left[-RANKED_AT_ONCE:]
        self._runs.append(sorted([(entries[key][:STAMP_BYTES], key) for key in some if key in entries]))

    def oldest_first(self) -> Iterator[Aged]:
        """The oldest, by what they were when they were gone through; perhaps none, where all were written over since."""
        runs = [run for run in self._runs if run]
        quarters = sorted(run[len(run) // RANKED_OF][0] for run in runs)
        until = min(quarters[len(quarters) // 2], self._began_at) if quarters else b""
        for run in runs:
            del run[bisect_right(run, until, key=_stamp) :]
        return heapq.merge(*runs)


def _stamp(aged: Aged) -> bytes:
    return aged[0]
