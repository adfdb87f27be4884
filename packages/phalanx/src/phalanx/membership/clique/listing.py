"""List all largest independent sets of one component by going through the maximal ones (Bron-Kerbosch with a pivot).

It is cheap where a component is small or cut cleanly, as racks are: two racks of hundreds that cannot talk have two
maximal sets. It gives up if there is too much to go through.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.membership.clique.graph import Graph, Work, bits


def list_largest(graph: Graph, most_work: int, most_sets: int) -> Work[list[int] | None]:
    """Return all maximal independent sets of the greatest weight, those with older vertices first; None: it gave up."""
    adjacent, weights = graph.adjacent, graph.weights
    best, work = -1, 0
    found: list[int] = []
    # Of each open branch: what is chosen and its weight, what can still come, what was tried already.
    branches = [(0, 0, graph.everything, 0)]
    while branches:
        chosen, weight, possible, tried = branches.pop()
        looked = 1 + (possible | tried).bit_count()
        work += looked
        if work > most_work:
            return None
        if not possible:
            if not tried and weight >= best:
                if weight > best:
                    best, found = weight, []
                found.append(chosen)
                if len(found) > most_sets:
                    return None
            continue
        yield looked
        if weight + cover_with_pairs(adjacent, weights, possible) < best:
            continue
        fewest, split = len(graph) + 1, 0
        for pivot in bits(possible | tried):
            near = possible & (adjacent[pivot] | 1 << pivot)
            count = near.bit_count()
            if count < fewest:
                fewest, split = count, near
        # The branch of the oldest is looked into first: the last one pushed.
        later = []
        for vertex in reversed(list(bits(split))):
            out = ~(adjacent[vertex] | 1 << vertex)
            later.append((chosen | 1 << vertex, weight + weights[vertex], possible & out, tried & out))
            possible &= ~(1 << vertex)
            tried |= 1 << vertex
        branches += reversed(later)
    return sorted(found, reverse=True)


def cover_with_pairs(adjacent: Sequence[int], weights: Sequence[int], alive: int) -> int:
    """Return an upper bound for the weight of an independent set: it has one of two neighbours."""
    most = 0
    while alive:
        low = alive & -alive
        alive ^= low
        vertex = low.bit_length() - 1
        weight = weights[vertex]
        near = adjacent[vertex] & alive
        if near:
            low = near & -near
            alive ^= low
            weight = max(weight, weights[low.bit_length() - 1])
        most += weight
    return most
