"""What an asyncio client keeps for a connection that is not open yet."""

from __future__ import annotations

from phalanx.net.connection import ConnectionGroup
from phalanx.net.flow import BacklogFull
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import Message


class Backlog:
    """Messages that wait for a connection to be opened."""

    def __init__(self, group: ConnectionGroup) -> None:
        self.messages: list[Message] = []
        self._bytes = 0
        self._group = group

    def add(self, message: Message) -> None:
        """Add a message. Raises `EntryTooLarge` if it is over the frame limit, `BacklogFull` if too many bytes wait."""
        most = self._group.flow.limits.member_backlog_bytes
        if self._bytes > most:
            raise BacklogFull(f"{self._bytes} bytes wait for a connection that is not open yet; the limit is {most}")
        # The message is encoded again when it is sent: while the connection opens there is time for that.
        self._bytes += len(encode_frame(message, self._group.max_frame_bytes))
        self.messages.append(message)
