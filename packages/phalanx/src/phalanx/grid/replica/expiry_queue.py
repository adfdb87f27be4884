"""Which entries of a map expire next: the times at which they were to expire, soonest first.

A later put does not take the time of the former one out of the queue, and a read that begins an idle time anew leaves its
time where it is. So a time that comes up is compared with the end that the entry has now. Each entry that expires has a
time in the queue that is not later than its end.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Protocol

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import Millis
from phalanx.grid.replica.eviction_order import SKIPPED_AT_ONCE


class ExpiringEntries(Protocol):
    """What is looked at of a store (`MapStore`)."""

    entries: dict[bytes, bytes]
    idle: dict[bytes, tuple[Millis, Millis]]

    def end_of(self, key: bytes) -> Millis | None:
        """Return when a stored entry expires; None: never."""


class ExpiryQueue:
    """Times and keys, some of them out of date."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, bytes]] = []

    def copy(self) -> ExpiryQueue:
        """Return a queue with the same times."""
        copied = ExpiryQueue()
        copied._heap = self._heap.copy()
        return copied

    def add(self, key: bytes, at: Millis) -> None:
        """Add the time at which an entry expires."""
        heapq.heappush(self._heap, (at, key))

    def drop_outdated(self, expires_at: Mapping[bytes, Millis]) -> None:
        """Keep only the present times if most are out of date: backups never take expired entries out of the queue."""
        if len(self._heap) > 2 * len(expires_at) + 64:
            self._heap = [(at, key) for key, at in expires_at.items()]
            heapq.heapify(self._heap)

    def forget(self, limit: int) -> None:
        """Free at most `limit` times, of a store that is being freed."""
        del self._heap[-limit:]

    def has_none_until(self, now: Millis) -> bool:
        """Return whether the first time is later."""
        return bool(self._heap) and self._heap[0][0] > now

    def has_due(self, now: Millis) -> bool:
        """Return whether `take_due` has something to look at."""
        return bool(self._heap) and self._heap[0][0] <= now

    def take_due(self, store: ExpiringEntries, now: Millis, limit: int | None) -> list[bytes]:
        """Take the keys of expired entries, at most `limit` (None: all). Look at twice as many: some were used since."""
        heap, expired = self._heap, dict[bytes, None]()
        most = len(heap) if limit is None else limit
        left = 2 * most
        while left > 0 and len(expired) < most and self.has_due(now):
            left -= 1
            _, key = heapq.heappop(heap)
            until = store.end_of(key)
            if until is not None and until <= now:
                expired[key] = None
            elif until is not None and key in store.idle:
                heapq.heappush(heap, (until, key))  # it was used since
        return list(expired)

    def take_soonest(self, store: ExpiringEntries, entries: int, size: int, limit: int) -> list[bytes]:
        """Take the keys of the entries that expire soonest: `entries` entries, `size` bytes together, at most `limit`."""
        found: dict[bytes, None] = {}
        heap, left = self._heap, limit + SKIPPED_AT_ONCE
        while heap and (entries > 0 or size > 0) and len(found) < limit and left > 0:
            left -= 1
            at, key = heapq.heappop(heap)
            if key in found or (until := store.end_of(key)) is None:
                continue
            if until == at:
                found[key] = None
                entries, size = entries - 1, size - len(key) - len(store.entries[key]) + STAMP_BYTES
            elif key in store.idle:
                heapq.heappush(heap, (until, key))  # it was used since
        return list(found)
