"""One asyncio connection that carries frames: reading, writing once per loop turn, and the connecting side's greeting.

What is sent within one turn of the event loop leaves in one write. A peer that does not read is not buffered for
without limit: over `MAX_BACKLOG_BYTES` the connection is broken off, which its owner treats like any lost connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.common.errors import ProtocolError
from phalanx.common.ids import MemberId, Target, address_of, host_and_port
from phalanx.net.addresses import socket_address
from phalanx.net.greeting import GREETING_TIMEOUT_S, Connecting
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.leftovers import NEVER_SENT, undelivered
from phalanx.net.records import RecordLayer
from phalanx.net.secret import Secret
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder, reply_decoder
from phalanx.wire.messages import Handshake, MembersUpdate, Message, Proof, TableUpdate

MAX_BACKLOG_BYTES = 256 * 1024 * 1024
"""Unsent bytes to one peer after which it is given up."""
PUBLISHED = frozenset({MembersUpdate, TableUpdate})
"""Messages of which one object goes to all members."""


def reason_of(error: OSError) -> str:
    """What the system says went wrong, without the event loop's words around it."""
    return os.strerror(error.errno) if error.errno else str(error)


class ConnectionGroup:
    """What the connections of one member or client share: frame limit, secret, and one flush for each turn of the loop."""

    def __init__(self, max_frame_bytes: int, secret: Secret | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.secret = secret
        """The cluster's; None: it has none."""
        self.loop = asyncio.get_running_loop()
        self._due: list[FrameConnection] = []
        self._published: tuple[Message | None, bytes] = (None, b"")
        """The last list or table that was sent, and its frame: n members get it, and it names n members."""

    def published_frame(self, message: Message) -> bytes:
        """The frame of a message that goes to everybody, encoded for the first receiver only."""
        published, frame = self._published
        if published is not message:
            frame = encode_frame(message, self.max_frame_bytes)
            self._published = message, frame
        return frame

    def flush_soon(self, connection: FrameConnection) -> None:
        """Let the connection write when this turn is over."""
        if not self._due:
            self.loop.call_soon(self._flush)
        self._due.append(connection)

    def _flush(self) -> None:
        due, self._due = self._due, []
        for connection in due:
            connection.flush()


class FrameConnection(asyncio.Protocol):
    """Frames in both directions; subclasses say what a message means."""

    decoder: msgspec.msgpack.Decoder[Any] = message_decoder
    """Of what comes behind the greeting."""

    def __init__(self, group: ConnectionGroup) -> None:
        self._group = group
        self._max_frame_bytes = group.max_frame_bytes
        self._greetings = GreetingReader()
        self._reader: FrameReader[Any]
        """Of what follows the greeting."""
        self._records: RecordLayer | None = None
        """Protects what follows the greeting; None: the greeting is not over, or there is no secret."""
        self._out: list[bytes] = []
        """Frames for the next write."""
        self._flush_is_due = False
        """Whether something will flush in this turn anyway: it was scheduled, or data is being received."""
        self._is_backed_up = False
        """Whether the peer reads more slowly than this side writes."""
        self._is_closing = False
        """Whether this side has given the connection up: what still arrives is not looked at."""
        self.transport: asyncio.Transport | None = None
        self.is_greeted = False
        """Whether both sides know each other: only then do messages flow."""

    # --- what subclasses decide ------------------------------------------------------------------------------------

    def on_greeting(self, message: Handshake) -> None:
        """A frame of the peer before both sides know each other; `greeted` says when they do."""
        raise ProtocolError("this side of the connection expects no greeting")

    def on_messages(self, messages: list[Message]) -> None:
        """Frames after the greeting that arrived together; none, when only a part of one did."""
        raise ProtocolError("this side of the connection expects no messages")

    def on_broken_protocol(self, error: ProtocolError) -> None:
        """The peer sent something that is no message. The connection is closed after this."""

    def on_closed(self, error: Exception | None) -> None:
        """The connection is gone."""

    def greeted(self, records: RecordLayer | None) -> None:
        """The greeting is over: what follows are messages, in records if there is a secret."""
        self.flush()  # what was said up to here is in no record
        self._records = records
        self._reader = FrameReader(self.decoder, self._max_frame_bytes)
        self.is_greeted = True

    # --- sending ---------------------------------------------------------------------------------------------------

    def queue(self, message: Message | Handshake) -> None:
        """Send in this turn of the loop. Raises `EntryTooLarge` for a message over the frame limit."""
        self._out.append(encode_frame(message, self._max_frame_bytes))
        if not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def flush(self) -> None:
        """Write what was queued."""
        self._flush_is_due = False
        out, transport = self._out, self.transport
        if not out or transport is None:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        transport.write(data if self._records is None else self._records.seal(data))
        if self._is_backed_up and transport.get_write_buffer_size() > MAX_BACKLOG_BYTES:
            transport.abort()

    def close(self) -> None:
        """Write what is queued, then close."""
        if self.transport is not None:
            self.flush()
            self.transport.close()
            self._is_closing = True

    def abort(self) -> None:
        """Close at once."""
        if self.transport is not None:
            self.transport.abort()
            self._is_closing = True

    def reset(self) -> None:
        """Close at once, and see to it that what the peer has not got yet never reaches it (`NEVER_SENT`)."""
        if self.transport is not None:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NEVER_SENT)
            self.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a stream transport, as made by the loop
        self.flush()

    def pause_writing(self) -> None:
        self._is_backed_up = True

    def resume_writing(self) -> None:
        self._is_backed_up = False

    def data_received(self, data: bytes) -> None:
        if self._is_closing:
            return
        self._flush_is_due = True
        try:
            if not self.is_greeted:
                data = self._take_greeting(data)
            if self.is_greeted:
                if self._records is not None:
                    data = self._records.feed(data)
                self.on_messages(self._reader.feed(data))
        except ProtocolError as error:
            self.on_broken_protocol(error)
            self.close()
        else:
            self.flush()

    def _take_greeting(self, data: bytes) -> bytes:
        """Read a frame of the greeting. What stands behind it, once the greeting is over."""
        message = self._greetings.take(data)
        if message is not None:
            self.on_greeting(message)
        return self._greetings.rest

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._out.clear()
        self.on_closed(exc)


class Link(FrameConnection):
    """The connecting side. Messages that are queued before the peer has answered the greeting wait for it."""

    decoder = reply_decoder

    def __init__(
        self,
        target: Target,
        cluster: str,
        sender: str,
        group: ConnectionGroup,
        *,
        on_up: Callable[[Link], None],
        on_down: Callable[[Link, str], None],
        on_message: Callable[[Link, Message], None],
    ) -> None:
        """`on_down` gets the reason; whether the link was ever up is in `is_up`."""
        super().__init__(group)
        self.target = target
        self.member: MemberId | None = None
        """Who answered."""
        self.is_up = False
        self.was_refused_by_peer = False
        """Whether the peer answered and would not talk: trying again will not help."""
        self.is_misled = False
        """Whether that is because somebody who listens at the dialled address seems to pass connections on."""
        self.broke_protocol = False
        """Whether the connection was closed because what came on it was no message, or not the peer's."""
        self._greeting = Connecting(target, cluster, sender, group.secret)
        self._waiting: list[bytes] = []
        """Frames for after the greeting."""
        self._on_up, self._on_down, self._deliver = on_up, on_down, on_message
        self._is_down = False
        self._timer = self._group.loop.call_later(
            GREETING_TIMEOUT_S, self._fail, f"no answer within {GREETING_TIMEOUT_S:g} s"
        )
        self._task = self._group.loop.create_task(self._connect())

    def send(self, message: Message) -> None:
        """Send, as soon as the peer has answered the greeting. Raises `EntryTooLarge` over the frame limit."""
        if self.is_up:
            self.queue(message)
        else:
            self._waiting.append(encode_frame(message, self._max_frame_bytes))

    def publish(self, message: Message) -> None:
        """As `send`, for a message of which one object goes to many: it is encoded for the first of them only."""
        frame = self._group.published_frame(message)
        if not self.is_up:
            self._waiting.append(frame)
            return
        self._out.append(frame)
        if not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def forget(self) -> bool:
        """Whether the peer has not got everything yet: then it never will, and nobody is told."""
        transport = self.transport
        if (
            self.is_up
            and transport is not None
            and not (self._out or transport.get_write_buffer_size())
            and not undelivered(transport.get_extra_info("socket"))
        ):
            return False
        self._is_down = True
        self._timer.cancel()
        self._task.cancel()
        self.reset()
        return True

    def drop(self) -> None:
        """Close, and tell nobody."""
        self._is_down = True
        self._timer.cancel()
        self._task.cancel()
        self.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.queue(self._greeting.begin(socket_address(transport.get_extra_info("peername"))))
        self.flush()

    def on_greeting(self, message: Handshake) -> None:
        answer = self._greeting.answer(message)
        if isinstance(answer, Proof):
            self.queue(answer)
            return
        if answer is not None:
            self.is_misled = self._greeting.is_misled
            self.was_refused_by_peer = not (self.is_misled or self._greeting.is_itself)
            self._fail(answer)
            return
        self.greeted(self._greeting.records)
        self._timer.cancel()
        self.member = self._greeting.member
        self.is_up = True
        self._out += self._waiting
        self._waiting.clear()
        self._on_up(self)
        self.flush()

    def on_messages(self, messages: list[Message]) -> None:
        for message in messages:
            self._deliver(self, message)

    def on_broken_protocol(self, error: ProtocolError) -> None:
        self.broke_protocol = True
        self._fail(str(error))

    def on_closed(self, error: Exception | None) -> None:
        self._fail(str(error) if error is not None else "the peer closed the connection")

    async def _connect(self) -> None:
        host, port = host_and_port(address_of(self.target))  # type: ignore[arg-type]  # links go to members only
        try:
            await self._group.loop.create_connection(lambda: self, host, port)
        except OSError as error:
            self._fail(reason_of(error))

    def _fail(self, reason: str) -> None:
        """The link is over, once."""
        if self._is_down:
            return
        self.drop()
        self._on_down(self, reason)
