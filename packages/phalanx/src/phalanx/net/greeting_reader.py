"""Read the frames of the greeting one by one: the bytes after them can be in another format."""

from __future__ import annotations

from phalanx.common.errors import ProtocolError
from phalanx.net.greeting import MAX_GREETING_BYTES
from phalanx.wire.codec import HEADER_BYTES, FrameReader, handshake_decoder
from phalanx.wire.messages import Handshake, Welcome


class GreetingReader:
    """Reads the greeting's frames of one side, one at a time."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = b""
        """The bytes that have arrived and do not belong to a frame that `take` returned."""

    def take(self, data: bytes = b"") -> Handshake | None:
        """Return the next frame, if it is complete with this data; otherwise None.

        Raises `ProtocolError` for a frame that does not belong to a greeting, and if bytes follow a frame that waits
        for an answer: every frame except a Welcome.
        """
        self.rest += data
        if len(self.rest) < HEADER_BYTES:
            return None
        length = int.from_bytes(self.rest[:HEADER_BYTES], "big")
        end = HEADER_BYTES + length
        if len(self.rest) < end and length <= MAX_GREETING_BYTES:
            return None
        frame, self.rest = self.rest[:end], self.rest[end:]
        reader: FrameReader[Handshake] = FrameReader(handshake_decoder, MAX_GREETING_BYTES)
        (message,) = reader.feed(frame)
        if self.rest and not isinstance(message, Welcome):
            raise ProtocolError("messages came before the greeting was answered")
        return message
