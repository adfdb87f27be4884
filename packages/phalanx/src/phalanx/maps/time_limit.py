"""The time limit of a call that takes several rounds of requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.common.durations import Duration, to_seconds

CONNECT_TIMEOUT_S = 10.0
"""How many seconds connecting can take by default, unless a call can take less."""
AT_ONCE_S = 0.01
"""A request within this time from the beginning of a call needs no limit of its own: it has the whole time."""
LONGEST_S = 365 * 24 * 3600
"""No limit of a client is longer."""


class TimeLimit:
    """One time limit for all rounds of a call, whichever owners they ask."""

    __slots__ = ("_clock", "_ends_at", "_seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._ends_at = clock() + seconds

    def renew(self) -> None:
        """Restart the time limit: all requests of a round were answered.

        So a call of any size can finish, as long as it makes progress.
        """
        self._ends_at = self._clock() + self._seconds

    def within(self, seconds: float) -> TimeLimit:
        """Return another limit, which ends after this many seconds, and not later than this one ends now."""
        return TimeLimit(min(self.left_s, seconds), self._clock)

    @property
    def left_s(self) -> float:
        """Return how many seconds are left; 0: the time is over."""
        return max(self._ends_at - self._clock(), 0.0)

    @property
    def is_over(self) -> bool:
        """Return whether the time is over, so that no request is repeated."""
        return self._clock() >= self._ends_at

    @property
    def within_ms(self) -> int:
        """Return the time limit for a request that is sent now, in milliseconds; 0: that of any call."""
        left_s = self.left_s
        return 0 if left_s > self._seconds - AT_ONCE_S else max(int(left_s * 1000), 1)


def call_limit(call_timeout_s: Duration) -> float:
    """Return how many seconds a call can take. Raises `UsageError`."""
    return to_seconds("call_timeout_s", call_timeout_s, "more than 0, and at most a year", at_most=LONGEST_S)


def connecting_limit(connect_timeout_s: Duration | None, call_timeout_s: float) -> float:
    """Return how many seconds connecting can take: the given ones, else at most a call's. Raises `UsageError`."""
    if connect_timeout_s is None:
        return min(CONNECT_TIMEOUT_S, call_timeout_s)
    bounds = "more than 0 and at most a year, or None"
    return to_seconds("connect_timeout_s", connect_timeout_s, bounds, at_most=LONGEST_S)
