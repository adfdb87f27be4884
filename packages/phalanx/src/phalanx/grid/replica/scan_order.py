"""The keys of one map in one partition in scan order, kept while scans use it.

The order is (hash of the key, key bytes). Keys are in buckets by the first bits of their hash; each bucket has sorted
runs, mostly one. A page starts in the bucket of its first key. So a turn of building the order sorts one run, a new key
costs a search in one run, and a page costs what it returns, whatever was inserted since the last one. Sorting a million
keys at once would take seconds, in which the member is silent; and an attacker with keys of one hash could cause that
for each page. Such keys fill one bucket with many runs, which a page merges.

Removed keys stay in the order, and readers skip them. A key that was removed and added again is returned once.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

from phalanx.codec.hashing import scan_position
from phalanx.common.ids import Millis

RUN_KEYS = 4_096
"""The most keys in one run; sorting them takes some milliseconds."""
RUN_BYTES = 1024 * 1024
"""A run whose keys have more bytes is full: long keys with a common prefix take long to compare."""
SPARE_KEYS = 4 * RUN_KEYS
"""An order with so many more than twice the map's present keys is made anew: most of its keys are removed."""

HASH_BITS = 32

Position = tuple[int, bytes]


class ScanOrder:
    """The scan order of one map's keys; it can still be under construction (`is_ready`)."""

    __slots__ = ("_buckets", "_bytes", "_left", "_shift", "_sorted_to", "size", "used_at")

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._left = list(keys)
        """Keys that are not in a bucket yet."""
        self.size = len(self._left)
        bits = (2 * self.size // RUN_KEYS).bit_length()
        self._shift = HASH_BITS - bits
        self._buckets: list[list[list[Position]]] = [[[]] for _ in range(1 << bits)]
        """First bits of the hash to the runs of that bucket; new keys go to the last run."""
        self._bytes = [0] * (1 << bits)
        """For each bucket the bytes of the keys in its last run."""
        self._sorted_to = 0
        """The buckets before this one are sorted; the others are sorted once all keys are in buckets."""
        self.used_at: Millis = 0
        """When a scan last used the order."""

    def __repr__(self) -> str:
        return f"ScanOrder({self.size} keys in {len(self._buckets)} buckets, {len(self._left)} left)"

    @property
    def is_ready(self) -> bool:
        return self._sorted_to == len(self._buckets)

    def sort_some(self) -> None:
        """Do one turn of building the order: put about one run of keys into buckets, or sort about one run."""
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
        """Add a new key of the map."""
        position = scan_position(key)
        self.size += 1
        run = self._growing(position, key)
        if position >> self._shift < self._sorted_to:
            insort(run, (position, key))
        else:
            run.append((position, key))

    def _growing(self, position: int, key: bytes) -> list[Position]:
        """Return the run for a new key, and count the key's bytes in it."""
        bucket = position >> self._shift
        runs = self._buckets[bucket]
        if len(runs[-1]) >= RUN_KEYS or self._bytes[bucket] > RUN_BYTES:
            runs.append([])
            self._bytes[bucket] = 0
        self._bytes[bucket] += len(key)
        return runs[-1]

    def behind(self, after_key: bytes) -> Iterator[bytes]:
        """Yield the keys after `after_key`, in scan order; empty: all keys. No key must be added meanwhile."""
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
        """Return the runs, for the caller to free them one by one."""
        return [run for runs in self._buckets for run in runs if run]
