"""The base class of all events, and the notice that each kind has for people: its sentence, and how urgent it is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, NamedTuple

import msgspec


class Level(IntEnum):
    """How urgent an event is for those who read a member's log. The numbers are those of Python's `logging`."""

    DEBUG = 10
    """Many come with every change, or another line sums them up."""
    INFO = 20
    WARNING = 30
    ERROR = 40


class EventGroup(StrEnum):
    """The mark that an event has in the console."""

    LOST = "lost"
    TROUBLE = "trouble"
    VIEW = "view"
    REPAIR = "repair"
    MOVE = "move"
    OTHER = "other"


DEBUG, INFO, WARNING, ERROR = Level
LOST, TROUBLE, VIEW, REPAIR, MOVE, OTHER = EventGroup


class Notice(NamedTuple):
    """What people read about a kind of event.

    In a sentence `{name}` is a field of the event. A part in square brackets is left out if a field in it is empty.
    `{entries:entry/entries}` counts things (a collection: how many it has), `{members:#}` is the number alone, `{took_ms:s}`
    are seconds, `{size:MiB}` mebibytes. `{in_view}` and `{in_table}` are the versions of the member list and of the
    partition table; of a map `{which}` is its name, `{of_what}` what is protected, `{wish}` its protection.
    """

    sentence: str
    """What happened, without its subject (the member) and its reason."""
    level: Level = INFO
    group: EventGroup = OTHER
    is_detail: bool = False
    """Whether it only says how a change went: it has no line of its own in the console's story."""
    log: str = ""
    """The line in the member's log, if it is not the member's address (`{this}`), the sentence and the reason."""


class Either(NamedTuple):
    """Two notices of one kind of event."""

    field: str
    true: Notice
    """The notice if the field is true, or not empty."""
    false: Notice

    def choose(self, fields: Mapping[str, Any]) -> Notice:
        """Return the notice of an event with these fields. Raises `KeyError` if the one that decides is missing."""
        return self.true if fields[self.field] else self.false


class Event(msgspec.Struct, frozen=True, tag_field="event", tag=True):
    """A fact that a member records. The name of its class is the name of the event."""

    notice: ClassVar[Notice | Either]
