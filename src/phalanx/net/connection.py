"""One asyncio connection that carries frames: reading, and writing once per loop turn. (The connecting side: `net.link`.)

What is sent within one turn of the event loop leaves in one write, or in a few when it is much. Buffers for a peer that
does not read, or does not finish what it has begun to send, are bounded by `net.flow`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.common.errors import OutOfMemory, ProtocolError
from phalanx.common.ids import Target
from phalanx.net.connection_abort import NEVER_SENT
from phalanx.net.encrypted_records import RecordLayer
from phalanx.net.flow import Drop, Flow, Limits
from phalanx.net.forking import let_go, tell_forks
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.secret import Secret
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder
from phalanx.wire.messages import Handshake, Message

LARGE_FRAME_BYTES = 16 * 1024
"""Frames up to this length are joined for writing, which costs less than to write each; longer ones are not worth a copy."""
WRITE_AT_BYTES = 1024 * 1024
"""So much of larger frames is written without waiting for the end of the turn."""


def reason_of(error: OSError) -> str:
    """Return what the system says went wrong, without the event loop's words around it."""
    return os.strerror(error.errno) if error.errno else str(error)


def reraise(error: BaseException) -> None:
    """Leave an error to the event loop, which tells it and goes on."""
    raise error


class ConnectionGroup:
    """What the connections of one member or client share: frame limit, secret, budgets, and one flush for each turn of
    the loop."""

    def __init__(
        self,
        max_frame_bytes: int,
        secret: Secret | None = None,
        limits: Limits = Limits(),  # noqa: B008  # immutable
        on_drop: Callable[[FrameConnection, Drop, str], None] = lambda connection, why, text: None,
        on_no_descriptor: Callable[[Target, str], None] = lambda target, reason: None,
        on_failure: Callable[[BaseException], None] = reraise,
    ) -> None:
        """`on_drop`: see `Flow`. `on_no_descriptor` is told whom to connect to there was no descriptor, and why.
        `on_failure` gets every error that is nobody's fault but ours."""
        self.max_frame_bytes = max_frame_bytes
        self.secret = secret
        """The cluster's; None: it has none."""
        self.on_failure = on_failure
        self.loop = asyncio.get_running_loop()
        self.flow: Flow[FrameConnection] = Flow(self.loop, self.call, limits, on_drop)
        self.on_no_descriptor = on_no_descriptor
        self._due: list[FrameConnection] = []
        self.open: set[FrameConnection] = set()
        """Those that have a transport: also the ones that were given up, and still write what they have."""
        self._published: tuple[Message | None, bytearray] = (None, bytearray())
        """The last list or table that was sent, and its frame: n members get it, and it names n members."""
        tell_forks(self)

    def on_forked(self) -> None:
        """Give up in a forked process: the connections are the parent's, and end when it ends."""
        if self.loop.is_closed():
            return  # connections that were not told of their end may know numbers that are somebody else's now
        let_go(connection.descriptor for connection in self.open)

    def published_frame(self, message: Message) -> bytearray:
        """The frame of a message that goes to everybody, encoded for the first receiver only."""
        published, frame = self._published
        if published is not message:
            frame = encode_frame(message, self.max_frame_bytes)
            self._published = message, frame
        return frame

    def flush_soon(self, connection: FrameConnection) -> None:
        """Let the connection write when this turn is over."""
        if not self._due:
            self.loop.call_soon(self.call, self._flush)
        self._due.append(connection)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call what the loop is to call. What it raises would only be told by the loop, which goes on: here it does not."""
        try:
            function(*arguments)
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Hand over an error. One that is to stop the whole program is raised all the same."""
        self.on_failure(error)
        if not isinstance(error, Exception):
            raise error

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
        self._reader: FrameReader[Any] = FrameReader(self.decoder, group.max_frame_bytes)
        """Of what follows the greeting."""
        self._records: RecordLayer | None = None
        """Protects what follows the greeting; None: the greeting is not over, or there is no secret."""
        self._out: list[bytes | bytearray] = []
        """Frames for the next write."""
        self._queued = 0
        """Bytes of the large ones among these frames."""
        self.written = 0
        """Bytes handed to the transport since the connection was made."""
        self._pauses = 0
        """Why nothing is read from the peer, as flags (`net.flow`)."""
        self._flush_is_due = False
        """Whether something will flush in this turn anyway: it was scheduled, or data is being received."""
        self._is_backed_up = False
        """Whether the peer reads more slowly than this side writes."""
        self.is_closing = False
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

    def on_opened(self) -> None:
        """The connection is there."""
        if self.is_closing:
            self.abort()
        self.flush()

    def on_closed(self, error: Exception | None) -> None:
        """The connection is gone."""

    @property
    def is_of_member(self) -> bool:
        """Whether the peer is a member of the cluster, which has budgets of its own."""
        return False

    def peer_host(self) -> str:
        """Return the peer's host."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(peer[0]) if peer else "somewhere"

    @property
    def descriptor(self) -> int:
        """The number of the connection's file; -1: it is closed."""
        # uvloop knows no socket any more when the transport is closing.
        held = self.transport.get_extra_info("socket") if self.transport is not None else None
        return int(held.fileno()) if held is not None else -1

    def greeted(self, records: RecordLayer | None) -> None:
        """The greeting is over: what follows are messages, in records if there is a secret."""
        self.flush()  # what was said up to here is in no record
        self._records = records
        self._reader = FrameReader(self.decoder, self._max_frame_bytes)
        self.is_greeted = True

    # --- sending ---------------------------------------------------------------------------------------------------

    def queue(self, message: Message | Handshake) -> None:
        """Send in this turn of the loop. Raises `EntryTooLarge` for a message over the frame limit."""
        frame = encode_frame(message, self._max_frame_bytes)
        self._out.append(frame)
        if len(frame) > LARGE_FRAME_BYTES:
            self._large_was_queued(frame)
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def _queue_frame(self, frame: bytes | bytearray) -> None:
        """Queue a message that has been encoded, like `queue`."""
        self._out.append(frame)
        if len(frame) > LARGE_FRAME_BYTES:
            self._large_was_queued(frame)
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def _large_was_queued(self, frame: bytes | bytearray) -> None:
        """Count the frame, and write when it is much: then the kernel says whether the peer reads."""
        self._queued += len(frame)
        if self._queued >= WRITE_AT_BYTES:
            self.flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def flush(self) -> None:
        """Write what was queued."""
        self._flush_is_due = False
        out, transport = self._out, self.transport
        if not out or transport is None:
            return
        if self.is_closing:
            pass  # nobody will get it
        elif self._records is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            self._queued = 0
            self.written += len(data)
            transport.write(self._records.seal(data))
        elif self._queued:
            self._queued = 0
            self.written += sum(map(len, out))
            transport.writelines(out)
        else:
            data = out[0] if len(out) == 1 else b"".join(out)
            self.written += len(data)
            transport.write(data)
        out.clear()
        if self._is_backed_up:
            self._group.flow.wrote(self)

    @property
    def backlog(self) -> int:
        """Bytes that wait to be written to the peer."""
        return self._queued + (self.transport.get_write_buffer_size() if self.transport is not None else 0)

    # --- not reading -------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether this side does not read at present."""
        return self._pauses != 0

    @property
    def has_part(self) -> bool:
        """Whether a frame, or the record that it comes in, has come in part."""
        return bool(self._reader.rest) or (self._records is not None and self._records.part_bytes > 0)

    @property
    def part_bytes(self) -> int:
        """Return how many bytes of an incomplete frame have come, with those that are not verified yet."""
        return len(self._reader.rest) + (self._records.part_bytes if self._records is not None else 0)

    @property
    def part_length(self) -> int:
        """Return the length of that frame or, as long as it is unknown, of the record that it comes in; 0: unknown."""
        announced, records = self._reader.announced_bytes, self._records
        if announced or records is None or not records.part_bytes:
            return announced
        return records.part_bytes + records.missing

    def pause(self, why: int) -> None:
        """Do not read from the peer until `resume` is called for the same reason."""
        if not self._pauses and self.transport is not None:
            self.transport.pause_reading()
        self._pauses |= why

    def resume(self, why: int) -> None:
        """Read again, unless there is another reason not to."""
        if self._pauses & why:
            self._pauses &= ~why
            if not self._pauses and self.transport is not None:
                self.transport.resume_reading()

    def close(self) -> None:
        """Write what is queued, then close."""
        if self.transport is not None:
            self.flush()
            self.transport.close()
            self.is_closing = True

    def abort(self) -> None:
        """Close at once, or as soon as the connection is made."""
        self.is_closing = True
        self._reader.rest.clear()
        if self.transport is not None:
            self.transport.abort()

    def reset(self) -> None:
        """Close at once, and see to it that what the peer has not got yet never reaches it (`NEVER_SENT`)."""
        if self.transport is not None:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NEVER_SENT)
        self.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a stream transport, as made by the loop
        self._group.open.add(self)
        self._group.call(self.on_opened)

    def pause_writing(self) -> None:
        self._is_backed_up = True
        self._group.call(self._group.flow.wrote, self)

    def resume_writing(self) -> None:
        self._is_backed_up = False
        self._group.call(self._group.flow.drained, self)

    def data_received(self, data: bytes) -> None:
        if self.is_closing:
            return
        self._flush_is_due = True
        try:
            try:
                if not self.is_greeted:
                    data = self._take_greeting(data)
                if self.is_greeted:
                    self.on_messages(self._read(data))
            except ProtocolError as error:
                self.on_broken_protocol(error)
                self.close()
            else:
                self.flush()
        except BaseException as error:
            self._group.failed(error)

    def _read(self, data: bytes) -> list[Any]:
        """The messages that are whole now. Raises `ProtocolError`, also where there is no memory for a frame: then nothing
        of it was done, and only its sender need be given up."""
        try:
            return self._reader.feed(data if self._records is None else self._records.feed(data))
        except MemoryError as error:
            self._reader = FrameReader(self.decoder, self._max_frame_bytes)  # lets go of what it holds
            raise OutOfMemory("there is no memory for a frame of the peer") from error

    def _take_greeting(self, data: bytes) -> bytes:
        """Read a frame of the greeting. What stands behind it, once the greeting is over."""
        try:
            message = self._greetings.take(data)
        except MemoryError as error:
            raise OutOfMemory("there is no memory for a frame of the peer") from error
        if message is not None:
            self.on_greeting(message)
        return self._greetings.rest

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._group.open.discard(self)
        self._out.clear()
        self._queued = 0
        self._group.call(self._closed, exc)

    def _closed(self, error: Exception | None) -> None:
        self._group.flow.gone(self)
        self.on_closed(error)
