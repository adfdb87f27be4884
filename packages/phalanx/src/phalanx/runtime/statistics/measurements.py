"""Measure a member's process ten times a second, and tell its node: memory, a broken event log, its disk, what it did lately."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.machine.inputs import DiskMeasured, EventLogChecked, Input
from phalanx.net.connection import ConnectionGroup
from phalanx.runtime.logs.event_log import EventLog
from phalanx.runtime.statistics.activity import Activity
from phalanx.runtime.statistics.memory_use import MEASURE_EVERY_S, MemoryUse
from phalanx.wire.figures import DiskStatus

DISK_EVERY_S = 1.0
"""What waits for a sync changes with every write."""


class Measurements:
    """The measurements of one process, told to one incarnation after another."""

    def __init__(
        self,
        memory_use: MemoryUse,
        activity: Activity,
        events: EventLog,
        group: ConnectionGroup,
        feed: Callable[[Input], None],
        report_disk: Callable[[], DiskStatus | None],
    ) -> None:
        """`report_disk`: returns how the member's disk does; None: it has no folder."""
        self._memory_use = memory_use
        self._activity = activity
        self._events = events
        self._group = group
        self._feed = feed
        self._reported_problem = ""
        """Why the event log cannot be written, as the node was told last."""
        self._report_disk = report_disk
        self._reported_disk: DiskStatus | None = None
        """How the disk did, as the node was told last."""
        self._disk_due_s = 0.0
        """When the node is told next how the disk does."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, memory: MemoryGuard, count_clients: Callable[[], int]) -> None:
        """Begin for a new incarnation, with the memory of its node."""
        self._reported_problem, self._reported_disk, self._disk_due_s = "", None, 0.0
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
        if loop.time() >= self._disk_due_s:
            self._disk_due_s = loop.time() + DISK_EVERY_S
            if (disk := self._report_disk()) is not None and disk != self._reported_disk:
                self._reported_disk = disk
                self._feed(DiskMeasured(disk))
        if (activity := self._activity.look(memory, count_clients())) is not None:
            self._feed(activity)
        self._memory_use.trim(memory.used, memory.resident)

    def measure_memory(self) -> None:
        """Tell the node what this process has in memory."""
        self._feed(self._memory_use.measure())
