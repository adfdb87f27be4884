"""What checkers find: violations, in words, with the time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.common.ids import Millis


class Violation(msgspec.Struct, frozen=True):
    """A property that did not hold."""

    at_ms: Millis
    what: str
    """The name of the property."""
    story: str
    """The facts."""


class Findings:
    """Gathers violations of one history; the first is usually the one to look at."""

    def __init__(self, limit: int = 20) -> None:
        self.violations: list[Violation] = []
        self._limit = limit
        self.on_violation: Callable[[Violation], None] = lambda violation: None
        """Hears of each violation as soon as it is found."""

    def add(self, at: Millis, what: str, story: str) -> None:
        if len(self.violations) < self._limit:
            self.violations.append(Violation(at, what, story))
            self.on_violation(self.violations[-1])
