"""State machines as tables: which event leads from which state to which other.

A machine that has such a table changes its state by `TransitionTable.next` and in no other way. Whatever is not in the table
cannot happen; if it does, the member stops, and its error contains the story. The diagrams
of the documentation are drawn from the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from phalanx.common.invariant import known

State = TypeVar("State", bound=enum.Enum)
Event = TypeVar("Event", bound=enum.Enum)


class TransitionTable(dict[tuple[State, Event], State], Generic[State, Event]):
    """State and event to the next state. The first state that it names is the one with which each machine begins."""

    def __init__(self, what: str, rows: Mapping[tuple[State, Event], State]) -> None:
        """Make a table from its rows. `what`: the object that has these states, in words, for the story."""
        super().__init__(rows)
        self._what = what

    def __repr__(self) -> str:
        return f"TransitionTable({self._what})"

    def next(self, state: State, event: Event, **story: object) -> State:
        """Return the state after an event. Raise `InvariantViolation`, with the story, if this state has no such event."""
        after = self.get((state, event))
        return known(after, f"{self._what} changes as its table says", state=state, event=event, **story)
