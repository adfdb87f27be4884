"""Account for the bytes in buffers for peers: bytes that wait to be written, and frames that have arrived in part.

This module only decides which connections are paused, resumed and dropped; `net.flow` does it. Connections of members
are not counted here (`net.flow` says why).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from phalanx.common.ids import Millis

SMALL_FRAME_BYTES = 64 * 1024
"""A frame up to this length needs no reservation: a few large frames do not delay many small requests."""
STEP_BYTES = 64 * 1024
"""The bytes that must move within one time limit, or all that are left: a line of 20 kbit/s moves them within 30 s."""
RECEIVE_RATE = 1024 * 1024
"""The bytes per second with which a frame that has a reservation must arrive while others wait for theirs."""

K = TypeVar("K", bound=Hashable)


class Pace:
    """Decides whether a transfer is fast enough: in each time limit `STEP_BYTES` must move, or all the rest."""

    __slots__ = ("_due", "_since")

    def __init__(self, done: int, left: int, now: Millis) -> None:
        """`done`, `left`: how many bytes have moved, and how many have not."""
        self._begin(done, left, now)

    def is_kept(self, done: int, left: int, now: Millis, limit_ms: Millis) -> bool:
        """Check the transfer now. Return False if the time limit is over and too few bytes have moved."""
        if done >= self._due:
            self._begin(done, left, now)
            return True
        return now - self._since < limit_ms

    def _begin(self, done: int, left: int, now: Millis) -> None:
        self._due, self._since = done + max(min(left, STEP_BYTES), 1), now


class Backlogs(Generic[K]):
    """Counts the bytes that wait to be written, by connection and in total.

    The bytes for a dropped connection stay in memory until it is closed, which takes another turn of the event loop. If
    they were not counted:

    1. Twenty connections that do not read send requests in one turn. 2. Each fills the total, is dropped, and is no
    longer counted. 3. At the end of the turn the replies to all twenty are in memory.
    """

    def __init__(self, each_bytes: int, total_bytes: int) -> None:
        self._each_bytes, self._total_bytes = each_bytes, total_bytes
        self._sizes: dict[K, int] = {}
        self._dropped: dict[K, int] = {}
        """Dropped connection that is not closed yet, to the bytes that wait for it."""
        self.total = 0
        """The bytes that wait for all connections, dropped ones too."""
        self.is_tight = False
        """Whether more than half of the allowed total is used."""

    def note(self, key: K, size: int) -> None:
        """Note how many bytes wait for this connection now; 0 when it is closed."""
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
        """Note that this connection is being dropped."""
        size = self._sizes.pop(key, 0)
        if size:
            self._dropped[key] = size

    def must_wait(self, key: K) -> bool:
        """Return whether requests of this connection wait until its backlog is written.

        If more than half of the total is used, every connection with a backlog waits: so only many connections that do
        not read can reach the total. A connection without a backlog waits only while the total is exceeded, which means
        until dropped connections are closed. So clients that read are served.
        """
        size = self._sizes.get(key, 0)
        return size > self._each_bytes or self.total > self._total_bytes or (size > 0 and self.is_tight)

    @property
    def is_over(self) -> bool:
        """Return whether a connection must be dropped."""
        return self.total - sum(self._dropped.values()) > self._total_bytes

    @property
    def connections(self) -> list[K]:
        """Return connections with a backlog that were not dropped, the oldest backlog first."""
        return list(self._sizes)

    def largest(self) -> K | None:
        """Return the connection with the most bytes, the oldest of equal ones; None: no connection has a backlog."""
        return max(self._sizes, key=self._sizes.__getitem__, default=None)

    def _count(self, change: int) -> None:
        self.total += change
        self.is_tight = self.total > self._total_bytes // 2


class Reservations(Generic[K]):
    """Room for frames that have arrived in part.

    The whole length of a frame is reserved when its first bytes arrive, in the order of arrival. A connection without a
    reservation waits, and is not read meanwhile. So a frame with a reservation can be finished. If only the arrived
    bytes were counted: 1. A, B and C send 16 MiB each, and the budget is 32 MiB. 2. After 10.7 MiB of each nothing more
    fits, and none of the frames can ever be complete.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self.used = 0
        self._held: dict[K, tuple[int, Millis]] = {}
        """Connection to the length that is reserved for its frame, and since when."""
        self._waiting: dict[K, tuple[int, Millis]] = {}
        """Connection to the length for which it waits, and since when; oldest first."""
        self._last_end: Millis = 0
        """When the last frame with a reservation was complete."""

    def ask(self, key: K, size: int, now: Millis) -> bool:
        """Reserve room for a frame. Return False if the connection must wait until `give_back` names it."""
        if size <= SMALL_FRAME_BYTES:
            return True
        self._waiting[key] = size, now
        return key in self._admit(now)

    def give_back(self, key: K, now: Millis, *, is_whole: bool) -> list[K]:
        """Release a frame's room: it is complete, or never will be. Return the connections that get room now."""
        self._waiting.pop(key, None)
        size, _ = self._held.pop(key, (0, 0))
        self.used -= size
        if size and is_whole:
            self._last_end = now
        return self._admit(now)

    def is_late(self, key: K, now: Millis, limit_ms: Millis) -> bool:
        """Return whether a frame has kept others waiting for too long, or has waited too long itself.

        This does not check its own pace. A frame can wait as long as other frames finish. If none has finished for the
        time limit, all that wait are late.
        """
        if key in self._waiting:
            return now - max(self._waiting[key][1], self._last_end) >= limit_ms
        if key not in self._held or not self._waiting:
            return False
        size, since = self._held[key]
        return now - since >= limit_ms + size * 1000 // RECEIVE_RATE

    def _admit(self, now: Millis) -> list[K]:
        """Reserve room for waiting frames, in order. A frame that exceeds the budget by itself is admitted alone."""
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
