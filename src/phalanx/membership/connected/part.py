"""What is known of one component at a time: the best set so far, and what any other weighs at most."""

from __future__ import annotations

from phalanx.membership.connected.graph import Graph, Work, bits
from phalanx.membership.connected.listing import cover_with_pairs, list_largest

LISTING = 20_000
"""So many vertices are looked at before the listing of all maximal sets of a component is given up."""
MOST_SETS = 512
"""So many largest sets of one component are compared with one another."""


class Part:
    """One component of the graph, and how far the search in it has come. Sets are in the graph's own numbers."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.best = 1 << (len(graph) - 1)
        """Independent at any time."""
        self.value = graph.counted[-1]
        """What it weighs, by `counted`."""
        self.bound = sum(graph.counted)
        """What an independent set weighs at most."""
        self.largest: list[int] | None = None
        """All maximal sets of the greatest weight, once it is known that there are no others."""

    @property
    def is_proven(self) -> bool:
        """No set weighs more, or as much with more vertices."""
        return self.value == self.bound

    def improve(self, found: int, value: int) -> None:
        """An independent set was found."""
        if value > self.value:
            self.best, self.value = found, value

    def limit(self, bound: int) -> None:
        """A bound was proven."""
        self.bound = max(min(self.bound, bound), self.value)

    def begin(self) -> Work[None]:
        """A set and a bound to begin with: whoever has the fewest broken pairs comes first; of a pair one."""
        graph = self.graph
        order = sorted(range(len(graph)), key=lambda vertex: (graph.adjacent[vertex].bit_count(), -vertex))
        yield len(graph)
        found, taken, value = 0, 0, 0
        for vertex in order:
            if not taken >> vertex & 1:
                found |= 1 << vertex
                taken |= graph.adjacent[vertex]
                value += graph.counted[vertex]
        self.improve(found, value)
        self.limit(cover_with_pairs_by(graph))
        yield len(graph)

    def list(self, most_work: int | None = LISTING, most_sets: int | None = MOST_SETS) -> Work[bool]:
        """Find all largest sets, if there is little to go through; did it?"""
        found = yield from list_largest(self.graph, most_work, most_sets)
        if found is None:
            return False
        self.largest = found
        counted = self.graph.counted
        values = [sum(counted[vertex] for vertex in bits(each)) for each in found]
        self.value = self.bound = max(values)
        self.best = found[values.index(self.value)]
        return True


def cover_with_pairs_by(graph: Graph) -> int:
    """What an independent set weighs at most, by `counted`."""
    return cover_with_pairs(graph.adjacent, graph.counted, (1 << len(graph)) - 1)
