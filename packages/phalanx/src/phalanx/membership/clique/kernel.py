"""Decide what can be decided about a largest independent set without trying: reductions, weighted.

Each reduction removes vertices and keeps at least one heaviest set of the whole graph reachable. Its steps are
recorded, and undone in reverse order when the rest is solved.

* a vertex that weighs as much as all its neighbours together is in;
* neighbours of a vertex that are neighbours of one another: those that weigh no more than it are out, and the others
  are worth only what they weigh more (degree 1, triangles);
* a vertex between two others that are not neighbours is folded with them into one (degree 2);
* vertices with the same neighbours are one (twins: racks of which no member can talk to the other rack);
* a vertex is out if a heaviest set with it could be exchanged for one without it (unconfined, of which domination is
  the simplest case: vertices that would have to be in as well are followed until an exchange shows).
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.membership.clique.graph import PAUSE, Work, bits

LATE, FOLDED, BESIDE, TWIN = range(4)
"""Steps to be undone: a vertex that is in if none of a set is; two that are in, or else the one between them; one that
is in unless the other two exclude it; one that goes with another.
"""

CROWD = 32
"""Following stops when more vertices than this would have to be out."""


class Kernel:
    """A graph that gets smaller. Only vertices in `alive` count; neighbours that are not alive can still be named."""

    __slots__ = ("adjacent", "alive", "gained", "steps", "weights")

    def __init__(self, adjacent: Sequence[int], weights: Sequence[int], alive: int) -> None:
        self.adjacent = list(adjacent)
        self.weights = list(weights)
        self.alive = alive
        self.gained = 0
        """What a set of the original graph weighs more than what is left of it here."""
        self.steps: list[tuple[int, int, int, int]] = []

    def expand(self, chosen: int) -> int:
        """Return a set of the reduced graph as one of the original graph, which weighs `gained` more."""
        for kind, vertex, one, other in reversed(self.steps):
            if kind == LATE:
                if not chosen & one:
                    chosen |= 1 << vertex
            elif kind == FOLDED:
                chosen |= 1 << other if chosen >> one & 1 else 1 << vertex
            elif kind == TWIN:
                chosen |= (chosen >> one & 1) << vertex
            elif not chosen >> one & 1:
                chosen |= 1 << one if chosen >> other & 1 else 1 << vertex
        return chosen

    def reduce(self, dirty: int) -> Work[None]:
        """Apply the reductions. `dirty`: the vertices near which something has changed."""
        adjacent = self.adjacent
        looked = doubted = 0
        while True:
            # The cheap rules first, everywhere.
            doubted |= dirty
            dirty &= self.alive
            while dirty:
                low = dirty & -dirty
                dirty ^= low
                vertex = low.bit_length() - 1
                near = adjacent[vertex] & self.alive
                changed = self._decide(vertex, low, near)
                dirty = (dirty | changed) & self.alive
                doubted |= changed
                looked += 1
                if looked >= PAUSE:
                    yield looked
                    looked = 0
            doubted &= self.alive
            if not doubted:
                break
            # Then the costly ones; after a success the cheap ones again around it.
            for vertex in bits(doubted):
                looked += 3
                doubted &= ~(1 << vertex)
                dirty = self._reconsider(vertex)
                if dirty:
                    break
                if looked >= PAUSE:
                    yield looked
                    looked = 0
            if not dirty:
                break
        yield looked

    def merge_twins(self) -> int:
        """Merge all vertices with the same neighbours. Return the vertices near which something changed."""
        adjacent, alive = self.adjacent, self.alive
        first: dict[int, int] = {}
        changed = 0
        for vertex in bits(alive):
            near = adjacent[vertex] & alive
            twin = first.setdefault(near, vertex)
            if twin != vertex:
                changed |= self._merge(vertex, twin)
        return changed & self.alive

    def _merge(self, vertex: int, twin: int) -> int:
        self.weights[twin] += self.weights[vertex]
        self.alive &= ~(1 << vertex)
        self.steps.append((TWIN, vertex, twin, 0))
        return self.adjacent[twin] & self.alive | 1 << twin

    def take(self, vertex: int) -> int:
        """Put the vertex into the set. Return the vertices near which something changed."""
        near = self.adjacent[vertex] & self.alive
        self.gained += self.weights[vertex]
        self.alive &= ~(near | 1 << vertex)
        self.steps.append((LATE, vertex, 0, 0))
        changed = 0
        for other in bits(near):
            changed |= self.adjacent[other]
        return changed & self.alive

    def _decide(self, vertex: int, bit: int, near: int) -> int:
        """Apply the cheap rules to one vertex. Return the vertices near which something changed."""
        adjacent, weights = self.adjacent, self.weights
        degree = near.bit_count()
        weight = weights[vertex]
        spare, rest = weight, near
        while rest and spare >= 0:
            low = rest & -rest
            spare -= weights[low.bit_length() - 1]
            rest ^= low
        if spare >= 0:
            return self.take(vertex)
        if degree > 2:
            return 0
        one = near.bit_length() - 1
        low = near & -near
        other = low.bit_length() - 1
        if degree == 1 or adjacent[one] & low:
            return self._cut_clique(vertex, near)
        if weights[one] < weights[other]:
            one, other = other, one
        if weight >= weights[one]:
            self.gained += weight
            weights[one] += weights[other] - weight
            self.steps.append((FOLDED, vertex, one, other))
            self.alive &= ~(bit | 1 << other)
        elif weight >= weights[other]:
            # The other is worth its place only beside the one: without the one, this vertex is.
            self.gained += weight
            weights[one] -= weight
            self.steps.append((BESIDE, vertex, one, other))
            self.alive &= ~bit
        else:
            return 0
        self._join(one, other)
        return (adjacent[one] | adjacent[other] | 1 << one | 1 << other) & self.alive

    def _join(self, one: int, other: int) -> None:
        """Let the one vertex that stands for both have the neighbours of either."""
        adjacent, alive = self.adjacent, self.alive
        if alive >> other & 1:
            for near in bits(adjacent[one] & ~adjacent[other] & alive):
                adjacent[near] |= 1 << other
            adjacent[other] |= adjacent[one] & alive
        else:
            for near in bits(adjacent[other] & ~adjacent[one] & alive):
                adjacent[near] |= 1 << one
            adjacent[one] |= adjacent[other] & alive

    def _cut_clique(self, vertex: int, near: int) -> int:
        """Decide about a vertex whose neighbours are neighbours of one another: at most one of all these is in."""
        weights = self.weights
        weight = weights[vertex]
        self.gained += weight
        better = changed = 0
        self.alive &= ~(1 << vertex)
        for other in bits(near):
            changed |= self.adjacent[other] | 1 << other
            if weights[other] > weight:
                weights[other] -= weight
                better |= 1 << other
            else:
                self.alive &= ~(1 << other)
        self.steps.append((LATE, vertex, better, 0))
        return changed & self.alive

    def _is_unconfined(self, vertex: int, around: int) -> bool:
        """Return whether a vertex is out: suppose that every heaviest set has it, and follow what else they must have."""
        adjacent, weights, alive = self.adjacent, self.weights, self.alive
        inside = 1 << vertex
        while around.bit_count() <= CROWD:
            follows = -1
            children, outside = around, alive & ~around & ~inside
            while children:
                low = children & -children
                children ^= low
                child = low.bit_length() - 1
                near = adjacent[child]
                beyond = near & outside
                if beyond & (beyond - 1):
                    continue
                spare = weights[child]
                parents = near & inside
                while parents:
                    low = parents & -parents
                    parents ^= low
                    spare -= weights[low.bit_length() - 1]
                if spare < 0:
                    continue
                if not beyond:
                    return True
                only = beyond.bit_length() - 1
                if weights[only] <= spare:
                    return True
                follows = only
            if follows < 0:
                return False
            inside |= 1 << follows
            around |= adjacent[follows] & alive
        return False

    def _reconsider(self, vertex: int) -> int:
        """Apply the costly rules to one vertex. Return the vertices near which something changed."""
        adjacent, alive = self.adjacent, self.alive
        near = adjacent[vertex] & alive
        if near.bit_count() > CROWD:
            return 0
        for other in bits(adjacent[near.bit_length() - 1] & alive & ~(1 << vertex)):
            if adjacent[other] & alive == near:
                return self._merge(vertex, other)
        if self._is_unconfined(vertex, near):
            self.alive &= ~(1 << vertex)
            return near
        return 0
