"""Messages about the memory of members."""

from __future__ import annotations

from phalanx.wire.message import WireMessage


class MemoryReport(WireMessage, tag=117, frozen=True):
    """A member's use of its memory: to the master from time to time, to all members where it becomes full, is full, or is
    full no more."""

    used: int
    """Bytes in use: measured, without what is free inside of the process, with what staged rows will need."""
    limit: int
    """Its memory limit in bytes; 0: it has none."""
    data: int
    """The bytes of `used` that came with data: others need as much if they take it over."""
    is_full: bool
    """Whether it refuses what grows it."""


class CopyRefused(WireMessage, tag=118, frozen=True):
    """The destination of a migration has no memory for the copy, and has dropped what it had of it."""

    partition: int
    copy_id: int
    used: int
    limit: int
