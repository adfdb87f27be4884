"""Flow control: pause, resume and drop the connections of one member or client, by their budgets and their pace.

Clients, and peers that are not members yet, share two budgets: for bytes that wait to be written to them, and for
frames that have arrived in part. Requests of a client that does not read its replies wait: nothing is read from it. A
client that moves too few bytes within the time limit is dropped.

Members never wait for a reader and have no time limit: heartbeats use the same connection as the data, the failure
detector judges silent members, and two members that wait for each other to read would wait without end. The bytes that
wait for one member have a limit of their own. Over it the connection is broken off, which the protocol handles as any
lost connection. Each member has one connection in each direction, so at most one of its frames has arrived in part.

Time in which this process was paused does not count against anybody: from one tick to the next, the clock here advances
by two ticks at most.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

from phalanx.common.errors import UnavailableError
from phalanx.common.ids import Millis
from phalanx.net.budgets import Backlogs, Pace, Reservations

MIB = 1024 * 1024
TICKS = 8
"""How often each transfer is checked within one time limit."""
MAX_TICK_MS = 1000


class Drop(enum.Enum):
    """Why a connection was dropped."""

    SLOW_READER = "it read too few of the bytes that wait for it"
    SLOW_SENDER = "the rest of a message did not arrive"
    FULL = "too many bytes wait to be written"


class Limits(NamedTuple):
    """Limits in bytes, and the time limit of transfers. `docs/configuration.md` explains the defaults."""

    client_backlog_bytes: int = 128 * MIB
    total_backlog_bytes: int = 512 * MIB
    member_backlog_bytes: int = 256 * MIB
    partial_frame_bytes: int = 256 * MIB
    slow_peer_timeout_ms: Millis = 30_000
    tcp_keepalive_ms: Millis = 60_000
    """An idle connection ends when the peer's host has not answered the kernel for as long; 0: it stays."""
    client_idle_timeout_ms: Millis = 0
    """A connection of a client at rest for so long is closed; 0: it stays."""


class MeteredConnection(Hashable, Protocol):
    """What budgets need of a connection (`net.connection.FrameConnection`)."""

    written: int
    """How many bytes were written since the connection was made."""

    @property
    def backlog(self) -> int:
        """Return how many written bytes the kernel has not accepted yet."""

    @property
    def part_bytes(self) -> int:
        """Return how many bytes of an incomplete frame have arrived."""

    @property
    def is_of_member(self) -> bool:
        """Return whether the peer is a member."""

    @property
    def is_closing(self) -> bool:
        """Return whether this side has given the connection up, and reads nothing more."""

    @property
    def is_paused(self) -> bool:
        """Return whether this side does not read now."""

    def pause(self, why: int) -> None:
        """Stop reading, for one more reason."""

    def resume(self, why: int) -> None:
        """Remove a reason. Read again, unless there is another one."""

    def reset(self) -> None:
        """Reset the connection."""


C = TypeVar("C", bound=MeteredConnection)


class BacklogFull(UnavailableError):
    """A message was not sent, because too many bytes wait for its receiver."""


class _Part:
    """A frame, or the record with its beginning, that has arrived in part."""

    __slots__ = ("length", "pace", "waits")

    def __init__(self, length: int, *, waits: bool) -> None:
        self.length = length
        self.waits = waits
        """Whether it waits for room."""
        self.pace: Pace | None = None
        """Its pace; None: it is measured from the next tick on."""


class Flow(Generic[C]):
    """Applies the budgets of one group of connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        call: Callable[[Callable[[], None]], None],
        limits: Limits,
        on_drop: Callable[[C, Drop, str], None] = lambda connection, why, text: None,
    ) -> None:
        """`call` wraps functions that the loop calls later. `on_drop` is called before a drop, with the reason."""
        self.limits = limits
        self._loop = loop
        self._call = call
        self._on_drop = on_drop
        self.backlogs: Backlogs[C] = Backlogs(limits.client_backlog_bytes, limits.total_backlog_bytes)
        self._room: Reservations[C] = Reservations(limits.partial_frame_bytes)
        self._writing: dict[C, Pace] = {}
        """Each connection with a backlog, to the pace of its writing."""
        self._parts: dict[C, _Part] = {}
        self._now: Millis = 0
        self._tick_ms = min(max(limits.slow_peer_timeout_ms // TICKS, 10), MAX_TICK_MS)
        self._timer: asyncio.TimerHandle | None = None
        self._ticked_at = 0.0

    # --- what waits to be written ------------------------------------------------------------------------------------

    def wrote(self, connection: C) -> None:
        """Note that bytes were written which the kernel has not accepted yet."""
        size = connection.backlog
        if connection.is_of_member:
            most = self.limits.member_backlog_bytes
            if size > most:
                self._drop(connection, Drop.FULL, f"{size} bytes wait for the member; the limit is {most}")
            return
        self.backlogs.note(connection, size)
        if connection not in self._writing and not connection.is_closing:
            self._writing[connection] = Pace(connection.written - size, size, self._now)
            self._arm()
        if self.backlogs.is_over:
            self._make_room()

    def drained(self, connection: C) -> None:
        """Note that the kernel has accepted all bytes for this connection, or that they will never be written."""
        if self._writing.pop(connection, None) is not None:
            self.backlogs.note(connection, 0)

    def must_wait(self, connection: C) -> bool:
        """Return whether requests of this connection wait until its backlog is written, or dropped ones are closed."""
        return self.backlogs.must_wait(connection)

    def _make_room(self) -> None:
        """Drop the largest backlogs until the rest is within the budget."""
        for connection in self.backlogs.connections:
            self.backlogs.note(connection, connection.backlog)  # a part may have been written since the last note
        most = self.limits.total_backlog_bytes
        while self.backlogs.is_over and (largest := self.backlogs.largest()) is not None:
            text = f"{self.backlogs.total} bytes wait for all clients, {largest.backlog} for it; the limit is {most}"
            self._drop(largest, Drop.FULL, text)

    # --- frames that have come in part -------------------------------------------------------------------------------

    def part_came(self, connection: C, length: int) -> None:
        """Note the first part of a frame of that length. Pause the connection until there is room for the rest."""
        waits = not self._room.ask(connection, length, self._now)
        self._parts[connection] = _Part(length, waits=waits)
        if waits:
            connection.pause(WAITS_FOR_ROOM)
        self._arm()

    def part_grew(self, connection: C, length: int) -> None:
        """Correct the length of a part that was noted before: more of it has arrived, and shows the frame's real
        length.

        The pace is not reset: lengths that a peer announces one after the other must not restart the time limit.
        """
        part = self._parts.get(connection)
        if part is None or part.length == length:
            return
        self._give_back(connection, is_whole=True)
        part.length, part.waits = length, not self._room.ask(connection, length, self._now)
        if part.waits:
            connection.pause(WAITS_FOR_ROOM)
        else:
            connection.resume(WAITS_FOR_ROOM)

    def part_ended(self, connection: C, *, is_whole: bool) -> None:
        """Note that a frame is complete, or never will be."""
        if self._parts.pop(connection, None) is not None:
            self._give_back(connection, is_whole=is_whole)

    def _give_back(self, connection: C, *, is_whole: bool) -> None:
        for other in self._room.give_back(connection, self._now, is_whole=is_whole):
            self._parts[other].waits = False
            other.resume(WAITS_FOR_ROOM)

    def gone(self, connection: C) -> None:
        """Forget a closed connection."""
        self._writing.pop(connection, None)
        self.backlogs.note(connection, 0)
        self.part_ended(connection, is_whole=False)

    # --- the pace ----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None:
            self._ticked_at = self._loop.time()
            self._timer = self._loop.call_later(self._tick_ms / 1000, self._call, self._tick)

    def _tick(self) -> None:
        """Drop the connections that are too slow."""
        self._timer = None
        self._now += min(int((self._loop.time() - self._ticked_at) * 1000), 2 * self._tick_ms)
        limit_ms = self.limits.slow_peer_timeout_ms
        for connection, pace in list(self._writing.items()):
            backlog = connection.backlog
            self.backlogs.note(connection, backlog)
            if not pace.is_kept(connection.written - backlog, backlog, self._now, limit_ms):
                self._drop(
                    connection,
                    Drop.SLOW_READER,
                    f"{backlog} bytes wait for it, and it read too few of them within {limit_ms} ms",
                )
        for connection, part in list(self._parts.items()):
            if connection in self._parts and self._judge_sender(connection, part):
                text = f"{connection.part_bytes} of {part.length} bytes arrived, and too few of the others within {limit_ms} ms"
                self._drop(connection, Drop.SLOW_SENDER, text)
        if self._writing or self._parts:
            self._arm()

    def _judge_sender(self, connection: C, part: _Part) -> bool:
        """Judge the pace of a peer that sends a frame. Return whether too few bytes arrived although this side reads, or it delays others."""
        limit_ms, came = self.limits.slow_peer_timeout_ms, connection.part_bytes
        if self._room.is_late(connection, self._now, limit_ms):
            return True
        if connection.is_paused or part.pace is None:
            # While this side does not read, nothing can arrive.
            part.pace = None if connection.is_paused else Pace(came, part.length - came, self._now)
            return False
        return not part.pace.is_kept(came, part.length - came, self._now, limit_ms)

    def _drop(self, connection: C, why: Drop, text: str) -> None:
        self._writing.pop(connection, None)
        self.backlogs.drop(connection)
        self.part_ended(connection, is_whole=False)
        self._on_drop(connection, why, text)
        connection.reset()  # otherwise the kernel would keep the accepted bytes while the peer does not read


WAITS_FOR_ROOM, WAITS_FOR_READER = 1, 2
"""Flags for the reasons not to read: no room for a frame, and a peer that does not read its replies."""
