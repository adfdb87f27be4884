"""Frames: a 4-byte big-endian length and one message in MessagePack.

A frame that is too long or does not decode is a `ProtocolError` of that connection only. The limit protects memory: it
is checked on the four bytes of the length, before anything is buffered.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from phalanx.common.errors import EntryTooLarge, ProtocolError
from phalanx.wire.messages import Handshake, Message

DEFAULT_MAX_FRAME_BYTES = 64 * 1024 * 1024
HEADER_BYTES = 4

_encoder = msgspec.msgpack.Encoder()
message_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
handshake_decoder: msgspec.msgpack.Decoder[Handshake] = msgspec.msgpack.Decoder(Handshake)

M = TypeVar("M")


def append_frame(
    buffer: bytearray, message: Message | Handshake, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES
) -> None:
    """Encode a message behind what the buffer holds. Raises `EntryTooLarge` (buffer unchanged) over the limit."""
    start = len(buffer)
    buffer += b"\0\0\0\0"
    _encoder.encode_into(message, buffer, -1)
    length = len(buffer) - start - HEADER_BYTES
    if length > max_frame_bytes:
        del buffer[start:]
        raise EntryTooLarge(
            f"a {type(message).__name__} message of {length} bytes is over the limit of {max_frame_bytes} bytes for "
            f"one frame; store smaller entries, or raise max_frame_bytes on every member and client"
        )
    buffer[start : start + HEADER_BYTES] = length.to_bytes(HEADER_BYTES, "big")


def encode_frame(message: Message | Handshake) -> bytes:
    """One message as a frame."""
    buffer = bytearray()
    append_frame(buffer, message)
    return bytes(buffer)


class FrameReader(Generic[M]):
    """Cuts a byte stream into messages, however the network chopped it."""

    __slots__ = ("_decode", "_max_frame_bytes", "_rest")

    def __init__(self, decoder: msgspec.msgpack.Decoder[M], max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._decode = decoder.decode
        self._max_frame_bytes = max_frame_bytes
        self._rest = bytearray()

    @property
    def rest(self) -> bytes:
        """What has arrived behind the last whole message."""
        return bytes(self._rest)

    def switch_to(self, decoder: msgspec.msgpack.Decoder[M]) -> None:
        """Decode what follows as other messages (the handshake is over)."""
        self._decode = decoder.decode

    def feed(self, data: bytes) -> list[M]:
        """The messages that are whole now. Raises `ProtocolError` for a frame that cannot be one."""
        if self._rest:
            self._rest += data
            data = bytes(self._rest)
            self._rest.clear()
        messages: list[M] = []
        start, end = 0, len(data)
        view = memoryview(data)
        while end - start >= HEADER_BYTES:
            length = int.from_bytes(view[start : start + HEADER_BYTES], "big")
            if length > self._max_frame_bytes:
                raise ProtocolError(
                    f"a frame of {length} bytes is announced; the limit is {self._max_frame_bytes}: the peer is no "
                    f"member or client of Phalanx, or max_frame_bytes differs"
                )
            stop = start + HEADER_BYTES + length
            if stop > end:
                break
            try:
                messages.append(self._decode(view[start + HEADER_BYTES : stop]))
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ProtocolError(f"a frame of {length} bytes is no message: {error}") from error
            start = stop
        if start < end:
            self._rest += view[start:]
        return messages
