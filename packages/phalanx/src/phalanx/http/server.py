"""The server of a member's HTTP port, in the member's own event loop: uvicorn's protocol, with limits, and isolated from the grid.

The port must never harm the grid. So connections are few (`acceptor`), no task waits long for a request that does not come, and an error in
a callback of the server breaks off one connection: from the member's loop it would end the member, as any error in its own code does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any, cast

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from phalanx.common.errors import UsageError
from phalanx.http.acceptor import HttpAcceptor, Served
from phalanx.http.access import Access
from phalanx.http.api import Api
from phalanx.http.console.console import ConsolePage
from phalanx.http.metric_families import Sources
from phalanx.http.metrics import Metrics
from phalanx.http.probes import Probes
from phalanx.http.served_member import Questions, ServedMember
from phalanx.http.shared_answer import log_failure
from phalanx.net.connection import listening_advice, reason_of

logger = logging.getLogger("phalanx.http")
silent = logging.getLogger("phalanx.http.protocol")
silent.setLevel(logging.CRITICAL + 1)  # a line for each bad request would let strangers fill the log

REQUEST_WITHIN_S = 10.0
"""A connection on which no complete request has come by then is closed; so is one that is idle after its last one."""
END_WITHIN_S = 1
MOST_UNREAD_BYTES = 24 * 1024
"""Of one connection: the head of a request with its longest query, or what a program has sent ahead."""
BLANKS = b" " * 256
"""So many on end are refused: before a wrong byte, h11's pattern of a header takes time by their square, 7 s for 60,000."""


class FencedProtocol(H11Protocol, Served):
    """One connection. What fails in it ends it, and nothing else."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = silent  # that of uvicorn is the embedding program's
        self._waits: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        with self._fence(transport):
            super().connection_made(transport)
            self._wait()

    @property
    def is_busy(self) -> bool:
        """Return whether a request is under way."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def drop_at(self) -> float:
        """Return the time of the loop at which it is broken off if it stays without a request."""
        return self._waits.when() if self._waits is not None else 0.0

    def _wait(self) -> None:
        """Break the connection off later, unless a request is under way by then."""
        if self._waits is not None:
            self._waits.cancel()
        self._waits = self.loop.call_later(REQUEST_WITHIN_S, self._on_late)

    def _on_late(self) -> None:
        with self._fence(self.transport):
            if self.is_busy:
                self._wait()
            else:
                self.abort()

    def abort(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
        self.connections.discard(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            return
        with self._fence(self.transport):
            super().data_received(data)

    def handle_events(self) -> None:
        unread, _ = self.conn.trailing_data
        if len(unread) <= MOST_UNREAD_BYTES and (self.conn.their_state is not h11.IDLE or _is_quick_to_read(unread)):
            super().handle_events()
        elif self.is_busy:
            self.abort()
        else:
            said = (
                f"of a request {MOST_UNREAD_BYTES >> 10} KiB are read, without long blanks and pieces of unknown length"
            )
            self.send_400_response(f"{said}\n")

    def eof_received(self) -> None:
        with self._fence(self.transport):
            super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waits is not None:
            self._waits.cancel()
        if self.transport is not None:
            with self._fence(self.transport):
                super().connection_lost(exc)

    def on_response_complete(self) -> None:
        with self._fence(self.transport):
            if self.conn.their_state is h11.SEND_BODY:
                self.transport.close()  # what comes behind the body would be read as the next head in the same turn
            super().on_response_complete()
            self._wait()

    def timeout_keep_alive_handler(self) -> None:
        with self._fence(self.transport):
            super().timeout_keep_alive_handler()

    @contextlib.contextmanager
    def _fence(self, transport: asyncio.Transport) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            logger.warning("a connection to the HTTP port is broken off: %r", error)
            transport.abort()


def _is_quick_to_read(unread: bytes) -> bool:
    """Return whether h11 reads the next head in time that is in proportion to its length, and no further ones in its body."""
    head = unread.partition(b"\r\n\r\n")[0].lower()
    return BLANKS not in head.replace(b"\t", b" ") and b"\ntransfer-encoding" not in head


class _Begun:
    """Lets only the probes through that need no node, as long as the member has none."""

    def __init__(self, app: ASGIApp, member: ServedMember) -> None:
        self._app, self._member = app, member

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (why := self._member.not_begun) and scope["path"] not in ("/livez", "/readyz"):
            await PlainTextResponse(f"{why}\n", 503)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class HttpServer:
    """The HTTP port of one member."""

    def __init__(
        self,
        sources: Sources,
        cluster: str,
        host: str,
        ports: range,
        token: bytes | None,
        tls: ssl.SSLContext | None,
        most_connections: int,
        *,
        may_look: bool,
        may_change: bool,
    ) -> None:
        """`may_look`, `may_change`: whether the console shows entries of maps, and changes their settings.

        `ports`: the first free one is taken. `token`: what requests must bear; None: nothing. `tls`: None: plain HTTP."""
        self._host, self._ports, self._tls, self._most = host, ports, tls, most_connections
        questions = Questions(sources.member, sources.ask)
        probes, api = (
            Probes(sources.member, questions),
            Api(sources.member, questions, cluster, has_token=token is not None),
        )
        self._metrics = Metrics(sources, questions)
        # Probes and scrapers find a place beside the consoles.
        self._console = ConsolePage(
            sources, questions, cluster, most_connections // 2, may_look=may_look, may_change=may_change
        )
        app = Starlette(
            routes=[
                *probes.routes(),
                Route("/metrics", self._metrics.respond),
                *api.routes(),
                *self._console.routes(),
            ]
        )
        free = frozenset(each.path for each in probes.routes())
        self._app = Access(_Begun(app, sources.member), token, frozenset({host}), free, self._console.streams)
        self._socket: socket.socket | None = None
        self._acceptor: HttpAcceptor[FencedProtocol] | None = None
        self._state = ServerState()
        """The open connections, and the requests under way."""
        self._ending: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """Return the port at which it listens; 0: it does not."""
        return cast(int, self._socket.getsockname()[1]) if self._socket is not None else 0

    def bind(self) -> None:
        """Take a port. Raises `UsageError` if none is free."""
        problem = OSError("there is no port")
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        for port in self._ports:
            try:
                self._socket = socket.create_server((self._host, port), family=family, backlog=self._most)
                self._socket.setblocking(False)
                return
            except OSError as error:
                problem = error
        where = f"{self._ports[0]}" if len(self._ports) == 1 else f"{self._ports[0]} to {self._ports[-1]}"
        raise UsageError(
            f"http_port: cannot listen on {self._host}:{where}: {reason_of(problem)}; {listening_advice(problem)}"
        )

    async def start(self) -> None:
        """Serve at the port that was taken. Until the member has begun, only probes are answered."""
        if self._socket is None or self._acceptor is not None:
            return  # the member has ended meanwhile; or it serves already
        config = uvicorn.Config(
            self._app, http=FencedProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False, date_header=False, timeout_keep_alive=int(REQUEST_WITHIN_S),
            h11_max_incomplete_event_size=MOST_UNREAD_BYTES,
        )  # fmt: skip
        config.load()
        loop = asyncio.get_running_loop()

        def accept() -> FencedProtocol:
            return FencedProtocol(config=config, server_state=self._state, app_state={}, _loop=loop)

        connections = cast(set[FencedProtocol], self._state.connections)
        self._acceptor = HttpAcceptor(self._socket, accept, connections, self._most, self._tls)
        self._acceptor.begin()

    def begin(self) -> None:
        """Begin to measure: the member has begun."""
        if self._socket is not None:
            self._metrics.begin()
            self._console.begin()

    def end_soon(self) -> None:
        """Stop listening. What is under way is answered, for a second at most."""
        if self._socket is None or self._ending is not None:
            return
        self._metrics.end()
        self._console.end()
        if self._acceptor is None:
            self._socket.close()
        else:
            self._acceptor.end()
            self._ending = asyncio.create_task(self._end())
            self._ending.add_done_callback(log_failure)
        self._socket = None

    async def _end(self) -> None:
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=END_WITHIN_S)
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def wait_ended(self) -> None:
        """Wait until nothing is served any more."""
        self.end_soon()
        if self._ending is not None:
            await asyncio.wait([self._ending])
