"""What is known of one component: the best set so far, and a bound for the weight of any other.

First come reductions alone, then all maximal sets, if they are few, then branch and bound. If that takes long, it takes
turns with better sets by exchange and better bounds by pieces.
"""

from __future__ import annotations

from itertools import cycle

from phalanx.membership.clique.branching import cover, find_heaviest
from phalanx.membership.clique.graph import Budget, Graph, Work, bits, spend, weigh
from phalanx.membership.clique.improving import bound_by_pieces, exchange, peel
from phalanx.membership.clique.kernel import Kernel
from phalanx.membership.clique.listing import list_largest
from phalanx.membership.clique.walking import Walk

SMALL = 20
"""For so few vertices, anything but the listing of all maximal sets is seldom worth its work."""
LISTING = 6_000
"""So many vertices are looked at before the listing of all maximal sets of a component is given up."""
MOST_SETS = 512
"""So many largest sets of one component are compared with one another."""
PROVING, IMPROVING, BOUNDING = 50_000, 20_000, 50_000
"""What is looked at in turns."""
HOOD, PIECE = 60, 80
"""Vertices in the first neighbourhoods and pieces; later ones are larger."""
PIECE_WORK = 60_000
"""So many vertices are looked at for one neighbourhood or piece at most."""
ENOUGH = 3
"""After so many sizes of pieces in turn without a better bound there will be none."""


class GraphPart:
    """One component of the graph, and how far the search in it has come. Sets are in the graph's own numbers."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        oldest = graph.everything.bit_length() - 1
        self.best = 1 << oldest
        """Independent at any time."""
        self.value = graph.counted[oldest]
        """What it weighs, by `counted`."""
        self.bound = weigh(graph.everything, graph.counted)
        """What an independent set weighs at most."""
        self.sets: list[int] = []
        """The largest sets that are to be compared."""
        self.is_complete = False
        """Whether there are no other largest ones; those without as many vertices as possible are among them."""
        self.is_oldest = False
        """Whether the first of them is the one with the oldest vertices."""
        self.everything = graph.name(graph.everything)
        """All vertices, in the names of the whole graph."""
        self._all = graph.everything
        self._centers = cycle(bits(self._all))
        self._hood, self._piece, self._useless_exchanges, self._useless_bounds = HOOD, PIECE, 0, 0
        self._kernel: Kernel | None = None

    @property
    def is_proven(self) -> bool:
        """Whether no set weighs more, or as much with more vertices."""
        return self.value == self.bound

    @property
    def options(self) -> list[int]:
        """Largest sets to choose from, in the names of the whole graph."""
        return [self.graph.name(each) for each in self.sets or [self.best]]

    def begin(self) -> Work[None]:
        """Find a first set and a first bound, and everything if it is easy."""
        graph = self.graph
        if len(graph) <= SMALL:
            yield from self.list()
            if self.is_complete:
                return
        found, value, proven = yield from peel(graph.adjacent, graph.counted, self._all)
        self._improve(found, value)
        self._limit(value if proven else (yield from cover(graph.adjacent, graph.counted, self._all)))
        if len(graph) > SMALL:
            yield from self.list()

    def list(self) -> Work[None]:
        """Find all largest sets, if there is little to go through."""
        counted = self.graph.counted
        found = yield from list_largest(self.graph, LISTING, MOST_SETS)
        if found is not None:
            values = [weigh(each, counted) for each in found]
            self.value = self.bound = max(values)
            self.best = found[values.index(self.value)]
            self.sets, self.is_complete, self.is_oldest = found, True, True

    def prove(self) -> Work[None]:
        """Branch and bound until no set can weigh more, in turns with exchanges and pieces if that takes long."""
        graph = self.graph
        asked = find_heaviest(graph.adjacent, graph.counted, self._all, self.value)
        while not self.is_proven:
            left = PROVING
            while left > 0 and not self.is_proven:
                try:
                    looked = next(asked)
                except StopIteration as end:
                    if end.value is not None:
                        self._improve(*end.value)
                    self._limit(self.value)
                    return
                left -= looked + 1
                yield looked
            yield from self._exchange()
            yield from self._bound()

    def walk(self, most_work: int, most_sets: int) -> Work[int]:
        """Find the largest sets with the oldest vertices. Return how many vertices it looked at."""
        walk = Walk(self.graph, self.best, most_work, most_sets)
        yield from walk.go()
        self.sets = walk.found or [walk.nearest]
        self.best = self.sets[0]
        self.is_oldest = bool(walk.found)
        self.is_complete = walk.complete and len(set(self.graph.weights)) == 1
        return most_work - walk.left

    def _exchange(self) -> Work[None]:
        """Look for a while for the best set around one vertex after the other; for less long once that finds nothing."""
        graph = self.graph
        budget = Budget(IMPROVING if self._hood == HOOD else IMPROVING // 4)
        while budget.left > 0:
            before = self.value
            center = next(self._centers)
            changed = exchange(graph.adjacent, graph.counted, self.best, center, self._hood, PIECE_WORK)
            self.best = yield from spend(changed, budget)
            self.value = weigh(self.best, graph.counted)
            self._useless_exchanges = self._useless_exchanges + 1 if self.value == before else 0
            if self._useless_exchanges > len(graph):
                self._hood, self._useless_exchanges = self._hood + self._hood // 4, 0

    def _bound(self) -> Work[None]:
        """Work out bounds by larger and larger pieces for a while, until they do not improve."""
        if self._kernel is None:
            self._kernel = Kernel(self.graph.adjacent, self.graph.counted, self._all)
            self._kernel.merge_twins()
            yield from self._kernel.reduce(self._all)
        kernel, budget = self._kernel, Budget(BOUNDING)
        while budget.left > 0 and self._useless_bounds < ENOUGH:
            before = self.bound
            pieces = bound_by_pieces(kernel.adjacent, kernel.weights, kernel.alive, self._piece, PIECE_WORK)
            self._limit(kernel.gained + (yield from spend(pieces, budget)))
            self._useless_bounds = self._useless_bounds + 1 if self.bound == before else 0
            self._piece += self._piece // 4

    def _improve(self, found: int, value: int) -> None:
        if value > self.value:
            self.best, self.value = found, value

    def _limit(self, bound: int) -> None:
        self.bound = max(min(self.bound, bound), self.value)
