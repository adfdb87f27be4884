"""Which maps have figures of their own: those that are called most, and not those that were called first.

A map that is called more than one of the named maps takes its place. Counters of a name only grow while it is shown, as
Prometheus asks; those of a map that gets its place back begin at 0, as after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from phalanx.wire.figures import MOST_MAPS, OTHER

REVIEW_EVERY: Final = 1_000
"""Calls of maps without figures of their own between two comparisons."""


class BusiestMaps:
    """The names with figures of their own, at most `MOST_MAPS`, and the calls of others since the last comparison."""

    def __init__(self, calls_of: Callable[[str], int], drop: Callable[[str], None]) -> None:
        """`calls_of`: returns how many calls a name's figures count. `drop`: forgets the figures of a name."""
        self._calls_of, self._drop = calls_of, drop
        self._named: dict[str, int] = {}
        """Name to the calls that its figures counted when maps were compared last."""
        self._others: dict[str, int] = {}
        """Name to calls since then, less what others had (the frequent algorithm of Misra and Gries): at most `MOST_MAPS` names,
        though programs make up any number."""
        self._left = REVIEW_EVERY

    def name_of(self, name: str) -> str:
        """Return the name under which a call of this map counts: its own, or `OTHER`."""
        named, others = self._named, self._others
        if name in named:
            return name
        if len(named) < MOST_MAPS:
            named[name] = 0
            return name
        if name in others or len(others) < MOST_MAPS:
            others[name] = others.get(name, 0) + 1
        else:
            self._others = {each: count - 1 for each, count in others.items() if count > 1}
        self._left -= 1
        if not self._left:
            self._compare()
        return name if name in named else OTHER

    def _compare(self) -> None:
        """Give the busiest of the others the places of named maps that were called less since the last comparison."""
        named, self._left = self._named, REVIEW_EVERY
        since = {name: self._calls_of(name) - before for name, before in named.items() if name}
        idlest = sorted(since, key=lambda name: since[name])
        busiest = sorted(self._others, key=lambda name: -self._others[name])
        for name, leaving in zip(busiest, idlest, strict=False):
            if self._others[name] <= since[leaving]:
                break
            del named[leaving]
            self._drop(leaving)
            named[name] = 0
        self._others = {}
        for name in named:
            named[name] = self._calls_of(name)
