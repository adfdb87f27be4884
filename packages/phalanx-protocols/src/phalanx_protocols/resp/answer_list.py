"""Lists of answers: built within the budget of one answer, and in several turns where they are long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from phalanx.endpoints.protocol import TURN_S, GridAccess
from phalanx.maps.answer_budget import AnswerBudget
from phalanx.maps.call_plans import CallPlan, Pause
from phalanx_protocols.resp.answers import Answer
from phalanx_protocols.resp.framing import array

T = TypeVar("T")

AT_ONCE: Final = 512
"""Of so many items the answers are made before anybody looks at the clock."""
JOINED_BYTES: Final = 64
"""Shorter answers, on average, are joined at once: each alone would take as much memory again."""
NEXT_TURN: Final = Pause(0)
"""Lets others have their turn."""


class AnswerList:
    """The answers of one list."""

    __slots__ = ("_budget", "_count", "_parts")

    def __init__(self, grid: GridAccess) -> None:
        self._budget = AnswerBudget(grid.max_answer_bytes)
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, answers: Sequence[bytes]) -> None:
        """Add answers. Raises `AnswerTooLarge`."""
        size = sum(map(len, answers))
        self._budget.take(size)
        self._count += len(answers)
        if size < JOINED_BYTES * len(answers):
            self._parts.append(b"".join(answers))
        else:
            self._parts += answers

    def array(self) -> bytes:
        """Return the list as an array."""
        return b"".join([b"*%d\r\n" % self._count, *self._parts])

    def mapping(self, protocol: int) -> bytes:
        """Return the list, of names and values in turn, as a map; as an array in the older version of the protocol."""
        if protocol != 3:
            return self.array()
        return b"".join([b"%%%d\r\n" % (self._count // 2), *self._parts])


def listed(
    grid: GridAccess,
    items: Sequence[T],
    make: Callable[[Sequence[T]], Sequence[bytes]],
    end: Callable[[AnswerList], bytes] | None = None,
    at_once: int = AT_ONCE,
) -> Answer:
    """Return a list of what `make` makes of items, or the plan to make it where these are more than `at_once`. `end`: makes the answer of
    the list; None: an array."""
    if len(items) > at_once:
        return _listed(grid, items, make, end or AnswerList.array, at_once)
    made = make(items)
    if end is None and sum(map(len, made)) <= grid.max_answer_bytes:
        return array(made)
    answers = AnswerList(grid)
    answers.add(made)
    return (end or AnswerList.array)(answers)


def _listed(
    grid: GridAccess,
    items: Sequence[T],
    make: Callable[[Sequence[T]], Sequence[bytes]],
    end: Callable[[AnswerList], bytes],
    at_once: int,
) -> CallPlan[bytes]:
    answers = AnswerList(grid)
    yield from in_turns(grid, items, lambda some: answers.add(make(some)), at_once)
    return end(answers)


def in_turns(
    grid: GridAccess, items: Sequence[T], take: Callable[[Sequence[T]], Any], at_once: int = AT_ONCE
) -> CallPlan[None]:
    """Plan to hand all items to a function, some at a time. Others have their turns in between."""
    until_s = grid.clock_s() + TURN_S
    for start in range(0, len(items), at_once):
        if grid.clock_s() >= until_s:
            yield NEXT_TURN
            until_s = grid.clock_s() + TURN_S
        take(items[start : start + at_once])
