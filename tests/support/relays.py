"""A program without the secret that listens somewhere and passes connections on to a member.

    async with Relay(member.address) as relay:          # listens on a free port of 127.0.0.1
        ...  # somebody connects to relay.address
        (stolen,) = relay.connections

By default it *steals*: it passes the greeting on, and then keeps the connection to the member for itself. Given `tamper`, it
passes the records of both sides on, each as the function says.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Self

from phalanx.common.ids import Address, host_and_port
from phalanx.wire.codec import HEADER_BYTES, encode_frame, handshake_decoder
from phalanx.wire.messages import Handshake, Hello, Message, Welcome

TAG_BYTES = 16
GREETING_FRAMES = 2
"""Of each side, where there is a secret: Hello and Proof, Challenge and Welcome (or Refused)."""
Tamper = Callable[[str, int, bytes], list[bytes]]
"""From "in" (to the member) or "out", the number of the record, and the record, to what is passed on in its place."""

Pump = Callable[[str, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Passes on, from "in" or "out", what comes from the one end to the other."""


class Relayed:
    """One connection that was passed on."""

    def __init__(self) -> None:
        self.said: list[Handshake] = []
        """The frames of the greeting, of both sides."""
        self.heard = b""
        """What the member sent behind the greeting, when it was stolen."""
        self.greeted = asyncio.Event()
        """The greeting is over, one way or another."""
        self.closed = asyncio.Event()
        """The member has closed its end."""
        self.upstream: asyncio.StreamWriter | None = None

    @property
    def is_welcomed(self) -> bool:
        """Whether the member takes this for a connection of somebody who has the secret."""
        return any(isinstance(message, Welcome) for message in self.said)

    def is_over(self, receiver: str = "") -> bool:
        """Whether the greeting is over, and was meant for that receiver, if one is given."""
        hello = self.said[0] if self.said else None
        return self.greeted.is_set() and isinstance(hello, Hello) and receiver in ("", hello.receiver)

    def send(self, *messages: Message) -> None:
        """Have the thief say something to the member."""
        assert self.upstream is not None
        for message in messages:
            self.upstream.write(encode_frame(message))


async def _copy(way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


class Forwarder:
    """Passes bytes on and looks at none: a mapped port of a container, or a tunnel."""

    def __init__(self, target: str, at: str = "127.0.0.1:0") -> None:
        """Listens `at` this address, and connects to `target` for each connection."""
        self.target = target
        self._at = Address(at)
        self._tasks: set[asyncio.Future[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, *host_and_port(self._at), reuse_address=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        return f"{host_and_port(self._at)[0]}:{self.port}"

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pumps = self._pumps()
        up_reader, up_writer = await asyncio.open_connection(*host_and_port(Address(self.target)))
        self._writers += [writer, up_writer]
        for way, source, sink in (("in", reader, up_writer), ("out", up_reader, writer)):
            task = asyncio.ensure_future(pumps(way, source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pumps(self) -> Pump:
        """What passes on the bytes of a new connection."""
        return _copy


class Relay(Forwarder):
    """Listens on 127.0.0.1 unless told where, and connects to `target` for each connection."""

    def __init__(self, target: str, at: str = "127.0.0.1:0", tamper: Tamper | None = None) -> None:
        super().__init__(target, at)
        self.connections: list[Relayed] = []
        self._tamper = tamper

    async def one_over(self, receiver: str = "", deadline_s: float = 20.0) -> Relayed:
        """The first connection of which the greeting is over, meant for that receiver if one is given."""
        async with asyncio.timeout(deadline_s):
            while True:
                for each in self.connections:
                    if each.is_over(receiver):
                        return each
                await asyncio.sleep(0.01)

    def _pumps(self) -> Pump:
        relayed = Relayed()
        self.connections.append(relayed)
        return partial(self._pump, relayed)

    async def _pump(
        self, relayed: Relayed, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if way == "in":
                relayed.upstream = writer
            for _ in range(GREETING_FRAMES):
                frame = await _frame_of(reader, HEADER_BYTES)
                relayed.said.append(handshake_decoder.decode(frame[HEADER_BYTES:]))
                writer.write(frame)
            if way == "out":
                relayed.greeted.set()
            if self._tamper is not None:
                number = 0
                async for record in _records(reader):
                    for piece in self._tamper(way, number, record):
                        writer.write(piece)
                    number += 1
            elif way == "out":
                while data := await reader.read(65536):
                    relayed.heard += data
            else:
                return
        if way == "out":
            relayed.closed.set()
            relayed.greeted.set()
        writer.close()


async def _frame_of(reader: asyncio.StreamReader, header_bytes: int) -> bytes:
    head = await reader.readexactly(header_bytes)
    return head + await reader.readexactly(int.from_bytes(head[:HEADER_BYTES], "big"))


async def _records(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        yield await _frame_of(reader, HEADER_BYTES + TAG_BYTES)
