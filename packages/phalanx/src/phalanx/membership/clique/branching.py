"""Find a heaviest independent set of one graph, and prove it: reductions, bounds and trying.

Each question is "is there a set heavier than this?", so that a hopeless branch is left early. Each component of what is
left is a question of its own. The vertex with the most neighbours is tried outside and inside. A heaviest set without
it must have neighbours of it that together weigh more, which excludes the vertices that share all but a few of these
neighbours (mirrors): so of two racks that cannot talk, one goes out as a whole.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TypeAlias

from phalanx.membership.clique.graph import PAUSE, Work, bits, find_components, weigh
from phalanx.membership.clique.kernel import CROWD, Kernel

NEAR = 0.44
"""A bound is seldom below this part of all weights: where that is too much, a bound is not worth its work."""

Answer: TypeAlias = "tuple[int, int] | None"
"""A set and its weight; None: no set is heavier than the one to beat."""

Question: TypeAlias = "Generator[int | Question, Answer, Answer]"
"""Yields how many vertices it looked at, or a question whose answer it needs."""


def find_heaviest(adjacent: Sequence[int], weights: Sequence[int], alive: int, beat: int) -> Work[Answer]:
    """Find the heaviest independent set among the alive vertices if it weighs more than `beat`, without recursion."""
    open_questions: list[Question] = [_ask(adjacent, weights, alive, beat)]
    answer: Answer = None
    while open_questions:
        try:
            asked = open_questions[-1].send(answer)
        except StopIteration as end:
            open_questions.pop()
            answer = end.value
            continue
        answer = None
        if isinstance(asked, int):
            yield asked
        else:
            open_questions.append(asked)
    return answer


def _ask(adjacent: Sequence[int], weights: Sequence[int], alive: int, beat: int, dirty: int = -1) -> Question:
    kernel = Kernel(adjacent, weights, alive)
    if dirty < 0:
        kernel.merge_twins()
        yield alive.bit_count() // 4
    yield from kernel.reduce(alive & dirty)
    beat -= kernel.gained
    if not kernel.alive:
        return (kernel.expand(0), kernel.gained) if beat < 0 else None
    if weigh(kernel.alive, kernel.weights) * NEAR <= beat:
        bound = yield from cover(kernel.adjacent, kernel.weights, kernel.alive)
        if bound <= beat:
            return None
    components = yield from find_components(kernel.adjacent, kernel.alive)
    best = yield from (_try(kernel, beat) if len(components) == 1 else _divide(kernel, components, beat))
    return (kernel.expand(best[0]), best[1] + kernel.gained) if best else None


def _divide(kernel: Kernel, components: list[int], beat: int) -> Question:
    """Solve one component after the other, the smallest first."""
    components = sorted(components, key=lambda component: (component.bit_count(), component))
    bounds = []
    for component in components:
        bounds.append((yield from cover(kernel.adjacent, kernel.weights, component)))
    chosen, value, rest = 0, 0, sum(bounds)
    for component, bound in zip(components, bounds, strict=True):
        rest -= bound
        found = yield _ask(kernel.adjacent, kernel.weights, component, beat - value - rest, 0)
        if found is None:
            return None
        chosen, value = chosen | found[0], value + found[1]
    return chosen, value


def _try(kernel: Kernel, beat: int) -> Question:
    adjacent, weights, alive = kernel.adjacent, kernel.weights, kernel.alive
    vertex, degree = 0, -1
    for other in bits(alive):
        count = (adjacent[other] & alive).bit_count()
        if count > degree or (count == degree and weights[other] > weights[vertex]):
            vertex, degree = other, count
    near = adjacent[vertex] & alive
    best = None
    inside = yield _ask(
        adjacent, weights, alive & ~near & ~(1 << vertex), beat - weights[vertex], _beside(adjacent, near)
    )
    if inside is not None:
        best = inside[0] | 1 << vertex, inside[1] + weights[vertex]
        beat = best[1]
    out = 1 << vertex | _find_mirrors(adjacent, weights, alive, vertex, near)
    yield near.bit_count()
    outside = yield _ask(adjacent, weights, alive & ~out, beat, _beside(adjacent, out))
    return outside or best


def _beside(adjacent: Sequence[int], gone: int) -> int:
    changed = 0
    for vertex in bits(gone):
        changed |= adjacent[vertex]
    return changed


def _find_mirrors(adjacent: Sequence[int], weights: Sequence[int], alive: int, vertex: int, near: int) -> int:
    """Return vertices that are out if every heaviest set lacks this one: its neighbours then weigh more together."""
    second = 0
    for other in bits(near):
        second |= adjacent[other]
    mirrors = 0
    for other in bits(second & alive & ~near & ~(1 << vertex)):
        beyond = near & ~adjacent[other]
        # What is left of the neighbours beside this one weighs at most as much as the vertex.
        if weigh(beyond, weights) <= weights[vertex] or (
            all(not beyond & ~adjacent[each] & ~(1 << each) for each in bits(beyond))
            and max(weights[each] for each in bits(beyond)) <= weights[vertex]
        ):
            mirrors |= 1 << other
    return mirrors


def cover(adjacent: Sequence[int], weights: Sequence[int], alive: int) -> Work[int]:
    """Return a bound for the weight of an independent set: less than half of an odd cycle, and one of a pair."""
    left = list(weights)
    most = looked = 0
    rest = alive
    while rest:
        low = rest & -rest
        cycle = _find_odd_cycle(adjacent, alive, low.bit_length() - 1)
        looked += 2
        if cycle:
            weight = min(left[each] for each in cycle)
            most += weight * (len(cycle) // 2)
            alive = _take_layer(left, alive, cycle, weight)
            rest &= alive
        else:
            rest ^= low
        if looked >= PAUSE:
            yield looked
            looked = 0
    for vertex in bits(alive):
        looked += 1
        while alive >> vertex & 1:
            near = adjacent[vertex] & alive
            if not near:
                most += left[vertex]
                break
            other = fewest = -1
            for each in bits(near):
                degree = (adjacent[each] & alive).bit_count()
                if other < 0 or degree < fewest:
                    other, fewest = each, degree
            looked += near.bit_count() // 8
            weight = min(left[vertex], left[other])
            most += weight
            alive = _take_layer(left, alive, [vertex, other], weight)
        if looked >= PAUSE:
            yield looked
            looked = 0
    yield looked
    return most


def _take_layer(left: list[int], alive: int, vertices: list[int], weight: int) -> int:
    for vertex in vertices:
        left[vertex] -= weight
        if not left[vertex]:
            alive &= ~(1 << vertex)
    return alive


def _find_odd_cycle(adjacent: Sequence[int], alive: int, start: int) -> list[int]:
    """Find a shortest odd cycle of at most nine vertices through this one, without a crowd around; empty: none."""
    layers = [1 << start]
    seen = 1 << start
    while len(layers) <= 5:
        last = rest = layers[-1]
        if last.bit_count() > CROWD:
            break
        ring = inside = 0
        while rest:
            low = rest & -rest
            rest ^= low
            near = adjacent[low.bit_length() - 1]
            ring |= near
            inside |= near & last
        if inside and len(layers) > 1:
            cycle = _close(adjacent, layers, inside)
            if cycle:
                return cycle
        ring &= alive & ~seen
        if not ring:
            break
        seen |= ring
        layers.append(ring)
    return []


def _close(adjacent: Sequence[int], layers: list[int], ends: int) -> list[int]:
    """Find two neighbours of the last layer, and ways from both back to the start that do not meet before."""
    for one in bits(ends):
        other = (adjacent[one] & ends & -(1 << one)) & ~(1 << one)
        for end in bits(other):
            way, back = [one], [end]
            for layer in reversed(layers[1:-1]):
                a = adjacent[way[-1]] & layer
                b = adjacent[back[-1]] & layer
                way.append((a & -a).bit_length() - 1)
                b = b & ~(1 << way[-1])
                if not b:
                    break
                back.append((b & -b).bit_length() - 1)
            else:
                return [*way, layers[0].bit_length() - 1, *back]
    return []
