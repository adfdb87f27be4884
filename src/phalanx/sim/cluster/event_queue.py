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
    """All that is going to happen."""

    __slots__ = ("buckets", "now", "times")

    def __init__(self) -> None:
        self.now: Millis = 0
        self.times: list[Millis] = []
        """Heap of the milliseconds at which something happens."""
        self.buckets: dict[Millis, list[Entry]] = {}
        """Millisecond to what happens then, in order."""

    def put(self, at: Millis, entry: Entry) -> None:
        """Have something happen at a time that is not over. What is put in the present millisecond comes last in it."""
        bucket = self.buckets.get(at)
        if bucket is None:
            bucket = self.buckets[at] = []
            heappush(self.times, at)
        bucket.append(entry)

    def call_at(self, at: Millis, function: Callable[..., None], *arguments: Any) -> None:
        """Have a function called at a time."""
        self.put(at, (None, (function, *arguments)))

    def next_bucket(self) -> list[Entry]:
        """Go on to the next millisecond with entries. It may grow while it is being worked off; then call `done`."""
        self.now = heappop(self.times)
        return self.buckets[self.now]

    def done(self) -> None:
        """The present millisecond is over."""
        del self.buckets[self.now]
