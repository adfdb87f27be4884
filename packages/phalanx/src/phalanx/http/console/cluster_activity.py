"""The activity of the whole cluster in the last ten minutes: the sum of what its members report (`wire.figures.ActivityPoint`).

Time is divided into slots. A point of a member counts for the slots whose middle it covers, so that members need not look at the
same moments. The activity of a member still counts when the member has gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.http.durations import CALL_ENDS_S, add_classes, percentile_ms
from phalanx.wire.figures import ActivityPoint
from phalanx.wire.messages import ActivityReply

SLOT_MS: Final[Millis] = 3_000
SLOTS: Final = 200
"""Ten minutes."""
LATE_MS: Final[Millis] = 12_000
"""A slot is shown when all members have told it; it waits no longer than this for one that does not answer."""
SNAP_MS: Final[Millis] = 500
"""Ends of points are worked out from their ages, and differ by the time that messages take."""


class _Slot:
    """The sums of one slot."""

    __slots__ = ("classes", "clients", "entries", "errors", "memory", "moves", "reads", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = self.errors = self.moves = 0.0
        """In a second."""
        self.entries = self.memory = self.clients = 0
        self.classes = [0] * (len(CALL_ENDS_S) + 1)

    def add(self, point: ActivityPoint) -> None:
        seconds = max(point.took_ms, 1) / 1000
        self.reads += point.reads / seconds
        self.writes += point.writes / seconds
        self.errors += point.errors / seconds
        self.moves += point.moves / seconds
        self.entries += point.entries
        self.memory += point.memory
        self.clients += point.clients
        self.classes = add_classes(self.classes, point.classes)


class ClusterActivity:
    """The slots of the last ten minutes."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._slots: dict[int, _Slot] = {}
        """Number of a slot (its beginning divided by its length, since 1970) to its sums."""
        self._last_points: dict[MemberId, tuple[int, float]] = {}
        """Member to the number of its last point, and when that ended."""

    def _now_ms(self) -> float:
        return self._clock() * 1000

    def missing(self, member: MemberId) -> int:
        """Return how many points to ask a member for."""
        if member not in self._last_points:
            return SLOTS
        return min(int((self._now_ms() - self._last_points[member][1]) // SLOT_MS) + 2, SLOTS)

    def take(self, member: MemberId, reply: ActivityReply) -> None:
        """Add what a member has told and is not known yet."""
        known, known_end = self._last_points.get(member, (0, 0.0))
        if reply.recorded < known:
            return  # an older answer
        end = self._now_ms() - reply.age_ms
        last_end, begin = end, self._now_ms() - SLOTS * SLOT_MS
        for number, point in zip(range(reply.recorded, known, -1), reversed(reply.points), strict=False):
            start = end - point.took_ms
            if number == known + 1 and abs(start - known_end) < SNAP_MS:
                start = known_end
            self._add(max(start, begin), end, point)
            end = start
        if reply.recorded > known:
            self._last_points[member] = reply.recorded, last_end
        for slot in [each for each in self._slots if (each + 1) * SLOT_MS <= begin]:
            del self._slots[slot]

    def _add(self, start: float, end: float, point: ActivityPoint) -> None:
        half = SLOT_MS / 2
        for slot in range(
            -int((half - start) // SLOT_MS), -int((half - end) // SLOT_MS)
        ):  # those with their middle inside
            self._slots.setdefault(slot, _Slot()).add(point)

    def forget_members(self, present: set[MemberId]) -> None:
        """Forget how far members were read that have gone. What they did stays for its ten minutes."""
        self._last_points = {member: last for member, last in self._last_points.items() if member in present}

    def as_object(self, members: Iterable[MemberId], answering: Iterable[MemberId], uncounted: list[str]) -> Any:
        """Return the slots as rows of figures, oldest first, from the first that somebody told; None in a row: nobody has told.

        `members`: those of the cluster. `answering`: those that tell. `uncounted`: the addresses of those that count no calls.
        """
        now = self._now_ms()
        ends = [self._last_points[member][1] for member in members if member in self._last_points]
        newest = int(max(min(ends, default=now), now - LATE_MS) - SLOT_MS / 2) // SLOT_MS
        oldest = max(newest - SLOTS + 1, min(self._slots, default=newest + 1))
        slots = [self._slots.get(number) for number in range(oldest, newest + 1)]
        silent = set(members).difference(answering)
        return {
            "every_ms": SLOT_MS,
            "end": (newest + 1) * SLOT_MS,
            "reads": [each and round(each.reads, 1) for each in slots],
            "writes": [each and round(each.writes, 1) for each in slots],
            "errors": [each and round(each.errors, 1) for each in slots],
            "p99_ms": [each and percentile_ms(each.classes, CALL_ENDS_S, 0.99) for each in slots],
            "entries": [each and each.entries for each in slots],
            "memory": [each and each.memory for each in slots],
            "clients": [each and each.clients for each in slots],
            "moves": [each and round(each.moves, 1) for each in slots],
            "uncounted": uncounted,
            "silent": sorted(address_of(each) for each in silent),
        }
