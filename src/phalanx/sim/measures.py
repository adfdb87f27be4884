"""How long things took in a history: no verdicts, only times and counts, for whoever compares many histories."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.sim.options import Options
from phalanx.wire.events import ViewInstalled

CRASHED = "crashed"
MASS = 5
"""So many members that start at the same instant are a mass join."""


class Measures:
    """Watches ends of processes and views."""

    def __init__(self, options: Options) -> None:
        self.detected_after_ms: list[Millis] = []
        """From the crash of a member to the first view of a master that had it, without it."""
        self.mass_join_versions = 0
        """The version of the first view with all members that started at one instant; 0: there was none."""
        starts = options.start_at_ms
        self._mass = len(starts) if len(starts) >= MASS and not any(starts) else 0
        self._crashed: dict[MemberId, Millis] = {}
        self._made: dict[MemberId, Collection[MemberId]] = {}
        """Member to the members of the last view that it installed."""

    def on_process(self, member: MemberId, what: str, now: Millis) -> None:
        if what.startswith(CRASHED):
            self._crashed[member] = now

    def on_view(self, member: MemberId, event: ViewInstalled, now: Millis) -> None:
        if self._crashed and event.maker == member:
            for gone in self._made.get(member, ()):
                if gone in self._crashed and gone not in event.members:
                    self.detected_after_ms.append(now - self._crashed.pop(gone))
        self._made[member] = event.members
        if self._mass and len(event.members) >= self._mass:
            self.mass_join_versions = event.view_version
            self._mass = 0


def distribution(values: Collection[int]) -> dict[str, int]:
    """How many there are, and their median, 99th percentile (the nearest that occurs) and maximum."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "median": ordered[last // 2],
        "p99": ordered[-(-last * 99 // 100)],
        "max": ordered[last],
    }
