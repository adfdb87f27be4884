"""One asyncio connection that carries frames. (The connecting side is in `net.link`.)

All messages of one turn of the event loop leave in one write, or in a few if they are large or many. `net.flow` bounds
the buffers for a peer that does not read, or does not finish a frame that it has begun to send.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from phalanx.common.errors import OutOfMemory, ProtocolError
from phalanx.common.ids import Target
from phalanx.net.authenticated_records import RecordLayer
from phalanx.net.connection_abort import NEVER_SENT
from phalanx.net.dialing import Dialer
from phalanx.net.flow import Drop, Flow, Limits
from phalanx.net.forking import close_inherited, tell_forks
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.keepalive import keep_alive
from phalanx.net.secret import Secret
from phalanx.wire.codec import FrameReader, encode_frame, message_decoder
from phalanx.wire.messages import Handshake, Message

LARGE_FRAME_BYTES = 16 * 1024
"""Frames up to this length are joined for one write, which is cheaper than single writes; longer ones are not
copied."""
EARLY_FRAMES = 8
"""When this many frames for a member are queued, they are written before the end of the turn: the member works on them
while this one continues. Else the two would take turns under load, each idle while the other works."""
READ_BYTES = 64 * 1024
"""At most so many bytes are read from a connection at once. asyncio's own loop reads into new memory, of 256 KiB unless told otherwise:
so much the C library gets from the system for each request and gives back after it, in three system calls that cost more than all else
that a small request costs. uvloop reads into memory of its own."""
WRITE_AT_BYTES = 1024 * 1024
"""When this many bytes of larger frames are queued, they are written before the end of the turn."""

Dial = Callable[[Callable[[], asyncio.Protocol], str, int], Awaitable[object]]
"""Opens a connection to a host and port for the protocol that the function makes (`net.dialing`)."""


def reason_of(error: OSError) -> str:
    """Return the system's text for an error, without the text that the event loop adds."""
    if _is_of_name(error):
        return (error.strerror or str(error)).partition(" (while ")[0]
    return os.strerror(error.errno) if error.errno else str(error)


def _is_of_name(error: OSError) -> bool:
    """Return whether a name could not be looked up. The numbers of such errors are negative, and `os.strerror` does not know them."""
    return isinstance(error, socket.gaierror) or (error.errno or 0) < 0


def listening_advice(error: Exception) -> str:
    """Return what to do where a member cannot listen."""
    if isinstance(error, UnicodeError) or (isinstance(error, OSError) and _is_of_name(error)):
        return "give an address of this machine, or a name that it knows"
    return "choose another port, or 0 for any free one"


def reraise(error: BaseException) -> None:
    """Raise an error to the event loop, which logs it and continues."""
    raise error


class ConnectionGroup:
    """What the connections of one member or client share: frame limit, secret, budgets, and one flush per loop turn."""

    def __init__(
        self,
        max_frame_bytes: int,
        secret: Secret | None = None,
        limits: Limits = Limits(),  # noqa: B008  # immutable
        on_drop: Callable[[FrameConnection, Drop, str], None] = lambda connection, why, text: None,
        on_no_descriptor: Callable[[Target, str], None] = lambda target, reason: None,
        on_failure: Callable[[BaseException], None] = reraise,
        dial: Dial | None = None,
    ) -> None:
        """`on_drop`: see `Flow`. `on_no_descriptor` is called with a target for which there was no descriptor, and the
        system's text. `on_failure` gets every unexpected error in a callback: a defect of this program. `dial`: what links open
        their connections with; None: a `Dialer` of its own."""
        self.max_frame_bytes = max_frame_bytes
        self.secret = secret
        """The cluster's secret; None: it has none."""
        self.on_failure = on_failure
        self.loop = asyncio.get_running_loop()
        self.dial: Dial = dial if dial is not None else Dialer(self.loop).dial
        self.flow: Flow[FrameConnection] = Flow(self.loop, self.call, limits, on_drop)
        self.on_no_descriptor = on_no_descriptor
        self.before_output: Callable[[], object] | None = None
        """Called before any bytes of this group's connections leave: what they tell of is to be on the disk first. None: there is no disk."""
        self.gathers_output: Callable[[], bool] | None = None
        """Returns whether `before_output` has something to do that takes a while: then what could be sent at once waits for the end of
        the turn, so that it is done once for all connections. None: never."""
        self._due: list[FrameConnection] = []
        self.open: set[FrameConnection] = set()
        """The connections with a transport, also given-up ones that still write their queued bytes."""
        self._published: tuple[Message | None, bytearray] = (None, bytearray())
        """The last view or table that was sent, and its frame, which all n members get: its length grows with n."""
        tell_forks(self)

    def on_forked(self) -> None:
        """Release all connections in a forked process: they are the parent's, and must end when it ends."""
        if self.loop.is_closed():
            return  # the loop is closed: the descriptor numbers of these connections can belong to others now
        close_inherited(connection.descriptor for connection in self.open)

    def published_frame(self, message: Message) -> bytearray:
        """Return the frame of a message to all members; it is encoded only for the first receiver."""
        published, frame = self._published
        if published is not message:
            frame = encode_frame(message, self.max_frame_bytes)
            self._published = message, frame
        return frame

    def flush_soon(self, connection: FrameConnection) -> None:
        """Schedule a flush of the connection at the end of this turn."""
        if not self._due:
            self.loop.call_soon(self.call, self._flush)
        self._due.append(connection)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function for the loop. The loop would only log its errors and continue; here `failed` gets them."""
        try:
            function(*arguments)
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Pass an error to `on_failure`. Errors that must stop the whole program are raised, too."""
        self.on_failure(error)
        if not isinstance(error, Exception):
            raise error

    def _flush(self) -> None:
        due, self._due = self._due, []
        for connection in due:
            connection.flush()


class FrameConnection(asyncio.Protocol):
    """A connection with frames in both directions. Subclasses handle the messages."""

    writes_early = False
    """Whether many frames are written before the end of the turn."""
    decoder: msgspec.msgpack.Decoder[Any] = message_decoder
    """Decodes the messages after the greeting."""

    def __init__(self, group: ConnectionGroup) -> None:
        self._group = group
        self._max_frame_bytes = group.max_frame_bytes
        self._greetings = GreetingReader()
        self._reader: FrameReader[Any] = FrameReader(self.decoder, group.max_frame_bytes)
        """Reads the frames after the greeting."""
        self._records: RecordLayer | None = None
        """Protects the bytes after the greeting; None: the greeting is not over, or there is no secret."""
        self._out: list[bytes | bytearray] = []
        """Frames for the next write."""
        self._queued = 0
        """The bytes of the large ones among these frames."""
        self.written = 0
        """How many bytes the transport got since the connection was made."""
        self._pauses = 0
        """The reasons why nothing is read from the peer, as flags (`net.flow`)."""
        self._flush_is_due = False
        """Whether this turn will flush anyway: a flush was scheduled, or data is being received."""
        self._is_backed_up = False
        """Whether the peer reads more slowly than this side writes."""
        self.is_closing = False
        """Whether this side has given the connection up: it ignores what still arrives."""
        self.transport: asyncio.Transport | None = None
        self.is_greeted = False
        """Whether the greeting is over: only then are messages sent and received."""

    # --- what subclasses decide ------------------------------------------------------------------------------------

    def on_greeting(self, message: Handshake) -> None:
        """Handle a frame of the greeting; call `greeted` when the greeting is over."""
        raise ProtocolError("this side of the connection expects no greeting")

    def on_messages(self, messages: list[Message]) -> None:
        """Handle messages that arrived together after the greeting; none, if only a part of one arrived."""
        raise ProtocolError("this side of the connection expects no messages")

    def on_broken_protocol(self, error: ProtocolError) -> None:
        """Handle an invalid message of the peer. The connection is closed after this."""

    def on_opened(self) -> None:
        """Handle that the connection is established."""
        self._keep_alive()
        if self.is_closing:
            self.abort()
        self.flush()

    def _keep_alive(self) -> None:
        held = self.transport.get_extra_info("socket") if self.transport is not None else None
        if held is not None:
            with contextlib.suppress(OSError):  # the peer has closed the connection already
                keep_alive(held, self._group.flow.limits.tcp_keepalive_ms)

    def on_closed(self, error: Exception | None) -> None:
        """Handle that the connection is closed."""

    @property
    def is_of_member(self) -> bool:
        """Return whether the peer is a member of the cluster, which has budgets of its own."""
        return False

    def peer_host(self) -> str:
        """Return the peer's host."""
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(peer[0]) if peer else "somewhere"

    @property
    def descriptor(self) -> int:
        """Return the number of the socket; -1: it is closed."""
        # uvloop does not give the socket of a transport that is closing.
        held = self.transport.get_extra_info("socket") if self.transport is not None else None
        return int(held.fileno()) if held is not None else -1

    def greeted(self, records: RecordLayer | None) -> None:
        """End the greeting: messages follow, in records if there is a secret."""
        self.flush()  # frames of the greeting are not in records
        self._records = records
        self._reader = FrameReader(self.decoder, self._max_frame_bytes)
        self.is_greeted = True

    # --- sending ---------------------------------------------------------------------------------------------------

    def queue(self, message: Message | Handshake) -> None:
        """Send a message in this turn of the loop. Raises `EntryTooLarge` if it is over the frame limit."""
        frame = encode_frame(message, self._max_frame_bytes)
        self._out.append(frame)
        if len(frame) > LARGE_FRAME_BYTES:
            self._large_was_queued(frame)
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)
        elif self.writes_early and len(self._out) >= EARLY_FRAMES:
            self.write_early()

    def _queue_frame(self, frame: bytes | bytearray) -> None:
        """Queue an encoded message, as `queue` does."""
        self._out.append(frame)
        if len(frame) > LARGE_FRAME_BYTES:
            self._large_was_queued(frame)
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def _large_was_queued(self, frame: bytes | bytearray) -> None:
        """Count a large frame, and write if many bytes are queued: then the kernel shows whether the peer reads."""
        self._queued += len(frame)
        if self._queued >= WRITE_AT_BYTES:
            self.flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            self._group.flush_soon(self)

    def write_early(self) -> None:
        """Write the queued frames now, if nothing is before them. (The loop's transport would write at the end of the
        turn.)"""
        transport = self.transport
        if not self._out or transport is None or self.is_closing or self._queued or transport.get_write_buffer_size():
            return
        if self._group.before_output is not None:
            self._group.before_output()
        data = b"".join(self._out)
        self._out.clear()
        if self.is_closing:
            return  # what it tells of is not on the disk
        self.written += len(data)
        if self._records is not None:
            data = self._records.sign(data)
        try:
            sent = os.write(self.descriptor, data)
        except OSError:  # no room, or the connection is lost: the transport finds out
            sent = 0
        if sent < len(data):
            transport.write(data[sent:])

    def flush(self) -> None:
        """Write the queued frames."""
        self._flush_is_due = False
        out, transport = self._out, self.transport
        if not out or transport is None:
            return
        if self._group.before_output is not None:
            self._group.before_output()
        if self.is_closing:
            pass  # nobody will get it
        elif self._records is not None:
            data = out[0] if len(out) == 1 else b"".join(out)
            self._queued = 0
            self.written += len(data)
            transport.write(self._records.sign(data))
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
        """Return how many bytes wait to be written to the peer."""
        return self._queued + (self.transport.get_write_buffer_size() if self.transport is not None else 0)

    # --- not reading -------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Return whether this side does not read now."""
        return self._pauses != 0

    @property
    def has_part(self) -> bool:
        """Return whether a frame, or its record, has arrived in part."""
        return bool(self._reader.rest) or (self._records is not None and self._records.part_bytes > 0)

    @property
    def part_bytes(self) -> int:
        """Return how many bytes of an incomplete frame have arrived, with those that are not verified yet."""
        return len(self._reader.rest) + (self._records.part_bytes if self._records is not None else 0)

    @property
    def part_length(self) -> int:
        """Return the length of the incomplete frame or, while that is unknown, of its record; 0: unknown."""
        announced, records = self._reader.announced_bytes, self._records
        if announced or records is None or not records.part_bytes:
            return announced
        return records.part_bytes + records.missing

    def pause(self, why: int) -> None:
        """Stop reading from the peer until `resume` is called with the same reason."""
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
        """Reset the connection: bytes that the peer has not got yet will never reach it (`NEVER_SENT`)."""
        if self.transport is not None:
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NEVER_SENT)
        self.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]  # a stream transport, as made by the loop
        with contextlib.suppress(AttributeError):  # uvloop's have none
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of asyncio's own transports only
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
                if self._out:
                    self.flush()
                else:  # a write that waits for its backups has no answer yet
                    self._flush_is_due = False
        except BaseException as error:
            self._group.failed(error)

    def _read(self, data: bytes) -> list[Any]:
        """Return the complete messages. Raises `ProtocolError`, also if there is no memory for a frame: none of its
        messages was handled, so it is enough to close this connection."""
        try:
            return self._reader.feed(data if self._records is None else self._records.feed(data))
        except MemoryError as error:
            self._reader = FrameReader(self.decoder, self._max_frame_bytes)  # frees the memory of the old one
            raise OutOfMemory("there is no memory for a frame of the peer") from error

    def _take_greeting(self, data: bytes) -> bytes:
        """Read the greeting's frames. When the greeting is over, return the bytes after it."""
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
