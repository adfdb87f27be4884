"""How a member's disk does: one state, the worst of what is the case."""

from __future__ import annotations

import enum


class DiskState(enum.IntEnum):
    """How the disk does, from good to bad."""

    OK = 0
    SLOW = 1
    """What was appended is not synced in time: the oldest of it waits too long, or it is too much."""
    FULL = 2
    """There is room for what must be written, such as removals and compaction, and not for growth."""
    FAILED = 3
    """A write or a sync has failed, or hangs. Nothing more is written to this log; no other state follows."""
