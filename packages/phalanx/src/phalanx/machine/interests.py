"""Deliver the facts that machines record (`machine.facts`) to the machines that have declared an interest.

The machines have a fixed order. In a round each one gets the latest facts of its kinds, if one of them is new to it;
facts that it records meanwhile are for the others. Rounds follow one another until no machine gets anything.

They end, because a machine records a fact only when one of its variables has changed, and those only move forward.
Views and tables have versions that grow, roles change by a table without cycles, and each request to a master ends
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from phalanx.common.ids import Millis
from phalanx.common.invariant import invariant
from phalanx.machine.facts import Fact, IncarnationOver

MOST_ROUNDS = 1_000
"""The most rounds of one input. Two or three are usual; each master or member that leaves adds a few."""

F = TypeVar("F", bound=Fact)
G = TypeVar("G", bound=Fact)


class Interest:
    """One machine, and the one or two kinds of facts that it gets together, the latest of each."""

    __slots__ = ("_take", "first", "given_first", "given_last", "last")

    def __init__(self, first: type[Fact], last: type[Fact], take: Callable[..., None]) -> None:
        """Use `interest` and `interest_in_both`, which check the types. `last`: the same as `first` if there is one kind."""
        self.first, self.last = first, last
        self._take = take
        self.given_first: Fact | None = None
        self.given_last: Fact | None = None
        """The facts that were given last: they are not new to the machine."""

    def takes(self, kind: type[Fact]) -> bool:
        """Return whether the machine takes facts of this kind."""
        return kind is self.first or kind is self.last

    def mark_delivered(self, facts: Mapping[type[Fact], Fact]) -> None:
        """Mark the latest facts as delivered."""
        self.given_first, self.given_last = facts.get(self.first), facts.get(self.last)

    def offer(self, facts: Mapping[type[Fact], Fact], now: Millis) -> bool:
        """Deliver the latest facts to the machine. Return False if one of them was never told."""
        first, last = facts.get(self.first), facts.get(self.last)
        if first is None or last is None:
            return False
        if self.first is self.last:
            self._take(first, now)
        else:
            self._take(first, last, now)
        # The machine itself can have recorded newer ones meanwhile: those are for the others.
        self.mark_delivered(facts)
        return True


def interest(kind: type[F], take: Callable[[F, Millis], None]) -> Interest:
    return Interest(kind, kind, take)


def interest_in_both(one: type[F], other: type[G], take: Callable[[F, G, Millis], None]) -> Interest:
    """Make the interest of a machine that uses two facts, and acts when either is new."""
    return Interest(one, other, take)


class Facts:
    """The latest recorded fact of each kind, and the machines that declared an interest in it."""

    def __init__(self, facts: dict[type[Fact], Fact], interests: Iterable[Interest]) -> None:
        """`facts`: where machines record facts (`Outbox.tell`). Facts that are there already are not delivered."""
        self._facts = facts
        self._interests = list(interests)
        for each in self._interests:
            each.mark_delivered(facts)

    def deliver(self, now: Millis) -> None:
        """Deliver each new fact to the machines interested in it, in rounds, until no machine has a new one."""
        for _ in range(MOST_ROUNDS):
            if not self._play_round(now):
                return
        invariant(False, "machines come to an end of telling each other facts", facts=self._facts)

    def _play_round(self, now: Millis) -> bool:
        facts, has_given = self._facts, False
        for each in self._interests:
            # Most machines have nothing new in most rounds.
            if facts.get(each.first) is each.given_first and facts.get(each.last) is each.given_last:
                continue
            if IncarnationOver in facts and not each.takes(IncarnationOver):
                continue
            has_given = each.offer(facts, now) or has_given
        return has_given
