"""How long things took in a history: times and counts without verdicts, to compare many histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.options import HistoryOptions

CRASHED = "crashed"
MASS = 5
"""This many members that start at one instant are a mass join."""
HUNG_MS = 60_000
"""A process that does nothing for so long has failed; one that is back sooner has paused, and should stay a member."""
PAUSES, HANGS, REMOVED_RUNNING = "pauses", "hangs", "removed while running"


class Measures:
    """Watches ends and pauses of processes, and views."""

    def __init__(self, options: HistoryOptions) -> None:
        self.detected_after_ms: list[Millis] = []
        """From the crash or hang of a member to the first view of a master that had it, without it."""
        self.mass_join_versions = 0
        """The version of the first view with all members that started at one instant; 0: there was none."""
        self.counts: Counter[str] = Counter()
        starts = options.start_at_ms
        self._mass = len(starts) if len(starts) >= MASS and not any(starts) else 0
        self._failed: dict[MemberId, Millis] = {}
        """Member that crashed or hangs, and is not yet removed, to when that began."""
        self._sound: set[MemberId] = set()
        """Incarnations that run, and have never hung."""
        self._made: dict[MemberId, Collection[MemberId]] = {}
        """Member to the members of the last view that it installed."""

    def on_process(self, member: MemberId, what: str, now: Millis) -> None:
        if what == "started":
            self._sound.add(member)
            return
        self._sound.discard(member)
        if what.startswith(CRASHED):
            self._failed.setdefault(member, now)

    def on_pause(self, member: MemberId, until: Millis, now: Millis) -> None:
        """Note that a process does nothing until a time; 0: it goes on."""
        if until - now >= HUNG_MS:
            self.counts[HANGS] += 1
            self._sound.discard(member)
            self._failed.setdefault(member, now)
        elif until:
            self.counts[PAUSES] += 1

    def on_view(self, member: MemberId, event: ViewInstalled, leaving: Collection[MemberId], now: Millis) -> None:
        if event.maker == member:
            for gone in self._made.get(member, ()):
                if gone in event.members:
                    continue
                if gone in self._failed:
                    self.detected_after_ms.append(now - self._failed.pop(gone))
                elif gone in self._sound and gone not in leaving:
                    self.counts[REMOVED_RUNNING] += 1
        self._made[member] = event.members
        if self._mass and len(event.members) >= self._mass:
            self.mass_join_versions = event.view_version
            self._mass = 0


def distribution(values: Collection[int]) -> dict[str, int]:
    """Return the count, median, 99th percentile (the nearest value that occurs) and maximum."""
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
