"""Free the memory of replicas that are not needed any more, little by little.

Freeing half a million entries takes a tenth of a second, in which no caller is served. So large stores are freed some
entries in a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from phalanx.common.ids import Millis
from phalanx.grid.replica.journal import Event
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.machine.alarms import Alarm

ENTRIES_AT_ONCE = 500
HELD_AT_ONCE = 4_000
"""Entries of a store in one turn whose keys and values another store shares: only the dict slots are freed."""
BYTES_AT_ONCE = 1024 * 1024
PAUSE_MS = 2
SMALL = 200
"""A map with no more entries is freed at once."""


class DeferredFree:
    """Stores and journals that are being freed. Nothing else must refer to them."""

    __slots__ = ("_due_at", "_events", "_stores", "alarm")

    def __init__(self) -> None:
        self._stores: deque[tuple[MapStore, int]] = deque()
        """Each store with the number of its entries to free in a turn."""
        self._events: deque[deque[Event]] = deque()
        """The events of journals to free."""
        self._due_at: Millis = 0
        self.alarm = Alarm(self, others_follow=True)  # scans wait for orders that it takes apart

    def __repr__(self) -> str:
        return f"DeferredFree({self.entry_count()} entries left)"

    def entry_count(self) -> int:
        return sum(len(store.entries) for store, _ in self._stores)

    def add(self, replica: Replica | None, at_once: int = ENTRIES_AT_ONCE) -> None:
        if replica is not None:
            self.add_stores(replica.maps.values(), at_once)
            self._events += [each.events for each in replica.journals.values() if len(each.events) > SMALL]
            self.alarm.follow()

    def add_stores(self, stores: Iterable[MapStore], at_once: int = ENTRIES_AT_ONCE) -> None:
        self._stores += [(store, at_once) for store in stores if len(store.entries) + len(store.tombstones) > SMALL]
        self.alarm.follow()

    def next_deadline(self) -> Millis | None:
        return self._due_at if self._stores or self._events else None

    def on_time(self, now: Millis) -> None:
        if not (self._stores or self._events) or now < self._due_at:
            return
        self._due_at = now + PAUSE_MS
        if self._events:
            events, size = self._events[0], 0
            for _ in range(min(ENTRIES_AT_ONCE, len(events))):
                _, _, stored, old, _ = events.popleft()
                size += len(stored or b"") + len(old or b"")
                if size >= BYTES_AT_ONCE:
                    break
            if not events:
                self._events.popleft()
            return
        store, at_once = self._stores[0]
        self._take_apart(store, at_once)
        if not store.entries and not store.tombstones:
            self._stores.popleft()

    def _take_apart(self, store: MapStore, at_once: int) -> None:
        entries, size = store.entries, 0
        store.expiry_queue.forget(at_once)
        if not entries:
            for _ in range(min(at_once, len(store.tombstones))):
                store.tombstones.popitem()
            return
        for _ in range(min(at_once, len(entries))):
            key, value = entries.popitem()
            store.expires_at.pop(key, None)
            store.idle.pop(key, None)
            if store.accesses is not None:
                store.accesses.forget(key)
            size += len(value)
            if size >= BYTES_AT_ONCE:
                return
