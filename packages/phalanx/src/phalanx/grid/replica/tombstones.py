"""Purge tombstones that are old enough, at each replica of this member.

Their age is measured by this member's own time: each round notes what the grid's clock shows, and the note that is
`tombstone_ms` old says up to which stamp tombstones are that old. Comparing with the present grid's clock would be
wrong: 1. A cut parts X and Y. 2. A member whose wall clock is hours ahead joins X, and X's grid clock jumps. 3. What X
removed a minute ago would look hours old.

Each replica purges by itself, without a message of the owner: replicas differ only in tombstones that are due, and each
remembers up to which stamp it has purged. A round visits all replicas, some in each turn, because a map can have as
many tombstones as it ever had entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from phalanx.common.clock import GridClock
from phalanx.common.ids import Millis
from phalanx.grid.replica.replica import Replica

AT_ONCE = 500
"""Tombstones dropped in one turn."""
MAPS_AT_ONCE = 2_000
"""A turn ends after the replica in which it has examined so many maps."""
PAUSE_MS: Millis = 5
"""Between two turns of a round."""
ROUND_MS: Millis = 60_000
"""Between two rounds; less where `tombstone_ms` is less than four times that."""
MOST_NOTES = 1_000
"""The most notes of the clock that are kept: where tombstones are kept for weeks, rounds are longer."""
SHORTEST_ROUND_MS: Millis = 1_000


class TombstonePurger:
    """Purges the replicas of this member, round after round."""

    def __init__(self, keep_ms: Millis, clock: GridClock, replicas: Callable[[], list[Replica]]) -> None:
        self._keep_ms = keep_ms
        self._round_ms = max(min(ROUND_MS, keep_ms // 4), keep_ms // MOST_NOTES, SHORTEST_ROUND_MS)
        self._clock = clock
        self._replicas = replicas
        self._left: list[Replica] = []
        """Replicas that this round has not finished."""
        self._notes: deque[tuple[Millis, int]] = deque()
        """The time at which each recent round began, and the grid's clock at that time."""
        self._to = 0
        """Tombstones with stamps up to this are old enough."""
        self._due_at: Millis | None = 0

    def next_deadline(self) -> Millis | None:
        return self._due_at

    def end(self) -> None:
        """End with this incarnation."""
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
            looked_at += len(self._left[-1].maps) + len(self._left[-1].cleared) + 1
            room -= self._left[-1].purge(self._to, room)
            if room <= 0:
                break
            self._left.pop()
        self._due_at = now + (PAUSE_MS if self._left else self._round_ms)
