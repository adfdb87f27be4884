"""Lengths of time as programs give them: a number of seconds, or a `datetime.timedelta`."""

from __future__ import annotations

import datetime as dt
from typing import TypeAlias

from phalanx.common.errors import UsageError
from phalanx.common.ids import MAX_TTL_MS, Millis
from phalanx.common.words import quoted

Duration: TypeAlias = float | dt.timedelta
"""Seconds, or a timedelta."""


def to_seconds(name: str, given: object, bounds: str, *, at_most: float, may_be_zero: bool = False) -> float:
    """Return the seconds of an argument. Raises `UsageError` that names it if it is not a duration, or outside its bounds.

    `bounds`: as the error tells them, such as "more than 0, or None".
    """
    seconds = given.total_seconds() if isinstance(given, dt.timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise UsageError(
            f"{name} is {quoted(given)}, of type {type(given).__name__}: give seconds, as a number or a datetime.timedelta, {bounds}"
        )
    if not (0 < seconds <= at_most or (may_be_zero and seconds == 0)):
        raise UsageError(f"{name} is {quoted(given)}: give seconds, {bounds}")
    return seconds


def to_millis(name: str, given: object, bounds: str) -> Millis:
    """Return the milliseconds, at least one, of an argument of ten years at most. Raises `UsageError`."""
    return max(int(to_seconds(name, given, bounds, at_most=MAX_TTL_MS / 1000) * 1000), 1)
