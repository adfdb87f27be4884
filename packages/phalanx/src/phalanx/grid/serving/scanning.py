"""Scans that wait until the keys of their map are sorted, and the release of orders that are not used any more.

A small map is sorted with the first page. Of a large map each turn sorts one run while its scans wait; then the scans
continue, one in a turn. When an order was not used for `IDLE_MS`, its runs are freed, one in a turn.
"""

from __future__ import annotations

from collections import deque

from phalanx.common.ids import Millis, Target
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.scan_order import RUN_KEYS, Position
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.parked_requests import ParkedRequests, Request
from phalanx.grid.serving.replies import Replies
from phalanx.machine.alarms import Alarm
from phalanx.wire.messages import Reply

PAUSE_MS: Millis = 1
"""Between two turns."""
IDLE_MS: Millis = 5_000
"""An order that was not used for so long is freed."""


class WaitingScans:
    """The waiting scans and the scan orders of one member."""

    def __init__(self, parked: ParkedRequests, ownership: Ownership, replies: Replies) -> None:
        self._parked = parked
        self._ownership = ownership
        self._replies = replies
        self._waiting: dict[tuple[int, str], tuple[MapStore, deque[tuple[Target, Request]]]] = {}
        """Partition and map to the store whose keys are being sorted and the requests that wait for it."""
        self._ordered: dict[MapStore, None] = {}
        """Stores that have an order, the least recently used first."""
        self._useless: deque[list[Position]] = deque()
        self._due_at: Millis = 0
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"WaitingScans({list(self._waiting)}, ordered={len(self._ordered)})"

    def __len__(self) -> int:
        return sum(len(requests) for _, requests in self._waiting.values())

    def hold(self, call: GridCall[Request], partition: int, store: MapStore) -> None:
        """Let a request wait until the keys of its map are sorted."""
        if not self._parked.admits(call.caller, call.request):
            return
        if not (self._waiting or self._useless):
            self._due_at = call.now + PAUSE_MS
        waiting = self._waiting.setdefault((partition, call.request.map), (store, deque()))[1]
        waiting.append((call.caller, call.request))
        self.note_scan(store, call.now)

    def answer(self, call: GridCall[Request], store: MapStore | None, page: Reply) -> None:
        """Answer a scan with a page. `store`: where it was read; None: there is none."""
        if store is not None:
            self.note_scan(store, call.now)
        self._replies.send(call.caller, page)

    def note_scan(self, store: MapStore, now: Millis) -> None:
        """Note that a scan uses the order of a store."""
        if store.order is not None:
            store.order.used_at = now
            self._ordered.pop(store, None)
            self._ordered[store] = None
        self.alarm.follow()

    def end(self) -> None:
        """Release the waiting requests, to be refused: this incarnation is over."""
        for _, requests in self._waiting.values():
            self._parked.released += requests
        self._waiting.clear()
        self._ordered.clear()
        self._useless.clear()

    def next_deadline(self) -> Millis | None:
        if self._waiting or self._useless:
            return self._due_at
        first = next(iter(self._ordered), None)
        if first is None:
            return None
        return first.order.used_at + IDLE_MS if first.order is not None else self._due_at

    def on_time(self, now: Millis) -> None:
        """Sort a run, or let one scan continue; and free a run."""
        if (deadline := self.next_deadline()) is None or now < deadline:
            return
        self._due_at = now + PAUSE_MS
        freed = 0
        while self._useless and freed < RUN_KEYS:
            freed += len(self._useless.pop())
        if self._waiting:
            self._go_on(now)
        first = next(iter(self._ordered), None)
        if first is not None and (first.order is None or first.order.used_at + IDLE_MS <= now):
            del self._ordered[first]
            if first.order is not None:
                self._useless += first.order.take_apart()
                first.order = None
                first.look_again()

    def _go_on(self, now: Millis) -> None:
        place, (store, requests) = next(iter(self._waiting.items()))
        partition, name = place
        owned = self._ownership.find_owned(partition)
        is_there = owned is not None and owned.replica.maps.get(name) is store
        if is_there and store.ordered() is None and store.order is not None:
            store.order.sort_some()
            store.order.used_at = now
            return
        self._parked.released.append(requests.popleft())
        del self._waiting[place]
        if requests:
            # At the end of the queue, so that each map gets its turn.
            self._waiting[place] = store, requests
