"""The last events of this process, over all its incarnations, for the console of its HTTP port."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from heapq import merge
from typing import Any, Final, NamedTuple

from phalanx.common.ids import MemberId
from phalanx.wire.event import Event
from phalanx.wire.table_events import TableInstalled

MOST: Final = 500
MOST_OF_PARTITIONS: Final = 1_500
"""Events that name one partition, and tables, come by hundreds: they do not push out the others."""


class RecentEvent(NamedTuple):
    """An event that was recorded."""

    number: int
    """It was the so-manyth event of this process."""
    at_ms: int
    """When, in milliseconds since 1970 by this machine's clock."""
    by: MemberId
    event: Any
    """The event as it was recorded."""


class RecentEvents:
    """A bounded memory. It costs an event some hundred nanoseconds; words are made when somebody reads."""

    def __init__(self) -> None:
        self.count = 0
        """How many events there were."""
        self._kept: deque[RecentEvent] = deque(maxlen=MOST)
        self._of_partitions: deque[RecentEvent] = deque(maxlen=MOST_OF_PARTITIONS)
        self._on_event: Callable[[], None] | None = None

    def tell(self, on_event: Callable[[], None] | None) -> None:
        """Call this after each event from now on; None: nobody. It must not fail."""
        self._on_event = on_event

    def add(self, by: MemberId, event: Event) -> None:
        is_of_partitions = hasattr(event, "partition") or isinstance(event, TableInstalled)
        kept = self._of_partitions if is_of_partitions else self._kept
        kept.append(RecentEvent(self.count, time.time_ns() // 1_000_000, by, event))
        self.count += 1
        if self._on_event is not None:
            self._on_event()

    def since(self, number: int) -> list[RecentEvent]:
        """Return the events that are kept, from this number on, oldest first."""
        both = merge(self._kept, self._of_partitions, key=lambda each: each.number)
        return [each for each in both if each.number >= number]
