"""Measure a member's process ten times a second, and tell its node: memory, a broken event log, what it did lately."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.machine.inputs import EventLogChecked, Input
from phalanx.net.connection import ConnectionGroup
from phalanx.runtime.logs.event_log import EventLog
from phalanx.runtime.statistics.activity import Activity
from phalanx.runtime.statistics.memory_use import MEASURE_EVERY_S, MemoryUse


class Measurements:
    """The measurements of one process, told to one incarnation after another."""

    def __init__(
        self,
        memory_use: MemoryUse,
        activity: Activity,
        events: EventLog,
        group: ConnectionGroup,
        feed: Callable[[Input], None],
    ) -> None:
        self._memory_use = memory_use
        self._activity = activity
        self._events = events
        self._group = group
        self._feed = feed
        self._reported_problem = ""
        """Why the event log cannot be written, as the node was told last."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, memory: MemoryGuard, count_clients: Callable[[], int]) -> None:
        """Begin for a new incarnation, with the memory of its node."""
        self._reported_problem = ""
        self._activity.begin()
        self.end()
        self._measure(memory, count_clients)

    def end(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _measure(self, memory: MemoryGuard, count_clients: Callable[[], int]) -> None:
        """Measure, and do so again a little later."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(MEASURE_EVERY_S, self._group.call, self._measure, memory, count_clients)
        self.measure_memory()
        if self._events.problem != self._reported_problem:
            self._reported_problem = self._events.problem
            self._feed(EventLogChecked(self._reported_problem))
        if (activity := self._activity.look(memory, count_clients())) is not None:
            self._feed(activity)
        self._memory_use.trim(memory.used, memory.resident)

    def measure_memory(self) -> None:
        """Tell the node what this process has in memory."""
        self._feed(self._memory_use.measure())
