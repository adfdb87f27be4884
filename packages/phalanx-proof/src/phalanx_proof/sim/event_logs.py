"""The event logs that members leave: without the events that failing disks did not take."""

from __future__ import annotations

from typing import Protocol

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import Event
from phalanx.wire.log_events import EventsLost
from phalanx_proof.sim.cluster.host import Host

DISK_FULL = "No space left on device"


class Trace(Protocol):
    """Receives all events of a history, in the order in which they happen."""

    def record(self, at: Millis, member: MemberId, event: Event) -> None:
        """Record an event of a member."""

    def record_process(self, at: Millis, member: MemberId, what: str) -> None:
        """Record that an incarnation has `started`, `paused`, `resumed` or ended: `crashed`, `left`, or by its own decision."""


class EventLogs:
    """Passes recorded events on to a trace, unless the disk of the host or its log has failed."""

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace
        self._without: set[MemberId] = set()
        """Incarnations that have no log at all."""
        self._gaps: dict[MemberId, tuple[Host, int, Millis]] = {}
        """Member whose disk fails to its host, how many events are missing, and since when."""

    def begin(self, host: Host, member: MemberId) -> None:
        """Begin the log of an incarnation, unless its host has none."""
        if host.has_lost_logs:
            self._without.add(member)

    def record(self, host: Host, member: MemberId, event: Event, now: Millis) -> None:
        """Log an event of a member. Whether that succeeds changes nothing for the member."""
        trace = self._trace
        if trace is None or member in self._without:
            return
        self.tell_gaps(now)
        if now < host.disk_fails_until:
            _, count, since = self._gaps.get(member, (host, 0, now))
            self._gaps[member] = host, count + 1, since
        else:
            trace.record(now, member, event)

    def tell_gaps(self, now: Millis) -> None:
        """Log what is missing of members whose disks work again; a process that has ended says nothing."""
        for member, (host, count, since) in list(self._gaps.items()):
            if now >= host.disk_fails_until:
                del self._gaps[member]
                if host.member == member and self._trace is not None:
                    self._trace.record(now, member, EventsLost(count, now - since, DISK_FULL))
