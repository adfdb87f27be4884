"""What the fuzzer plays: an input is a list of parts, each some bytes, and a target knows what to do with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any, ClassVar, TypeVar

Case = list[bytes]
"""One input: what its parts are, the target says (the words of a call, the pieces of a stream)."""
T = TypeVar("T")
MIB = 1024 * 1024
TURN_MS = 50.0
"""What a member promises for a turn."""


class Wrong(Exception):
    """A target saw what must not be: two twins that differ, a state that does not hold, an answer that nobody may get."""


class Turns:
    """The CPU time of the longest turn of one input: what a member does between two looks at its other connections."""

    def __init__(self) -> None:
        self.longest_ns = 0
        self.count = 0
        self.on_turn: Callable[[], object] | None = None
        """Is called before each turn."""

    def run(self, step: Callable[..., T], *arguments: Any) -> T:
        """Carry out one turn, and return what it returns."""
        if self.on_turn is not None:
            self.on_turn()
        began = time.thread_time_ns()
        try:
            return step(*arguments)
        finally:
            self.longest_ns = max(self.longest_ns, time.thread_time_ns() - began)
            self.count += 1


class Target:
    """One part of the product. A subclass is made once in each child, and plays many inputs."""

    name: ClassVar[str]
    answer_bytes: ClassVar[int] = 0
    """What an answer may take, besides the memory that follows from the length of the input."""

    turn_ms: ClassVar[float] = TURN_MS
    """What a turn may take, on the machine by which the judge's yardstick was made."""

    def make(self, rng: Random) -> Case:
        """Make an input out of nothing."""
        raise NotImplementedError

    def play(self, case: Case, turns: Turns) -> None:
        """Play one input, turn by turn. Whatever this raises is a finding: errors that are right answers are caught here."""
        raise NotImplementedError

    def answer_bytes_of(self, case: Case) -> int:
        """Return what the answer to an input may take, besides the memory that follows from its length."""
        return self.answer_bytes

    def change(self, rng: Random, case: Case) -> Case | None:
        """Change an input in a way that this target knows; None: as the engine likes."""
        return None
