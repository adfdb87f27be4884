"""Report the names of functions of the program that block the member.

While a function runs, its member does nothing else. The core reads no clock, so it cannot know how long that was; and a
turn of a member can call several functions many times. So the driver gives the core each function with a stopwatch
around it, which measures only that call, and not the rest of the turn. Functions that every member has are not
measured: the size of values limits their time, and the log line about a slow turn includes them.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Mapping

from phalanx.common.updates import UpdateFunction
from phalanx.wire.update_events import UpdateWasSlow

TELL_AGAIN_S = 10.0
"""The shortest time between two events about one function."""


class SlowUpdates:
    """Measures the functions of one member, and records the calls that took long."""

    def __init__(
        self, warning_ms: int, record: Callable[[UpdateWasSlow], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`warning_ms`: a call that takes longer is recorded. `clock`: counts seconds."""
        self._warning_ms = warning_ms
        self._record = record
        self._clock = clock
        self._recorded_s: dict[str, float] = {}
        """Function to when it was recorded last."""
        self._untold: dict[str, int] = {}
        """Function to how many slow calls there were since then."""

    def measured(self, given: Mapping[str, UpdateFunction]) -> dict[str, UpdateFunction]:
        """Return the functions with a stopwatch around each."""
        return {name: self._timed(name, function) for name, function in given.items()}

    def _timed(self, name: str, function: UpdateFunction) -> UpdateFunction:
        clock, limit_s = self._clock, self._warning_ms / 1000

        @functools.wraps(function)
        def timed(*arguments: object) -> object:
            began_s = clock()
            try:
                return function(*arguments)
            finally:  # also one that raises has held up the member
                if (ended_s := clock()) - began_s > limit_s:
                    with contextlib.suppress(Exception):  # the event is only for people
                        self._note(name, ended_s - began_s, ended_s)

        return timed

    def _note(self, name: str, took_s: float, now_s: float) -> None:
        recorded_s = self._recorded_s.get(name)
        if recorded_s is not None and now_s - recorded_s < TELL_AGAIN_S:
            self._untold[name] = self._untold.get(name, 0) + 1
            return
        self._recorded_s[name] = now_s
        self._record(UpdateWasSlow(name, int(took_s * 1000), self._warning_ms, self._untold.pop(name, 0)))
