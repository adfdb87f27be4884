"""What a function makes of the serialised value of a key."""

from __future__ import annotations

import enum
from typing import Final, NamedTuple


class Effect(enum.Enum):
    """What becomes of the key, unless it gets a value."""

    UNCHANGED = enum.auto()
    """It stays as it is, also its time to live."""
    REMOVED = enum.auto()


class Updated(NamedTuple):
    """What a function makes of a value."""

    then: bytes | Effect
    """The serialised value that the key has then, or what else becomes of it."""
    result: bytes | None
    """What the caller gets, serialised; None: None."""


class UpdateRefused(Exception):
    """A function refuses its value or its arguments: nothing is changed. The text tells the caller why."""


UNCHANGED: Final = Effect.UNCHANGED
REMOVED: Final = Effect.REMOVED
