"""Cuts the frames of the greeting out of what a connection brings: what stands behind them is in another form."""

from __future__ import annotations

from phalanx.common.errors import ProtocolError
from phalanx.net.greeting import MAX_GREETING_BYTES
from phalanx.wire.codec import HEADER_BYTES, FrameReader, handshake_decoder
from phalanx.wire.messages import Handshake, Welcome


class GreetingReader:
    """The frames of one side of a greeting, one at a time."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = b""
        """What has arrived, and belongs to no frame that was taken."""

    def take(self, data: bytes = b"") -> Handshake | None:
        """The next frame, if it is whole with this data.

        Raises `ProtocolError` for one that is none of a greeting, and where something stands behind one that waits for an
        answer: all but a Welcome.
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
