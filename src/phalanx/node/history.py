"""The last decisions of one member, in memory: what an operator asks for when nobody kept an event log.

A decision is an event that names its rule. The copies of partitions, of which there are many, name none: they do not
push out why a member was removed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from phalanx.common.ids import Millis
from phalanx.wire.events import Event

REMEMBERED = 512
"""Decisions. Most are of some hundred bytes; a view of a hundred members is of five thousand."""
MOST_BYTES = 4 * 1024 * 1024
"""Of one answer."""


class History:
    """Remembers decisions and when they were made."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._decisions: deque[tuple[Millis, Event]] = deque(maxlen=limit)
        """Oldest first."""
        self._count = 0

    def add(self, recorded: Iterable[Event], now: Millis) -> None:
        """Take the decisions among what was recorded."""
        for event in recorded:
            if hasattr(event, "rule"):
                self._decisions.append((now, event))
                self._count += 1

    def tell(self, now: Millis, most_bytes: int = MOST_BYTES) -> tuple[list[Millis], list[bytes], int]:
        """Ages and decisions as JSON, oldest first, and how many older ones there were that are not among them."""
        ages: list[Millis] = []
        told: list[bytes] = []
        left = most_bytes
        for at, event in reversed(self._decisions):
            line = msgspec.json.encode(event)
            left -= len(line)
            if left < 0:
                break
            ages.append(now - at)
            told.append(line)
        return ages[::-1], told[::-1], self._count - len(told)
