"""Whether a call of the operating system hangs: a disk needs a failure detector, like a member.

Each thread that uses the disk notes the beginning and the end of a call. A watchdog looks now and then which call is under way, and adds
up for how long it has seen the same one. A process that was stopped for a while, or had no processor, has not looked meanwhile: that time
counts as little more than the pause between two looks, because the call perhaps had no chance to end.
"""

from __future__ import annotations

from typing import Final

LONGEST_LOOK: Final = 2
"""How many pauses between two looks one look counts at most."""


class FileCalls:
    """The calls of one thread, one after the other. Only that thread calls `begin` and `end`."""

    def __init__(self) -> None:
        self.what = ""
        """What the present call does, or the last one did."""
        self.count = 0
        """How many calls have begun."""
        self.is_under_way = False

    def begin(self, what: str) -> None:
        """Note that a call begins."""
        self.what = what
        self.count += 1
        self.is_under_way = True

    def end(self) -> None:
        """Note that it has returned, or raised an error."""
        self.is_under_way = False


class HangWatch:
    """For how long the same call of a thread has been under way, as far as the watchdog has looked."""

    def __init__(self, calls: FileCalls, pause_s: float, limit_s: float) -> None:
        """`pause_s`: between two looks. `limit_s`: a call that lasts longer hangs."""
        self.calls = calls
        self._most_s = pause_s * LONGEST_LOOK
        self._limit_s = limit_s
        self._count = 0
        self._lasts_s = 0.0

    def look(self, elapsed_s: float) -> bool:
        """Return whether the present call hangs. `elapsed_s`: since the last look."""
        if not self.calls.is_under_way:
            self._lasts_s = 0.0
            return False
        if self.calls.count != self._count:
            self._count, self._lasts_s = self.calls.count, 0.0
            return False
        self._lasts_s += min(elapsed_s, self._most_s)
        return self._lasts_s >= self._limit_s
