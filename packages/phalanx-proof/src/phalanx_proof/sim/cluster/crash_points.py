"""Points in the writing of a simulated log at which its process ends."""

from __future__ import annotations

from typing import NamedTuple


class Crash(Exception):
    """The process ends within a write to its folder."""

    def __init__(self, cuts_power: bool) -> None:
        super().__init__()
        self.cuts_power = cuts_power
        """Whether its machine loses power."""


class CrashPoint(NamedTuple):
    """Where in the writing of its log a process ends."""

    what: str
    """"block": in a block of any kind; "segment": in the first block of a segment."""
    nth: int
    """In the how manieth of them from now on."""
    cuts_power: bool

    def counted_down(self) -> CrashPoint | None:
        """Return the point after one more of them; None: this was it."""
        return self._replace(nth=self.nth - 1) if self.nth > 1 else None
