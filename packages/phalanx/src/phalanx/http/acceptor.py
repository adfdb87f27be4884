"""Accept connections at the HTTP port: each takes a place first, and only then begins the TLS handshake.

The loop's own server counts a connection when its handshake is over. Until then, a minute with the loop's default, silent ones would
take the descriptors of the grid's port. So connections are accepted plain, one a turn, and those in their handshake have at most half of
the places, for the work that they cause comes in one turn, too. The oldest of them makes place for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

from phalanx.http.shared_answer import log_failure

HANDSHAKE_WITHIN_S: Final = 5.0
PAUSE_S: Final = 1.0
"""Without a descriptor for one more nothing is accepted for so long."""


class Served(asyncio.BaseProtocol, ABC):
    """The protocol of one connection."""

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether a request is under way."""

    @property
    @abstractmethod
    def drop_at(self) -> float:
        """The time of the loop at which it is broken off if it stays without a request."""

    @abstractmethod
    def abort(self) -> None:
        """Close at once."""


S = TypeVar("S", bound=Served)


class HttpAcceptor(Generic[S]):
    """The listening socket of one HTTP port, and the connections that are in their handshake."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], S],
        served: Collection[S],
        most: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        """`make`: makes the protocol of a connection. `served`: all of which the handshake, if they need one, is over, and that are open. `most`: places of both kinds together."""
        self._listening, self._make, self._served, self._most, self._tls = listening, make, served, most, tls
        self._loop = asyncio.get_running_loop()
        self._beginning: dict[asyncio.Task[None], tuple[socket.socket, S]] = {}
        """The tasks that see a connection through its handshake, oldest first."""
        self._pause: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Accept connections from now on."""
        self._pause = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def end(self) -> None:
        """Stop listening, and break off those that are in their handshake."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        for task in self._beginning:
            task.cancel()

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # it has gone again
        except OSError:
            self._loop.remove_reader(self._listening.fileno())
            self._pause = self._loop.call_later(PAUSE_S, self.begin)
            return
        if not self._make_place():
            connection.close()
            return
        connection.setblocking(False)
        protocol = self._make()
        task = self._loop.create_task(self._hand_over(connection, protocol))
        self._beginning[task] = connection, protocol
        task.add_done_callback(self._on_over)

    async def _hand_over(self, connection: socket.socket, protocol: S) -> None:
        limit = None if self._tls is None else HANDSHAKE_WITHIN_S
        with contextlib.suppress(OSError):  # so is a handshake that fails, or takes too long: the peer has seen it
            await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=limit
            )

    def _on_over(self, task: asyncio.Task[None]) -> None:
        connection, _ = self._beginning.pop(task)
        if task.cancelled() or task.exception() is not None:
            connection.close()
        log_failure(task)

    def _make_place(self) -> bool:
        """Break off connections until there is a place for one more; False: all have a request under way."""
        waiting = [
            task for task, (_, its) in self._beginning.items() if its not in self._served and not task.cancelling()
        ]
        if self._tls is not None and len(waiting) >= max(self._most // 2, 1):
            waiting.pop(0).cancel()
        if len(waiting) + len(self._served) < self._most:
            return True
        idle = [each for each in self._served if not each.is_busy]
        if idle:
            min(idle, key=lambda each: each.drop_at).abort()
        elif waiting:
            waiting[0].cancel()
        return bool(idle or waiting)
