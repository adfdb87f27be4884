"""How full a member's memory is: levels, when they change, and how sizes are written for people.

A member that reaches its limit is FULL, and refuses writes that need more memory until its use has fallen to `FULL_UNTIL` of the
limit: between two writes it does not change its mind. From `NEAR_FROM` of the limit on it is NEAR, until
`NEAR_UNTIL`. Above the ceiling, between the limit and what the system gives the process at most, it is FULL whatever is
free inside of its memory.
"""

from __future__ import annotations

import enum

NEAR_FROM, NEAR_UNTIL = 0.90, 0.85
FULL_UNTIL = 0.95
"""Parts of the limit."""
ENTRY_BYTES = 160
"""What an entry costs besides its key and its stored value: the headers of two objects, its place in a dict that grows by
half, and what allocators round up. Measured: 120 to 200 bytes."""
WRITTEN_BYTES = ENTRY_BYTES + 8
"""What a new entry costs besides its key and value: with its stamp."""
EXPIRY_BYTES = 180
"""What the time at which an entry expires costs besides: a number, its place in a dict and in a heap."""
IDLE_BYTES = 110
"""What an idle time costs besides that."""
TOMBSTONE_BYTES = 146
"""What a tombstone costs, with a key of 16 bytes."""

CLEARED_BYTES = 250
"""What is remembered of a map that was cleared in one partition: its name and two stamps, and their places in a dict."""


class MemoryLevel(enum.IntEnum):
    """How full a member's memory is."""

    ROOM = 0
    """Below `NEAR_FROM` of the limit, or there is no limit."""
    NEAR = 1
    FULL = 2
    """It refuses what grows it."""


def level_of(used: int, resident: int, limit: int, ceiling: int, before: MemoryLevel) -> MemoryLevel:
    """Return the level that follows the level `before`.

    `used`: bytes in use; `resident`: bytes of the process that are in memory, with those that are free inside of it;
    `limit`: 0, there is none.
    """
    if not limit:
        return MemoryLevel.ROOM
    was_full, was_near = before is MemoryLevel.FULL, before is not MemoryLevel.ROOM
    part = FULL_UNTIL if was_full else 1.0
    if used >= limit * part or resident >= ceiling * part:
        return MemoryLevel.FULL
    return MemoryLevel.NEAR if used >= limit * (NEAR_UNTIL if was_near else NEAR_FROM) else MemoryLevel.ROOM


def format_bytes(size: int) -> str:
    """Return a size for people, in the largest unit of which there is one: `1.5 GiB`."""
    for unit, bytes_of_one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= bytes_of_one:
            return f"{size / bytes_of_one:.1f} {unit}"
    return f"{size} bytes"
