"""What a function makes of the serialised value of a key, what refuses it, and how another package brings functions."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec


class Effect(enum.Enum):
    """What becomes of the key, unless it gets a value."""

    UNCHANGED = enum.auto()
    """It stays as it is, also its time to live."""
    REMOVED = enum.auto()


class Updated(msgspec.Struct, frozen=True, gc=False):
    """What a function makes of a value."""

    then: bytes | Effect
    """The serialised value that the key has then, or what else becomes of it."""
    result: bytes | None
    """What the caller gets, serialised; None: None."""


class BroughtFunction(NamedTuple):
    """A function that another package brings to every member that has it (`updates.BROUGHT`)."""

    apply: Callable[..., Updated]
    """A function of the serialised value (None: there is none) and the serialised arguments. Of what other programs send it raises
    `UpdateRefused` alone."""
    arguments: int
    """How many arguments it takes."""
    json_of: Callable[[bytes], bytes] | None = None
    """It looks into dicts, and where a map stores dicts as JSON, this makes an object of JSON of what it stores. None: it looks at no
    dict."""
    is_limited: bool = False
    """It is told `max_value_bytes` of the member, because it could make a value of any length."""


class EvaluationRefused(Exception):
    """What is asked cannot be evaluated. The text tells the caller why."""

    unforeseen = ""
    """The class of the exception that was raised, if it was unexpected."""


R = TypeVar("R", bound=EvaluationRefused)


def refusal_of(kind: type[R], what: str, error: BaseException) -> R:
    """Return the refusal for an unexpected exception. It names the class, and never what the exception says of a value."""
    refusal = kind(f"{what} failed with {type(error).__name__} on what it was given: nothing was changed")
    refusal.unforeseen = type(error).__name__
    return refusal


class UpdateRefused(EvaluationRefused):
    """A function refuses its value or its arguments: nothing is changed. The text tells the caller why."""


UNCHANGED: Final = Effect.UNCHANGED
REMOVED: Final = Effect.REMOVED
