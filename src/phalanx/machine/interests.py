"""Hands the facts that machines record (`machine.facts`) to the machines that have declared an interest.

The machines have a fixed order. In a round each in its turn is given the latest facts of the kinds that it has named, if
one of them is new to it; what it records itself meanwhile is for the others. Rounds follow one another until nobody has
been given anything.

What bounds them: a machine records a fact only when a variable of it has changed, and those only move on. Views and tables
have versions that grow, roles change by a table without a way back, and what is asked of a master ends once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import TypeVar

from phalanx.common.ids import Millis
from phalanx.common.invariant import invariant
from phalanx.machine.facts import Fact, IncarnationOver

MOST_ROUNDS = 1_000
"""The most rounds of one input. Two or three are usual; each master or member that leaves adds a few."""

F = TypeVar("F", bound=Fact)
G = TypeVar("G", bound=Fact)


class Interest:
    """One machine, and the kinds of facts that it is given together, the latest of each."""

    __slots__ = ("_take", "given", "kinds")

    def __init__(self, kinds: tuple[type[Fact], ...], take: Callable[..., None]) -> None:
        """Use `interest` and `interest_in_both`, which check the types."""
        self.kinds = kinds
        self._take = take
        self.given: list[Fact | None] = [None] * len(kinds)
        """The facts that were given last: they are not new to the machine."""

    def latest(self, told: Mapping[type[Fact], Fact]) -> list[Fact | None]:
        return [told.get(kind) for kind in self.kinds]

    def give(self, told: Mapping[type[Fact], Fact], now: Millis) -> bool:
        """Give the machine the latest facts. False: none of them is new to it, or one has never been told."""
        latest = self.latest(told)
        if None in latest or all(map(is_, latest, self.given)):
            return False
        self._take(*latest, now)
        self.given = self.latest(told)
        return True


def interest(kind: type[F], take: Callable[[F, Millis], None]) -> Interest:
    return Interest((kind,), take)


def interest_in_both(one: type[F], other: type[G], take: Callable[[F, G, Millis], None]) -> Interest:
    """Make the interest of a machine that works from two facts, and looks again when either is new."""
    return Interest((one, other), take)


class Facts:
    """The latest recorded fact of each kind, and the machines that declared an interest in it."""

    def __init__(self, told: dict[type[Fact], Fact], interests: Iterable[Interest]) -> None:
        """`told`: where machines record facts (`Outbox.tell`). Facts that are there already are not delivered."""
        self._told = told
        self._interests = list(interests)
        for each in self._interests:
            each.given = each.latest(told)

    def hand_on(self, now: Millis) -> None:
        """Deliver each new fact to the machines interested in it, in rounds, until no machine has a new one to read."""
        for _ in range(MOST_ROUNDS):
            if not self._play_round(now):
                return
        invariant(False, "machines come to an end of telling each other facts", told=self._told)

    def _play_round(self, now: Millis) -> bool:
        has_given = False
        for each in self._interests:
            if IncarnationOver in self._told and IncarnationOver not in each.kinds:
                continue
            has_given = each.give(self._told, now) or has_given
        return has_given
