"""Close connections of clients that have been idle for longer than `client_idle_timeout_ms`, because they take places.

Each request has an answer, so a connection on which nothing was written is idle. Written bytes are counted in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Context

from phalanx.net.connection import ConnectionGroup, FrameConnection
from phalanx.runtime.connections.overload import Overload

LOOKS = 4
"""How often the connections are looked at within the limit."""


class IdleClients:
    """The limit of the connections of clients of one member, native and others."""

    def __init__(
        self, group: ConnectionGroup, overload: Overload, clients: Callable[[], Iterable[FrameConnection]]
    ) -> None:
        """`clients`: returns the connections whose peers have shown that they are clients."""
        self._group, self._overload, self._clients = group, overload, clients
        self._limit_s = group.flow.limits.client_idle_timeout_ms / 1000
        self._seen: dict[FrameConnection, tuple[int, float]] = {}
        """Connection to what was written on it at the last look, and since when it is no more."""
        self._is_watching = False

    def watch(self) -> None:
        """Look at the connections from time to time, as long as there are any."""
        if self._limit_s and not self._is_watching:
            self._is_watching = True
            self._group.loop.call_later(self._limit_s / LOOKS, self._group.call, self.look, context=Context())

    def look(self) -> None:
        """Close what has been at rest for too long."""
        self._is_watching = False
        now_s, seen = self._group.loop.time(), self._seen
        self._seen = {}
        for connection in self._clients():
            written, since_s = seen.get(connection, (-1, now_s))
            if connection.written != written:
                written, since_s = connection.written, now_s
            if now_s - since_s >= self._limit_s:
                self._overload.idled(connection.peer_host(), self._limit_s)
                connection.close()
            else:
                self._seen[connection] = written, since_s
        if self._seen:
            self.watch()
