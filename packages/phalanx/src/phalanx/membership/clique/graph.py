"""The graph of broken pairs: members are vertices, and two that cannot talk are joined by an edge.

A fully connected set of members has no edge inside: it is an independent set of this graph, and the vertices outside
cover every edge. The graph is sparse where the graph of working pairs is dense, and falls apart into independent
components. A set of vertices is the bits of an int. The older of two members has the higher bit, so of two different
sets the greater int holds the oldest member that only one of them has.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TypeAlias, TypeVar

R = TypeVar("R")

Work: TypeAlias = Generator[int, None, R]
"""A computation in slices: it yields how many vertices it looked at since, and returns its result."""

PAUSE = 200
"""About how many vertices are looked at between two pauses."""


class Budget:
    """How many vertices can still be looked at."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def bits(mask: int) -> Iterator[int]:
    """Yield the vertices of a set, from the youngest to the oldest."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def span(mask: int, adjacent: Sequence[int]) -> int:
    """Return the neighbours of all vertices of the set."""
    found = 0
    for vertex in bits(mask):
        found |= adjacent[vertex]
    return found


def weigh(mask: int, weights: Sequence[int]) -> int:
    """Return the sum of the weights of a set."""
    return sum(weights[vertex] for vertex in bits(mask))


def exhaust(work: Work[R]) -> R:
    """Do all of the work at once."""
    try:
        while True:
            next(work)
    except StopIteration as done:
        result: R = done.value
        return result


def spend(work: Work[R], budget: Budget) -> Work[R]:
    """Do all of the work, and take it from the budget, which can become negative."""
    try:
        while True:
            looked = next(work)
            budget.left -= looked + 1
            yield looked
    except StopIteration as done:
        result: R = done.value
        return result


class Graph:
    """One component. A small part of the whole is numbered anew from 0, in the same order."""

    __slots__ = ("_names", "adjacent", "counted", "everything", "weights")

    def __init__(
        self,
        adjacent: list[int],
        weights: list[int],
        counted: list[int],
        everything: int,
        names: Sequence[int] | None = None,
    ) -> None:
        self.adjacent = adjacent
        """The neighbours of each vertex, in the component."""
        self.weights = weights
        """The weights whose sum is to be as great as possible."""
        self.counted = counted
        """The same, for which among equal sums more vertices weigh more."""
        self.everything = everything
        """All vertices."""
        self._names = names

    def __len__(self) -> int:
        return self.everything.bit_count()

    def name(self, mask: int) -> int:
        """Return a set in the names of the whole graph."""
        names = self._names
        return mask if names is None else sum(1 << names[vertex] for vertex in bits(mask))


def find_components(adjacent: Sequence[int], alive: int) -> Work[list[int]]:
    """Find the connected components of the alive vertices, the one with the oldest vertex first."""
    found = []
    seen = 0
    while alive:
        part = edge = 1 << (alive.bit_length() - 1)
        while edge:
            seen += edge.bit_count()
            edge = span(edge, adjacent) & alive & ~part
            part |= edge
            if seen >= PAUSE:
                yield seen
                seen = 0
        alive &= ~part
        found.append(part)
    yield seen
    return found


def cut_out(adjacent: Sequence[int], weights: Sequence[int], part: int, count: int) -> Work[Graph]:
    """Make one component a graph of its own. `count`: more than there are vertices."""
    if part.bit_count() > len(adjacent) // 2:
        counted = [weight * count + 1 for weight in weights]
        yield len(adjacent) // 8
        return Graph([near & part for near in adjacent], list(weights), counted, part)
    names = list(bits(part))
    number = {name: vertex for vertex, name in enumerate(names)}
    near = []
    seen = 0
    for name in names:
        mask = 0
        for other in bits(adjacent[name] & part):
            mask |= 1 << number[other]
            seen += 1
        near.append(mask)
        if seen >= PAUSE:
            yield seen // 4
            seen = 0
    its = [weights[name] for name in names]
    return Graph(near, its, [weight * count + 1 for weight in its], (1 << len(names)) - 1, names)
