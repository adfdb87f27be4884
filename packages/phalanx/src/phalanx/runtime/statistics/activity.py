"""What a member did in the last ten minutes, in points of a few seconds: for consoles and other people who look.

Nothing is counted here: a point is the difference between what the member's counters say now and what they said at the last
point. So a call costs nothing, and a point some tens of microseconds. The node answers with it (`ActivityMeasured`).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from operator import add, sub
from typing import Final, NamedTuple

from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.http.durations import CALL_ENDS_S
from phalanx.machine.inputs import ActivityMeasured
from phalanx.runtime.connections.call_statistics import CallStatistics
from phalanx.wire.figures import ActivityPoint, MapCalls
from phalanx.wire.table_events import MigrationCommitted

EVERY_S: Final = 3.0
MOST_POINTS: Final = 200
"""Ten minutes."""
OVER_POINTS: Final = 3
"""How many points the calls of single maps cover."""
READS: Final = frozenset(
    ["Get", "GetAll", "Contains", "GetTimeToLive", "ScanPartition", "ScanPacked", "SizeOf", "ReadJournal"]
)

_NONE: Final = (0,) * (len(CALL_ENDS_S) + 1)
_Counts = dict[str, tuple[tuple[int, ...], tuple[int, ...], int]]
"""Map to its reads and its writes in each class of durations, and how many ended with an error."""


class _Reading(NamedTuple):
    """What the counters said at a time."""

    at_s: float
    calls: _Counts
    moves: int
    processor_s: float


class Activity:
    """The points of one incarnation."""

    def __init__(
        self,
        statistics: CallStatistics | None,
        events: Counter[str],
        clock: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.process_time,
    ) -> None:
        """`statistics`: None: the member does not count calls. `events`: kind of event to how many were recorded."""
        self._statistics, self._events = statistics, events
        self._clock, self._processor = clock, processor
        self.begin()

    def begin(self) -> None:
        """Start from zero: the activity of another incarnation is not reported as this one's."""
        self._recorded = 0
        self._points: deque[ActivityPoint] = deque(maxlen=MOST_POINTS)
        self._readings: deque[_Reading] = deque([self._read()], maxlen=OVER_POINTS + 1)
        self._due_s = self._clock() + EVERY_S

    def look(self, memory: MemoryGuard, clients: int) -> ActivityMeasured | None:
        """Return the report if another point is due; None: it is not due. `clients`: connections of clients."""
        if self._clock() < self._due_s:
            return None
        before, now = self._readings[-1], self._read()
        self._due_s = now.at_s + EVERY_S
        self._readings.append(now)
        self._points.append(_point(before, now, memory, clients))
        self._recorded += 1
        first = self._readings[0]
        return ActivityMeasured(
            self._recorded,
            tuple(self._points),
            self._statistics is not None,
            int((now.at_s - first.at_s) * 1000),
            tuple(_by_map(first.calls, now.calls)),
        )

    def _read(self) -> _Reading:
        calls: _Counts = {}
        found = self._statistics.of if self._statistics is not None else {}
        for (name, kind), its in found.items():
            reads, writes, errors = calls.get(name, (_NONE, _NONE, 0))
            if kind.__name__ in READS:
                reads = tuple(map(add, reads, its.classes))
            else:
                writes = tuple(map(add, writes, its.classes))
            calls[name] = reads, writes, errors + sum(its.errors.values())
        return _Reading(self._clock(), calls, self._events[MigrationCommitted.__name__], self._processor())


def _point(before: _Reading, now: _Reading, memory: MemoryGuard, clients: int) -> ActivityPoint:
    reads, writes = _NONE, _NONE
    errors = 0
    for its_reads, its_writes, failed in _since(before.calls, now.calls).values():
        reads, writes = tuple(map(add, reads, its_reads)), tuple(map(add, writes, its_writes))
        errors += failed
    return ActivityPoint(
        int((now.at_s - before.at_s) * 1000),
        sum(reads),
        sum(writes),
        errors,
        tuple(map(add, reads, writes)),
        memory.data.size.entries,
        max(memory.used, 0),
        clients,
        now.moves - before.moves,
        int((now.processor_s - before.processor_s) * 1000),
    )


def _by_map(before: _Counts, now: _Counts) -> list[MapCalls]:
    """Return the calls of each map that was called since."""
    return [MapCalls(name, *its) for name, its in sorted(_since(before, now).items()) if name]


def _since(before: _Counts, now: _Counts) -> _Counts:
    """Return what is new of each map that was called since. One that has lost its place among the busiest, and got it back, begins at
    nothing (`BusiestMaps`)."""
    found = {}
    for name, counts in now.items():
        old = before.get(name)
        if old == counts:
            continue
        if old is None or sum(old[0]) + sum(old[1]) > sum(counts[0]) + sum(counts[1]):
            found[name] = counts
        else:
            found[name] = tuple(map(sub, counts[0], old[0])), tuple(map(sub, counts[1], old[1])), counts[2] - old[2]
    return found
