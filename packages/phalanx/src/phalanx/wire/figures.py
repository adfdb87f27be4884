"""Figures that members tell each other for people: what a member did in each few seconds, and what it holds of each map."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from phalanx.common.ids import Millis

MOST_MAPS: Final = 50
"""So many maps have figures of their own; those of all others are added up."""
OTHER: Final = "other"
"""The name for all others together."""
MOST_CLASSES: Final = 64
Classes = Annotated[tuple[int, ...], Meta(max_length=MOST_CLASSES)]
"""How many calls took so long as each class of durations says (`http.durations.CALL_ENDS_S`)."""


class ActivityPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member did in a few seconds, and what it had at their end."""

    took_ms: Millis
    """How long these seconds were: a member that is busy or paused looks later."""
    reads: int
    """Calls of clients that read."""
    writes: int
    """All their other calls."""
    errors: int
    """Calls of both kinds that ended with an error."""
    classes: Classes
    """The durations of all these calls."""
    entries: int
    """Entries of maps in partitions that it owns, as they were counted last."""
    memory: int
    """Bytes of memory in use, as the limit counts it."""
    clients: int
    """Connections of clients."""
    moves: int
    """Moves of partitions that were committed, as the master knows."""
    processor_ms: Millis
    """Time of processors that its process used."""


class MapCalls(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The calls of clients on one map at one member, in the last seconds."""

    map: str
    reads: Classes
    writes: Classes
    errors: int
    """Of both together."""


class MapHeld(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one member holds of one map."""

    map: str
    entries: int
    """In partitions that it owns."""
    bytes: int
    """Of their serialised keys and values."""
    backup_entries: int
    backup_bytes: int
    evicted: int
    """Entries that it evicted because the map is bounded."""
    expired: int
    """Entries that it dropped at the end of their time."""


class DiskStatus(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How the disk of a member does."""

    state: str
    """`ok`, `slow`, `full` or `failed`."""
    why: str
    """Why not `ok`, in words; empty: it is."""
    unsynced_bytes: int
    """What was given to the system, and is not known to be on the disk."""
    unsynced_ms: Millis
    """For how long the oldest of it has waited."""
    log_bytes: int
    """The files of the log."""
    segments: int
    """How many files these are."""
    room_bytes: int
    """How much room the file system has."""
    device: str
    """The file system, and the machine that has mounted it: members with the same lose their folders together."""
