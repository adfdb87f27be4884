"""Walk through all heaviest independent sets of a component, those with older vertices first.

The oldest undecided vertex is tried inside, then outside. No branch is entered without a heaviest set: the known one is
in it, or a search finds one. So the first set that is found has the oldest vertices, and each further one costs as many
searches as there are vertices.
"""

from __future__ import annotations

from phalanx.membership.clique.graph import Budget, Graph, Work, span, weigh
from phalanx.membership.clique.improving import ask_within


class Walk:
    """One walk, with so much work and for so many sets."""

    def __init__(self, graph: Graph, heaviest: int, most_work: int, most_sets: int) -> None:
        self._graph = graph
        self._budget = Budget(most_work)
        self._most_sets = most_sets
        self.found: list[int] = []
        self.complete = False
        """Whether there are no others."""
        self.nearest = heaviest
        """The best set known when the work was used up before a first set was found."""
        self._open = [(graph.everything, 0, heaviest, -1)]
        """Of each branch: what is not decided, what is inside, a heaviest set that has it, and a vertex of that set that
        is to be outside, if there is such a set."""

    @property
    def left(self) -> int:
        """Return how much work was not used."""
        return self._budget.left

    def go(self) -> Work[None]:
        """Walk until there are no other sets, or work or sets are used up."""
        while self._open and self._budget.left > 0 and len(self.found) < self._most_sets:
            alive, inside, heaviest, without = self._open.pop()
            if without >= 0:
                other = yield from self._ask(alive, without, heaviest, 0)
                if other is None:
                    continue
                alive, heaviest = alive & ~(1 << without), other
            yield from self._walk(alive, inside, heaviest)
        self.complete = not self._open and self._budget.left > 0

    def _walk(self, alive: int, inside: int, heaviest: int) -> Work[None]:
        """Find the first set of a branch, and leave its other branches open."""
        adjacent, weights = self._graph.adjacent, self._graph.counted
        while alive:
            vertex = alive.bit_length() - 1
            bit = 1 << vertex
            near = adjacent[vertex] & alive
            self._budget.left -= 1
            yield 1
            if near and not heaviest & bit:
                instead = near & heaviest
                having: int | None = heaviest & ~instead | bit
                if weigh(instead, weights) != weights[vertex]:
                    having = yield from self._ask(alive, vertex, heaviest, bit)
                if having is None:
                    if self._budget.left <= 0:
                        break
                    alive &= ~bit
                    continue
                self._open.append((alive & ~bit, inside, heaviest, -1))
                heaviest = having
            elif near:
                self._open.append((alive, inside, heaviest, vertex))
            alive, inside = alive & ~near & ~bit, inside | bit
        if alive:
            if not self.found:
                self.nearest = heaviest
            return
        self.found.append(inside)

    def _ask(self, alive: int, vertex: int, heaviest: int, having: int) -> Work[int | None]:
        """Find a heaviest set that has the vertex, or one without it. Only the vertex's own component is searched."""
        adjacent, weights = self._graph.adjacent, self._graph.counted
        bit = 1 << vertex
        part = edge = bit
        while edge:
            edge = span(edge, adjacent) & alive & ~part
            part |= edge
        rest = part & ~bit & (~adjacent[vertex] if having else -1)
        beat = weigh(part & heaviest, weights) - (weights[vertex] if having else 0) - 1
        found = yield from ask_within(adjacent, weights, rest, beat, self._budget)
        return heaviest & ~part | found[0] | having if found else None
