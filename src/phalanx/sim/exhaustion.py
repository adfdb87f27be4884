"""What the machine under a member runs out of: faults of the driver, which the machines know nothing of.

Memory runs out at an input: before the node has seen it, in the middle of handling it (while it gathers its effects), when
it is handled and nothing is carried out, or when a part of its effects is. The process ends at each of these points; what
has left by then has left. A disk fails for a while, or a log is lost: then events are missing for whoever reads them later,
and nothing else is another history.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.effects import Effect, Record
from phalanx.node.node import Node
from phalanx.sim.options import MASTER, Fault, FaultKind, Options, Profile
from phalanx.wire.events import Event, EventsLost

if TYPE_CHECKING:
    from phalanx.sim.host import Host
    from phalanx.sim.run import Trace

BEFORE, INSIDE, AFTER, CARRYING = "before", "inside", "after", "carrying"
MEMORY_POINTS = (BEFORE, INSIDE, INSIDE, AFTER, CARRYING, CARRYING, CARRYING)
"""Where memory runs out, and how often it is drawn."""
DISK_FULL = "No space left on device"
_EXHAUSTED = (Profile.DEFAULT, Profile.FAILOVER, Profile.MIGRATIONS, Profile.MEMBERSHIP, Profile.CUTS)
"""Profiles in which processes crash; others are histories of these."""


def add_exhaustion(options: Options) -> Options:
    """The same history in which, every now and then, memory, a disk or a log gives out.

    Drawn from a stream of its own: histories in which no memory runs out are what they were, whatever becomes of disks.
    """
    if options.profile not in _EXHAUSTED:
        return options
    rng = Random(f"exhaustion:{options.profile}:{options.seed}")
    drawn: list[Fault] = []
    if rng.random() < 0.25:
        drawn += [_draw_memory(rng, options) for _ in range(rng.choice((1, 1, 2, 4)))]
    if rng.random() < 0.25:
        drawn += [_draw_disk(rng, options) for _ in range(rng.choice((1, 2)))]
    if not drawn:
        return options
    faults = sorted((*options.faults, *drawn), key=lambda fault: fault.at_ms)
    return msgspec.structs.replace(options, faults=tuple(faults))


def _draw_memory(rng: Random, options: Options) -> Fault:
    host = rng.choice((MASTER, rng.randrange(options.hosts)))
    back = rng.choice((1, rng.randrange(1, 1_000), rng.randrange(1_000, 10_000)))
    at = rng.randrange(min(1_000, options.duration_ms - 1), options.duration_ms)
    return Fault(
        at, FaultKind.MEMORY, host, lasts_ms=back, what=rng.choice(MEMORY_POINTS), nth=rng.choice((1, 1, 2, 3))
    )


def _draw_disk(rng: Random, options: Options) -> Fault:
    kind = rng.choice((FaultKind.DISK, FaultKind.DISK, FaultKind.LOSE_LOG))
    at, host = rng.randrange(options.duration_ms), rng.randrange(options.hosts)
    return Fault(at, kind, host, lasts_ms=rng.randrange(100, options.duration_ms))


class Shortage:
    """Memory of a process that is about to run out at one of its next inputs."""

    def __init__(self, point: str, nth: int, comes_back_after_ms: Millis) -> None:
        self.point = point
        self.nth = nth
        self.comes_back_after_ms = comes_back_after_ms
        self.has_struck = False

    def before(self, node: Node) -> None:
        """Before the node gets an input. May raise `MemoryError`, or have the node do so."""
        if self.point == BEFORE:
            self.strike()
        elif self.point == INSIDE:
            node._out.effects = _ScarceList(self)

    def cut(self, effects: list[Effect]) -> list[Effect]:
        """Those of the effects that are carried out before memory runs out; all of them if it does not at this input.

        Raises `MemoryError` where none is.
        """
        if self.point == AFTER:
            self.strike()
        if self.point != CARRYING or len(effects) <= self.nth:
            return effects
        self.has_struck = True
        # What it recorded behind that is true all the same: checkers see what it has become.
        return effects[: self.nth] + [each for each in effects[self.nth :] if type(each) is Record]

    def strike(self) -> None:
        """Raise `MemoryError`."""
        self.has_struck = True
        raise MemoryError("there is none left (drawn)")


class _ScarceList(list[Effect]):
    """Effects that a node gathers, for the n-th of which there is no memory."""

    def __init__(self, shortage: Shortage) -> None:
        super().__init__()
        self._shortage = shortage

    def append(self, effect: Effect) -> None:
        if len(self) + 1 >= self._shortage.nth:
            self._shortage.strike()
        super().append(effect)


class Logs:
    """The event logs of all hosts as somebody finds them later: without what their disks did not take."""

    def __init__(self, trace: Trace | None) -> None:
        self._trace = trace
        self._without: set[MemberId] = set()
        """Incarnations that have no log at all."""
        self._gaps: dict[MemberId, tuple[Host, int, Millis]] = {}
        """Of members whose disks fail: their hosts, how many events are missing, and since when."""

    def begin(self, host: Host, member: MemberId) -> None:
        """An incarnation begins: with a log, unless its host has none."""
        if host.has_lost_logs:
            self._without.add(member)

    def record(self, host: Host, member: MemberId, event: Event, now: Millis) -> None:
        """A member records an event; nothing that becomes of the log is its business."""
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
        """A member says what is missing when its disk works again; one whose process has ended says nothing."""
        for member, (host, count, since) in list(self._gaps.items()):
            if now >= host.disk_fails_until:
                del self._gaps[member]
                if host.member == member and self._trace is not None:
                    self._trace.record(now, member, EventsLost(count, now - since, DISK_FULL))
