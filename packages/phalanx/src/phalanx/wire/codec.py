"""Frames: a 4-byte big-endian length and one message in MessagePack.

A frame that is too long or does not decode is a `ProtocolError` of that connection only. The limit protects memory: it
is checked on the four bytes of the length, before anything is buffered.

Most reads bring whole frames, and most writes are one frame, so the code handles these cases first and by short paths.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeVar

import msgspec

from phalanx.common.errors import EntryTooLarge, ProtocolError, UsageError
from phalanx.common.words import quoted
from phalanx.wire.limits import MAX_PLAIN_FRAME_BYTES
from phalanx.wire.messages import ClientRequest, Handshake, Message, Reply
from phalanx.wire.refused import refusal_by_length, refusal_of

DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024
HEADER_BYTES = 4
COPIED_BYTES = 64 * 1024
"""A frame up to this length is copied out of the read data: that costs less than a `memoryview` of it."""

_LENGTH = struct.Struct(">I")
_put_length = _LENGTH.pack_into
_length_at = _LENGTH.unpack_from
# Not `encode`: if its result does not fit into memory, msgspec 0.22 ends the process with a segmentation fault.
_encode_into = msgspec.msgpack.Encoder().encode_into
_EMPTY = bytes(64)
"""The initial buffer of a frame: short frames need no more room."""
message_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
request_decoder: msgspec.msgpack.Decoder[ClientRequest] = msgspec.msgpack.Decoder(ClientRequest)
"""Decodes what clients send; messages that only members can send are not decoded."""
reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
"""Decodes what the connecting side gets after the handshake: replies. Members send on their own connections."""
handshake_decoder: msgspec.msgpack.Decoder[Handshake] = msgspec.msgpack.Decoder(Handshake)

M = TypeVar("M")


def encode_frame(message: Message | Handshake, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> bytearray:
    """Encode one message as a frame. Raises `EntryTooLarge` over the limit, `UsageError` if a text is not Unicode."""
    frame = bytearray(_EMPTY)
    try:
        _encode_into(message, frame, HEADER_BYTES)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{type(message).__name__}: {quoted(error.object)} is not Unicode text: {error.reason}"
        ) from None
    length = len(frame) - HEADER_BYTES
    if length > max_frame_bytes:
        raise EntryTooLarge(
            f"a {type(message).__name__} message of {length} bytes is over the limit of {max_frame_bytes} bytes for "
            f"one frame (max_frame_bytes of members and clients)"
        )
    _put_length(frame, 0, length)
    return frame


class FrameReader(Generic[M]):
    """Turns the chunks of a byte stream into messages."""

    __slots__ = ("_decode", "_filled", "_long", "_max_frame_bytes", "rest")

    def __init__(self, decoder: msgspec.msgpack.Decoder[M], max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._decode = decoder.decode
        self._max_frame_bytes = max_frame_bytes
        self.rest = bytearray()
        """The bytes after the last whole message. Read only."""
        self._long: bytearray | None = None
        """Buffer for a long frame that has arrived in part; only `room` creates it."""
        self._filled = 0
        """How many bytes of `_long` have arrived."""

    @property
    def announced_bytes(self) -> int:
        """Return the length, with header, of the frame that has arrived in part; 0: its length is not known yet."""
        if len(self.rest) < HEADER_BYTES:
            return 0
        (length,) = _length_at(self.rest)
        return HEADER_BYTES + int(length)

    def feed(self, data: bytes | bytearray) -> list[M]:
        """Return the messages that are complete now. Raises `ProtocolError` for an invalid frame.

        A request over a limit of requests comes as an `UnreadRequest`, so that its caller gets an error.
        """
        if self.rest:
            data = self._join(data)
        messages: list[Any] = []
        start, end = 0, len(data)
        while end - start >= HEADER_BYTES:
            (length,) = _length_at(data, start)
            if length > self._max_frame_bytes:
                raise ProtocolError(
                    f"a frame of {length} bytes is announced; the limit is {self._max_frame_bytes}: the peer is not a "
                    f"member or client of Phalanx, or max_frame_bytes differs"
                )
            stop = start + HEADER_BYTES + length
            if stop > end:
                break
            start += HEADER_BYTES
            frame = data[start:stop] if length <= COPIED_BYTES else memoryview(data)[start:stop]
            try:
                refused = refusal_by_length(frame) if length > MAX_PLAIN_FRAME_BYTES else None
                messages.append(self._decode(frame) if refused is None else refused)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                refused = refusal_of(frame, error)
                if refused is None:
                    raise ProtocolError(f"a frame of {length} bytes is not a message: {error}") from error
                messages.append(refused)
            start = stop
        if start < end:
            self.rest += memoryview(data)[start:]
        return messages

    def room(self) -> memoryview | None:
        """Return a buffer for the rest of a long frame, to be reported to `filled`; None: the next bytes go to `feed`.

        Only for trusted peers: the buffer is as large as the peer says that the frame is.
        """
        if self._long is None:
            rest = self.rest
            if len(rest) < HEADER_BYTES:
                return None
            (length,) = _length_at(rest)
            if length <= COPIED_BYTES:
                return None
            self._long, self._filled = bytearray(HEADER_BYTES + length), len(rest)
            self._long[: len(rest)] = rest
            rest.clear()
        return memoryview(self._long)[self._filled :]

    def filled(self, size: int) -> list[M]:
        """Note that `size` bytes were put into `room`; return the message if it is complete. Raises as `feed`."""
        long = self._long
        if long is None or size > len(long) - self._filled:
            raise ValueError(f"{size} bytes do not fit into the room that `room` gave")
        self._filled += size
        if self._filled < len(long):
            return []
        self._long = None
        return self.feed(long)

    def _join(self, data: bytes | bytearray) -> bytes | bytearray:
        """Join the rest and the new data; return nothing while a frame is incomplete, to avoid repeated copies."""
        rest = self.rest
        rest += data
        if len(rest) >= HEADER_BYTES:
            (length,) = _length_at(rest)
            if len(rest) < HEADER_BYTES + length <= HEADER_BYTES + self._max_frame_bytes:
                return b""
        self.rest = bytearray()
        return rest
