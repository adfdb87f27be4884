"""The commands between MULTI and EXEC of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from phalanx_protocols.resp.framing import error

if TYPE_CHECKING:
    from phalanx_protocols.resp.table import Command

MAX_QUEUED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of the commands of one transaction."""
MAX_QUEUED: Final = 100_000
"""The commands of one transaction."""
WORD_BYTES: Final = 40
"""What a word of a command takes beside its bytes."""


class CommandQueue:
    """The commands that wait for EXEC."""

    __slots__ = ("_bytes", "commands", "is_broken")

    def __init__(self) -> None:
        self.commands: list[list[bytes]] = []
        self.is_broken = False
        """Whether one of them was refused: then EXEC does nothing."""
        self._bytes = 0

    def add(self, command: Command, args: list[bytes]) -> bytes:
        """Add a command, and return the answer. Words that are refused with any stored value are refused now, and break the queue."""
        if command.refuses is not None and (refusal := command.refuses(args)):
            self.is_broken = True
            return refusal
        self._bytes += sum(map(len, args)) + WORD_BYTES * len(args)
        if len(self.commands) >= MAX_QUEUED or self._bytes > MAX_QUEUED_BYTES:
            self.is_broken = True
            self.commands.clear()
            return error(f"ERR a transaction has at most {MAX_QUEUED} commands and {MAX_QUEUED_BYTES} bytes")
        self.commands.append(args)
        return b"+QUEUED\r\n"
