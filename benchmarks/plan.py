"""What every case is given: how long to measure, beside whom, and the entries that both sides store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from phalanx.common.errors import PhalanxError, UsageError

KEY_COUNT = 10_000
"""Different keys that are read and written over and over; small enough that building them costs no time."""
KEY_BYTES = 16
VALUE_BYTES = 100
MAP = "bench"

R = TypeVar("R")


class SkippedCase(PhalanxError):
    """A case cannot be measured here. The message says what is missing."""


class Plan(msgspec.Struct, frozen=True):
    """How to measure."""

    rounds: int
    round_s: float
    """Length of one round of one side."""
    with_redis: bool
    memory_entries: int
    spark_rows: int


def chosen_of(names: Iterable[str], part: str) -> list[str]:
    """Return the names of cases that have this in them. Raises `UsageError` if none has."""
    names = list(names)
    if not (chosen := [name for name in names if part in name]):
        raise UsageError(f"no case has {part!r} in its name; there are {', '.join(names)}")
    return chosen


def make_key(index: int) -> str:
    """The key of 16 characters that stands for a number."""
    return f"key:{index:012d}"


def make_value(index: int) -> bytes:
    """A value of 100 bytes that does not compress or repeat."""
    return random.Random(index).randbytes(VALUE_BYTES)


def make_entries(count: int, first: int = 0) -> tuple[list[str], list[bytes]]:
    """Keys and values of so many entries."""
    numbers = range(first, first + count)
    return [make_key(number) for number in numbers], [make_value(number) for number in numbers]


def get_and_put(
    get: Callable[[str], R], put: Callable[[str, bytes], R], keys: Sequence[str], values: Sequence[bytes]
) -> dict[str, Callable[[int], R]]:
    """Both operations of a client, each of the entry with a number."""
    return {"get": lambda index: get(keys[index]), "put": lambda index: put(keys[index], values[index])}
