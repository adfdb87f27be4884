"""The keys of one map in one partition in the order of scans, for as long as somebody scans it.

The order is (hash of the key, key bytes). Keys stand in buckets by the first bits of their hash, and in each bucket in sorted
runs, mostly one; a page goes through the buckets from its place on. So to make the order takes no longer turn than one run,
a key that comes meanwhile costs a search in one run, and a page costs what it returns, whatever was inserted since the last
one. To sort a million keys at once takes seconds, in which the member is silent; and who crafts keys of one hash would
have it done for each page. Such keys fill one bucket, with many runs, which a page merges.

Keys that are gone stay in the order; whoever reads it skips them. A key that came again is met once.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from phalanx.codec.hashing import scan_position
from phalanx.common.ids import Millis

RUN_KEYS = 4_096
"""In one run; sorting them takes some milliseconds."""
RUN_BYTES = 1024 * 1024
"""Of the keys in one run: long keys with one beginning take long to compare."""
SPARE_KEYS = 4 * RUN_KEYS
"""So many more than twice the keys that there are, and the order is made anew: most of it is gone."""

HASH_BITS = 32

Position = tuple[int, bytes]


class ScanOrder:
    """The order of one map's keys, of which some may have yet to be put into it."""

    __slots__ = ("_buckets", "_bytes", "_left", "_shift", "_sorted_to", "size", "used_at")

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._left = list(keys)
        """To be put into their buckets."""
        self.size = len(self._left)
        bits = (2 * self.size // RUN_KEYS).bit_length()
        self._shift = HASH_BITS - bits
        self._buckets: list[list[list[Position]]] = [[[]] for _ in range(1 << bits)]
        """By the first bits of the hash: runs, of which the last one grows."""
        self._bytes = [0] * (1 << bits)
        """Of the keys in the run of each bucket that grows."""
        self._sorted_to = 0
        """The runs of the buckets before this one are sorted; those of the others when nothing is left."""
        self.used_at: Millis = 0

    def __repr__(self) -> str:
        return f"ScanOrder({self.size} keys in {len(self._buckets)} buckets, {len(self._left)} left)"

    @property
    def is_ready(self) -> bool:
        return self._sorted_to == len(self._buckets)

    def sort_some(self) -> None:
        """Put some more keys in order, as many as one run has."""
        left, size = self._left, 0
        if left:
            for _ in range(min(RUN_KEYS, len(left))):
                key = left.pop()
                position = scan_position(key)
                self._growing(position, key).append((position, key))
                size += len(key)
                if size > RUN_BYTES:
                    break
            return
        while size < RUN_KEYS and not self.is_ready:
            for run in self._buckets[self._sorted_to]:
                run.sort()
                size += len(run)
            self._sorted_to += 1

    def add(self, key: bytes) -> None:
        """A key has come."""
        position = scan_position(key)
        self.size += 1
        run = self._growing(position, key)
        if position >> self._shift < self._sorted_to:
            insort(run, (position, key))
        else:
            run.append((position, key))

    def _growing(self, position: int, key: bytes) -> list[Position]:
        """The run into which a key is to be put."""
        bucket = position >> self._shift
        runs = self._buckets[bucket]
        if len(runs[-1]) >= RUN_KEYS or self._bytes[bucket] > RUN_BYTES:
            runs.append([])
            self._bytes[bucket] = 0
        self._bytes[bucket] += len(key)
        return runs[-1]

    def behind(self, after_key: bytes) -> Iterator[bytes]:
        """The keys behind one, in their order; empty: all. Nothing may be added meanwhile."""
        after = (scan_position(after_key), after_key) if after_key else (0, b"")
        first = after[0] >> self._shift
        last: Position | None = None
        for runs in islice(self._buckets, first, None):
            starts = [bisect_right(run, after) for run in runs] if runs is self._buckets[first] else [0] * len(runs)
            parts = [map(run.__getitem__, range(at, len(run))) for run, at in zip(runs, starts, strict=True)]
            for position in parts[0] if len(parts) == 1 else heapq.merge(*parts):
                if position != last:
                    yield position[1]
                    last = position

    def take_apart(self) -> list[list[Position]]:
        """Give up the order, piece by piece, to be freed."""
        return [run for runs in self._buckets for run in runs if run]
