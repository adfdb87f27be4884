"""When tombstones are dropped at this member: each replica by itself, when they are old enough.

Their age is told by this member's own time: what the grid's clock showed then is noted, and what it showed long enough ago
tells which stamps are that old. To compare with what it shows now would not do: 1. a cut parts X and Y. 2. A member whose
wall clock is hours ahead joins X, whose clock jumps: what was removed there a minute ago would look hours old.

The owner tells nobody: replicas hold the same tombstones but for those that are due, and each remembers how far it has
purged. All replicas are gone through once in each round, a little in each turn: a clear apart, a map may have as many
tombstones as it ever had entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from phalanx.common.clock import GridClock
from phalanx.common.ids import Millis
from phalanx.grid.replica.store import Replica

AT_ONCE = 500
"""Tombstones that are dropped in one turn."""
MAPS_AT_ONCE = 2_000
"""Maps of replicas that are looked at in one turn, or all of one replica."""
PAUSE_MS: Millis = 5
"""Between two turns of a round."""
ROUND_MS: Millis = 60_000
"""Between two rounds, or a quarter of the time for which tombstones are kept, where that is less."""
MOST_NOTES = 1_000
"""Of what the clock showed; who keeps tombstones for weeks has longer rounds."""
SHORTEST_ROUND_MS: Millis = 1_000


class TombstonePurger:
    """Goes round the replicas of this member."""

    def __init__(self, keep_ms: Millis, clock: GridClock, replicas: Callable[[], list[Replica]]) -> None:
        self._keep_ms = keep_ms
        self._round_ms = max(min(ROUND_MS, keep_ms // 4), keep_ms // MOST_NOTES, SHORTEST_ROUND_MS)
        self._clock = clock
        self._replicas = replicas
        self._left: list[Replica] = []
        """To be looked at in this round."""
        self._notes: deque[tuple[Millis, int]] = deque()
        """When a round began, and what the grid's clock showed then; not older than it need be."""
        self._to = 0
        """Up to this stamp everything is old enough."""
        self._due_at: Millis | None = 0

    def next_deadline(self) -> Millis | None:
        return self._due_at

    def end(self) -> None:
        """This incarnation is over."""
        self._due_at = None
        self._left.clear()

    def on_time(self, now: Millis) -> None:
        if self._due_at is None or now < self._due_at:
            return
        if not self._left:
            self._left = self._replicas()
            self._notes.append((now, self._clock.read(now)))
            while self._notes and self._notes[0][0] <= now - self._keep_ms:
                self._to = self._notes.popleft()[1]
        room, looked_at = AT_ONCE, 0
        while self._left and looked_at < MAPS_AT_ONCE:
            looked_at += len(self._left[-1].maps) + 1
            room -= self._left[-1].purge(self._to, room)
            if room <= 0:
                break
            self._left.pop()
        self._due_at = now + (PAUSE_MS if self._left else self._round_ms)
