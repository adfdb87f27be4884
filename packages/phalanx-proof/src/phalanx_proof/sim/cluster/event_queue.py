"""Virtual time: what happens at which millisecond, in the order in which it was put there.

Times are whole milliseconds, so a list for each millisecond and a heap of the milliseconds cost far less than a heap of
all events. An entry is a pair: a channel and the message that it delivers, or None and a tuple of a function and its
arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from phalanx.common.ids import Millis

Entry = tuple[Any, Any]


class EventQueue:
    """All that is scheduled."""

    __slots__ = ("buckets", "now", "times")

    def __init__(self) -> None:
        self.now: Millis = 0
        self.times: list[Millis] = []
        """Heap of the milliseconds at which something happens."""
        self.buckets: dict[Millis, list[Entry]] = {}
        """Millisecond to what happens then, in order."""

    def put(self, at: Millis, entry: Entry) -> None:
        """Schedule an entry for now or later. An entry for the present millisecond comes last in it."""
        bucket = self.buckets.get(at)
        if bucket is None:
            bucket = self.buckets[at] = []
            heappush(self.times, at)
        bucket.append(entry)

    def call_at(self, at: Millis, function: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call."""
        self.put(at, (None, (function, *arguments)))

    def next_bucket(self) -> list[Entry]:
        """Go on to the next millisecond with entries. The list can grow while it is worked off; call `done` after that."""
        self.now = heappop(self.times)
        return self.buckets[self.now]

    def done(self) -> None:
        """End the present millisecond."""
        del self.buckets[self.now]
