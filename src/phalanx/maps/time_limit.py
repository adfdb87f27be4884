"""How long a call may take that is asked for in several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.common.errors import UsageError

CONNECT_TIMEOUT_S = 10.0
"""How long connecting may take, unless a call may take less."""
AT_ONCE_S = 0.01
"""What is asked for so early has the whole time of a call: it need not be told a limit of its own."""


class TimeLimit:
    """One time limit for all rounds of a call, whoever is asked, and whatever is grouped anew."""

    __slots__ = ("_clock", "_ends_at", "_seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._ends_at = clock() + seconds

    def renew(self) -> None:
        """All that was asked has been answered: what is asked next has the whole time again.

        A call of any size comes to its end so, as long as it gets on.
        """
        self._ends_at = self._clock() + self._seconds

    def within(self, seconds: float) -> TimeLimit:
        """Another limit, that ends when this one does now, and after so many seconds at the latest."""
        return TimeLimit(min(self.left_s, seconds), self._clock)

    @property
    def left_s(self) -> float:
        """Seconds that are left; 0 when it is over."""
        return max(self._ends_at - self._clock(), 0.0)

    @property
    def is_over(self) -> bool:
        """Whether nothing is asked again."""
        return self._clock() >= self._ends_at

    @property
    def within_ms(self) -> int:
        """Within what time a request must be answered that is sent now; 0: that of any call."""
        left_s = self.left_s
        return 0 if left_s > self._seconds - AT_ONCE_S else max(int(left_s * 1000), 1)


def connecting_limit(connect_timeout_s: float | None, call_timeout_s: float) -> float:
    """Return how many seconds connecting may take: as given, else no longer than a call. Raises `UsageError`."""
    if connect_timeout_s is None:
        return min(CONNECT_TIMEOUT_S, call_timeout_s)
    if not connect_timeout_s > 0:
        raise UsageError(f"connect_timeout_s is {connect_timeout_s!r}: give more than 0 seconds")
    return connect_timeout_s
