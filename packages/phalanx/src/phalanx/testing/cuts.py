"""Which members of a test cannot reach each other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

from phalanx.common.errors import UsageError


class Cuts:
    """Pairs of members, by name."""

    def __init__(self) -> None:
        self._pairs: set[frozenset[str]] = set()

    def add(self, text: str, name_of: Callable[[str], str]) -> None:
        """Cut the sides of "A|B,C" from each other. `name_of`: returns the name of a member as somebody wrote it, or raises."""
        if not isinstance(text, str):
            raise UsageError(f'a cut is written as "A|B,C", not {text!r}')
        sides = [[name_of(each.strip()) for each in side.split(",") if each.strip()] for side in text.split("|")]
        if len(sides) < 2 or not all(sides):
            raise UsageError(f'{text!r} does not name sides that are cut from each other: write it as "A|B,C"')
        named = [name for side in sides for name in side]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise UsageError(f"{text!r} names {', '.join(twice)} twice")
        for one, other in combinations(sides, 2):
            self._pairs.update(map(frozenset, product(one, other)))

    def clear(self) -> None:
        self._pairs.clear()

    def between(self, one: str, other: str) -> bool:
        """Return whether two members cannot reach each other."""
        return frozenset((one, other)) in self._pairs
