"""How many bytes may lie in buffers for peers: what waits to be written to them, and frames of which a part has come.

Pure accounting: who is paused, who goes on and who is dropped is said here and done by `net.flow`. Members are not
counted here (`net.flow` says why).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from phalanx.common.ids import Millis

SMALL_FRAME_BYTES = 64 * 1024
"""A frame up to this length is taken without a reservation: many requests are not held up by a few large ones."""
STEP_BYTES = 64 * 1024
"""So much must move within one time limit, or all that is left: a peer on a line of 20 kbit/s does that within 30 s."""
RECEIVE_RATE = 1024 * 1024
"""Bytes in a second that a frame with a reservation has to arrive with when others wait for theirs."""

K = TypeVar("K", bound=Hashable)


class Pace:
    """Whether a transfer goes on: within each time limit `STEP_BYTES` must move, or all that was left."""

    __slots__ = ("_due", "_since")

    def __init__(self, done: int, left: int, now: Millis) -> None:
        """`done`, `left`: bytes that have moved, and that have not."""
        self._begin(done, left, now)

    def is_kept(self, done: int, left: int, now: Millis, limit_ms: Millis) -> bool:
        """Look at the transfer now; False when the time limit is over and too little has moved."""
        if done >= self._due:
            self._begin(done, left, now)
            return True
        return now - self._since < limit_ms

    def _begin(self, done: int, left: int, now: Millis) -> None:
        self._due, self._since = done + max(min(left, STEP_BYTES), 1), now


class Backlogs(Generic[K]):
    """Bytes that wait to be written, by connection and in all.

    What waits for a dropped connection is there until it is gone, which takes another turn of the event loop. So it counts:

    1. Twenty connections that do not read ask in one turn. 2. Each fills the total, is dropped, and is counted no more.
    3. At the end of the turn all that was made for the twenty is in memory.
    """

    def __init__(self, each_bytes: int, total_bytes: int) -> None:
        self._each_bytes, self._total_bytes = each_bytes, total_bytes
        self._sizes: dict[K, int] = {}
        self._dropped: dict[K, int] = {}
        """What waits for connections that were dropped and are not gone."""
        self.total = 0
        """All of it, dropped or not."""
        self.is_tight = False
        """Whether more than half of the total is used."""

    def note(self, key: K, size: int) -> None:
        """So much waits on this connection now; 0 when it is gone."""
        if key in self._dropped:
            if not size:
                self._count(-self._dropped.pop(key))
            return
        self._count(size - self._sizes.get(key, 0))
        if size:
            self._sizes[key] = size
        else:
            self._sizes.pop(key, None)

    def drop(self, key: K) -> None:
        """This connection is being closed."""
        size = self._sizes.pop(key, 0)
        if size:
            self._dropped[key] = size

    def must_wait(self, key: K) -> bool:
        """Whether requests of this connection wait until its backlog is written.

        When half of the total is used, each that has a backlog waits, whatever it has: so the total is reached only by
        many connections, none of which reads. One that has none waits only while dropped ones have yet to go, so whoever
        reads is served.
        """
        size = self._sizes.get(key, 0)
        return size > self._each_bytes or self.total > self._total_bytes or (size > 0 and self.is_tight)

    @property
    def is_over(self) -> bool:
        """Whether a connection has to be dropped."""
        return self.total - sum(self._dropped.values()) > self._total_bytes

    @property
    def connections(self) -> list[K]:
        """Return connections with a backlog that were not dropped, the oldest backlog first."""
        return list(self._sizes)

    def largest(self) -> K | None:
        """The connection with the most bytes, the oldest of equal ones."""
        return max(self._sizes, key=self._sizes.__getitem__, default=None)

    def _count(self, change: int) -> None:
        self.total += change
        self.is_tight = self.total > self._total_bytes // 2


class Reservations(Generic[K]):
    """Room for frames that have come in part. A frame's whole length is reserved when its first bytes are here, in the
    order of arrival; whoever gets no room waits, and sends nothing meanwhile. So a frame that has begun can be finished:

    1. A, B and C send 16 MiB each, the budget is 32 MiB, and bytes are counted as they come. 2. After 10.7 MiB of each
    nothing more fits, and none of them will ever be whole.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self.used = 0
        self._held: dict[K, tuple[int, Millis]] = {}
        """Connection to the length that is reserved for its frame, and since when."""
        self._waiting: dict[K, tuple[int, Millis]] = {}
        """Connection to the length that it waits for, and since when; oldest first."""
        self._last_end: Millis = 0
        """When a frame with a reservation was whole, last."""

    def ask(self, key: K, size: int, now: Millis) -> bool:
        """Reserve room for a frame; False: wait for `give_back` to name this connection."""
        if size <= SMALL_FRAME_BYTES:
            return True
        self._waiting[key] = size, now
        return key in self._admit(now)

    def give_back(self, key: K, now: Millis, *, is_whole: bool) -> list[K]:
        """The frame is whole, or will never be; the connections that have room now."""
        self._waiting.pop(key, None)
        size, _ = self._held.pop(key, (0, 0))
        self.used -= size
        if size and is_whole:
            self._last_end = now
        return self._admit(now)

    def is_late(self, key: K, now: Millis, limit_ms: Millis) -> bool:
        """Whether a frame keeps others waiting for too long, or has waited too long itself.

        Its own pace is not looked at here. Who waits has to as long as others finish; when nobody has finished anything
        for the time limit, all who wait are too many.
        """
        if key in self._waiting:
            return now - max(self._waiting[key][1], self._last_end) >= limit_ms
        if key not in self._held or not self._waiting:
            return False
        size, since = self._held[key]
        return now - since >= limit_ms + size * 1000 // RECEIVE_RATE

    def _admit(self, now: Millis) -> list[K]:
        """Reserve for those that wait, in order; a frame that is over the budget by itself is taken alone."""
        admitted: list[K] = []
        for key, (size, _) in self._waiting.items():
            if self.used and self.used + size > self._total_bytes:
                break
            self.used += size
            self._held[key] = size, now
            admitted.append(key)
        for key in admitted:
            del self._waiting[key]
        return admitted
