"""Improve the set and the bound of a component that is too hard to prove, by exact answers for pieces of it.

Around one vertex after the other, the part of the set in the neighbourhood is exchanged for the best that fits the
rest. No set weighs more than the best sets of pieces that together are everything: the larger the pieces, the closer
the bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.membership.clique.branching import Answer, cover, find_heaviest
from phalanx.membership.clique.graph import Budget, Work, bits, span, weigh
from phalanx.membership.clique.kernel import Kernel

TINY = 20
"""Pieces that are hardly ever worth dividing."""


def peel(adjacent: Sequence[int], weights: Sequence[int], alive: int) -> Work[tuple[int, int, bool]]:
    """Find a first set: reduce, drop the vertex with the most neighbours, repeat. Return it, its weight, and if it is
    proven.
    """
    kernel = Kernel(adjacent, weights, alive)
    kernel.merge_twins()
    yield alive.bit_count() // 4
    yield from kernel.reduce(alive)
    proven = not kernel.alive
    while kernel.alive:
        near, worst = -1, 0
        for vertex in bits(kernel.alive):
            degree = (kernel.adjacent[vertex] & kernel.alive).bit_count()
            if degree > near:
                near, worst = degree, vertex
        yield kernel.alive.bit_count() // 4
        kernel.alive &= ~(1 << worst)
        yield from kernel.reduce(kernel.adjacent[worst] & kernel.alive)
    return kernel.expand(0), kernel.gained, proven


def ask_within(adjacent: Sequence[int], weights: Sequence[int], alive: int, beat: int, budget: Budget) -> Work[Answer]:
    """Find the heaviest set if it weighs more than `beat`; None also if the budget is used up before that is known."""
    asked = find_heaviest(adjacent, weights, alive, beat)
    while budget.left > 0:
        try:
            looked = next(asked)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        budget.left -= looked + 1
        yield looked
    asked.close()
    return None


def exchange(
    adjacent: Sequence[int], weights: Sequence[int], chosen: int, center: int, size: int, most_work: int
) -> Work[int]:
    """Return the set with the best part around one vertex; one of equal weight counts as better."""
    around = 1 << center
    while around.bit_count() < size:
        ring = span(around, adjacent) & ~around
        if not ring:
            break
        around |= ring
        yield ring.bit_count()
    kept = chosen & ~around
    free = around & ~span(kept, adjacent)
    yield kept.bit_count()
    beat = weigh(chosen & around, weights) - 1
    found = yield from ask_within(adjacent, weights, free, beat, Budget(most_work))
    return kept | found[0] if found else chosen


def bound_by_pieces(
    adjacent: Sequence[int], weights: Sequence[int], alive: int, size: int, most_work: int
) -> Work[int]:
    """Return a bound for the weight of an independent set, from pieces of so many vertices, grown dense."""
    most = 0
    while alive:
        start = min(bits(alive), key=lambda vertex: (adjacent[vertex] & alive).bit_count())
        yield alive.bit_count() // 4
        piece = yield from _grow(adjacent, alive, start, size)
        alive &= ~piece
        found = yield from ask_within(adjacent, weights, piece, -1, Budget(most_work))
        if found:
            most += found[1]
        elif size > TINY:
            most += yield from bound_by_pieces(adjacent, weights, piece, size // 2, most_work)
        else:
            most += yield from cover(adjacent, weights, piece)
    return most


def _grow(adjacent: Sequence[int], alive: int, start: int, size: int) -> Work[int]:
    """Grow a piece with few neighbours outside: next is the vertex with the most neighbours inside for the fewest outside."""
    piece = 1 << start
    front = adjacent[start] & alive
    inside = dict.fromkeys(bits(front), 1)
    degree = {vertex: (adjacent[vertex] & alive).bit_count() for vertex in inside}
    while inside and piece.bit_count() < size:
        best = max(inside, key=lambda vertex: (2 * inside[vertex] - degree[vertex], vertex))
        del inside[best]
        piece |= 1 << best
        for vertex in bits(adjacent[best] & alive & ~piece):
            if vertex not in inside:
                inside[vertex], degree[vertex] = 0, (adjacent[vertex] & alive).bit_count()
            inside[vertex] += 1
        yield 1 + len(inside) // 8
    return piece
