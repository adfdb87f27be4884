"""The best fully connected set of members when some pairs cannot talk (docs/protocol/partial-partitions.md; PD-22,
PD-25…PD-32).

It is decided by these criteria, in this order: the greatest sum of weights (data members weigh one, lite members
nothing, so they never outvote data); the fewest partitions whose only replicas lie outside; the most members, which
among sets with as many data members means the most lite ones; the most different zones of data members, because
replicas of one partition are kept in different zones, then the most complete zones, because the rest of a zone must
hold as much as the whole; the oldest: of two sets the one that has the oldest member that only one of them has. The
master is always inside: it decides, so it removes the members that it cannot reach (A.6-9). A pair is broken if either
side reports it (PD-28).

The search runs in slices and has no clock: its caller decides when it is over, and can ask at any time for the best set
so far and for a proven bound on how much more another could weigh (A.6-8).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import nlargest
from typing import Generic, TypeVar

import msgspec

from phalanx.common.errors import UsageError
from phalanx.membership.clique.graph import PAUSE, Work, bits, cut_out, exhaust, find_components
from phalanx.membership.clique.part import MOST_SETS, GraphPart
from phalanx.membership.clique.preferring import CRITERIA, Choice, PreferenceOptions, Stakes, choose

M = TypeVar("M", bound=Hashable)

SLICE = 1_000
"""Steps between two questions whether to continue: some milliseconds."""
ENDLESS = 1 << 62

WALKING = 6_000
"""So many vertices are looked at to find out which of the largest sets of hard components are the oldest."""

WORDS = {
    "lost": ("of them lose the fewest partitions", "of them loses the fewest partitions"),
    "members": ("of these keep the most members", "of these keeps the most members"),
    "zones": ("of these keep the most zones", "of these keeps the most zones"),
    "whole": ("of these keep the most zones whole", "of these keeps the most zones whole"),
    "age": ("", "that keeps the oldest members"),
}


class ConnectedSet(msgspec.Struct, Generic[M], frozen=True):
    """A fully connected set of members, and why this one."""

    members: tuple[M, ...]
    """Oldest first."""
    removed: tuple[M, ...]
    """All others, oldest first."""
    optimal: bool
    """Whether it is proven that no fully connected set (with the master) weighs more."""
    could_be_larger_by: int | float
    """A proven bound: no fully connected set weighs more than this one and that much."""
    weight: int | float
    """What the set weighs: its data members, unless weights were given."""
    lost_partitions: int
    """Partitions whose only replicas were held by removed members."""
    narrowed: tuple[tuple[str, int], ...]
    """How many sets weighed as much, and how many were left after each criterion; empty: there were too many to count."""
    decided_by: str
    """What decided in the end: size, lost, members, zones, whole or age."""
    tie_is_exact: bool
    """Whether this is the best by all criteria of all sets that weigh as much, not only of those that were looked at."""
    because: str
    """Why this set, in words."""


class ConnectivityScore(msgspec.Struct, frozen=True):
    """What decides among sets that weigh as much, before age."""

    lost_partitions: int
    members: int
    zones: int
    """Different zones of data members."""
    whole_zones: int
    """The number of these zones that have all their data members."""


class Search(Generic[M]):
    """The search for the best fully connected set, slice by slice. The same input gives the same answers.

    `members`: oldest first. `disconnections`: of each reporter, the members that it cannot reach; names of others are
    ignored. `master`: always inside, if given. `weight`: of each member, 1 if not said; without it data members weigh 1
    and the `lite` ones nothing. `zones`: of each member, if it has one. `holders`: of partitions, the members that
    hold a replica, and how many partitions those hold together (`count_holders`). Raises UsageError.
    """

    def __init__(
        self,
        members: Iterable[M],
        disconnections: Mapping[M, Iterable[M]],
        *,
        master: M | None = None,
        weight: Mapping[M, float] | Callable[[M], float] | None = None,
        lite: Collection[M] = (),
        zones: Mapping[M, str] | None = None,
        holders: Iterable[tuple[Collection[M], int]] = (),
    ) -> None:
        self.members = tuple(members)
        self._bit = {member: len(self.members) - 1 - age for age, member in enumerate(self.members)}
        if len(self._bit) != len(self.members):
            raise UsageError("the members name one of them twice")
        if master is not None and master not in self._bit:
            raise UsageError(f"the master {master!r} is not one of the members")
        self._master = 0 if master is None else 1 << self._bit[master]
        self._weights, self._scale = _find_weights(self.members, weight, lite)
        self._reports = [
            (self._bit[reporter], tuple(unreachable))
            for reporter, unreachable in disconnections.items()
            if reporter in self._bit
        ]
        self._stakes = self._find_stakes(lite, zones or {}, holders)
        self._apart = 0
        """Members that the master cannot reach."""
        self._free = 0
        """Members without a broken pair among those that remain."""
        self._parts: list[GraphPart] = []
        """The components of what remains."""
        self._built = False
        self._choice: Choice | None = None
        self._work = self._search()
        self.is_over = False
        """Whether nothing more can be found."""

    def __repr__(self) -> str:
        return f"Search({len(self.members)} members, {'over' if self.is_over else 'going on'})"

    def run(self, steps: int = SLICE) -> bool:
        """Continue for about so many steps, of some microseconds each. Return whether the search is over."""
        while steps > 0 and not self.is_over:
            try:
                steps -= next(self._work) + 1
            except StopIteration:
                self.is_over = True
        return self.is_over

    @property
    def is_proven(self) -> bool:
        """Whether no set weighs more than the best so far, or as much with more members."""
        return self._built and all(part.is_proven for part in self._parts)

    def best(self) -> ConnectedSet[M]:
        """Return the best set so far."""
        if not self._built:
            one = self._master or (1 << len(self.members)) >> 1
            return self._result(one, sum(self._weights), None)
        fixed = self._free | self._master
        kept = self._choice.kept if self._choice else fixed
        bound, counted = self._weigh(fixed), 1 + len(self.members)
        for part in self._parts:
            bound += part.bound // counted
            if not self._choice or not part.is_proven or not part.sets:
                kept = kept & ~part.everything | part.graph.name(part.best)
        return self._result(kept, bound, self._choice)

    def find_largest(self, limit: int | None = None, most_work: int = ENDLESS) -> list[tuple[M, ...]]:
        """Return all sets of the greatest weight and then the most members, those with older members first (PD-31); end the
        search.

        There can be very many, twice as many with each separate pair: `limit` returns at most so many. `most_work`: steps for
        each hard component after which no further sets are looked for.
        """
        self.run(ENDLESS)
        sets = [self._free | self._master]
        for part in self._parts:
            if not part.is_complete:
                exhaust(part.walk(most_work, limit or ENDLESS))
            options = part.options
            if limit is None:
                sets = [kept | option for kept in sets for option in options]
            else:
                # As bits do not overlap, the greatest sums are sums of the greatest.
                sets = nlargest(limit, (kept | option for kept in sets for option in options[:limit]))
        sets.sort(reverse=True)
        return [self._name(kept) for kept in sets]

    def find_score(self, kept: Iterable[M]) -> ConnectivityScore:
        """Return how a set does by each criterion."""
        lost, size, zones, whole, _ = self._stakes.key(sum(1 << self._bit[member] for member in kept))
        return ConnectivityScore(lost, -size, -zones, -whole)

    def _name(self, kept: int) -> tuple[M, ...]:
        return tuple(member for member in self.members if kept >> self._bit[member] & 1)

    def _find_stakes(
        self, lite: Collection[M], zones: Mapping[M, str], holders: Iterable[tuple[Collection[M], int]]
    ) -> Stakes:
        bit, without = self._bit, frozenset(lite)
        merged: dict[int, int] = {}
        for held_by, count in holders:
            mask = sum(1 << bit[member] for member in frozenset(held_by) if member in bit)
            if mask:
                merged[mask] = merged.get(mask, 0) + count
        places: dict[str, int] = {}
        for member in self.members:
            if zones.get(member) and member not in without:
                places[zones[member]] = places.get(zones[member], 0) | 1 << bit[member]
        return Stakes(tuple(sorted(merged.items())), tuple(places.values()))

    def _weigh(self, mask: int) -> int:
        top = len(self.members) - 1
        return sum(self._weights[top - vertex] for vertex in bits(mask))

    def _search(self) -> Work[None]:
        count = len(self.members)
        adjacent = yield from self._find_broken()
        alive = (1 << count) - 1
        if self._master:
            self._apart = adjacent[self._master.bit_length() - 1]
            alive &= ~self._apart & ~self._master
        contested = sum(1 << vertex for vertex in bits(alive) if adjacent[vertex] & alive)
        self._free = alive & ~contested
        weights = self._weights[::-1]
        components = yield from find_components(adjacent, contested)
        for component in components:
            graph = yield from cut_out(adjacent, weights, component, count + 1)
            self._parts.append(GraphPart(graph))
        self._built = True
        for part in self._parts:
            yield from part.begin()
        yield from self._choose()
        hard = [part for part in self._parts if not part.is_complete]
        for part in sorted(hard, key=lambda part: len(part.graph)):
            yield from part.prove()
        left = WALKING
        for part in hard:
            left -= yield from part.walk(left, MOST_SETS)
        if hard:
            yield from self._choose()

    def _choose(self) -> Work[None]:
        """Choose among the largest sets that were found."""
        parts = []
        for part in self._parts:
            others = 0 if part.is_complete else part.everything
            parts.append(PreferenceOptions(part.options, others, part.is_oldest))
            yield len(part.options)
        self._choice = yield from choose(self._free | self._master, parts, self._stakes)

    def _find_broken(self) -> Work[list[int]]:
        """Find the vertices with which each vertex has a broken pair, reported by either side."""
        adjacent = [0] * len(self.members)
        get = self._bit.get
        seen = 0
        for reporter, unreachable in self._reports:
            mask, mine = 0, 1 << reporter
            for member in unreachable:
                vertex = get(member)
                if vertex is not None and vertex != reporter:
                    mask |= 1 << vertex
                    adjacent[vertex] |= mine
            adjacent[reporter] |= mask
            seen += 1 + len(unreachable) // 8
            if seen >= PAUSE:
                yield seen
                seen = 0
        yield seen
        return adjacent

    def _result(self, kept: int, bound: int, choice: Choice | None) -> ConnectedSet[M]:
        if not self.is_over or not choice:
            choice = Choice(kept, (), False)
        weight = self._weigh(kept)
        members, removed = self._name(kept), self._name(~kept)
        larger = _number(bound - weight, self._scale)
        decided = _find_decisive(choice)
        result = ConnectedSet(
            members,
            removed,
            bound == weight,
            larger,
            _number(weight, self._scale),
            sum(count for mask, count in self._stakes.holders if not mask & kept),
            tuple(zip(("size", *CRITERIA), choice.left, strict=True)) if choice.left else (),
            decided,
            choice.exact,
            "",
        )
        return msgspec.structs.replace(result, because=_tell(result))


def count_holders(rows: Iterable[Collection[M | None]]) -> list[tuple[frozenset[M], int]]:
    """Return each set of members that hold the replicas of a partition, and for how many partitions."""
    counts: dict[frozenset[M], int] = {}
    for row in rows:
        held_by = frozenset(member for member in row if member is not None)
        counts[held_by] = counts.get(held_by, 0) + 1
    return list(counts.items())


def _find_weights(
    members: Sequence[M], weight: Mapping[M, float] | Callable[[M], float] | None, lite: Collection[M]
) -> tuple[list[int], int]:
    """Return whole numbers in proportion to the weights, and how many of them are one."""
    if weight is None:
        without = frozenset(lite)
        return [0 if member in without else 1 for member in members], 1
    exact = []
    for member in members:
        given = weight(member) if callable(weight) else weight.get(member, 1)
        if not isinstance(given, int | float | Fraction) or not math.isfinite(given) or given < 0:
            raise UsageError(f"the weight of {member!r} must be a number from 0 on, not {given!r}")
        exact.append(Fraction(given))
    scale = math.lcm(*(each.denominator for each in exact))
    return [each.numerator * (scale // each.denominator) for each in exact], scale


def _number(value: int, scale: int) -> int | float:
    """Convert a weight to the caller's unit, never too small."""
    if not value % scale:
        return value // scale
    number = value / scale
    return math.nextafter(number, math.inf) if Fraction(number) < Fraction(value, scale) else number


def _find_decisive(choice: Choice) -> str:
    """Return the last criterion that reduced the number of sets."""
    if not choice.left:
        return "age" if choice.exact else "size"
    decisive = [
        name for name, before, after in zip(CRITERIA, choice.left, choice.left[1:], strict=False) if after < before
    ]
    return decisive[-1] if decisive else "size"


def _tell(result: ConnectedSet[M]) -> str:
    whole = f"{len(result.members)} of {len(result.members) + len(result.removed)} members are kept"
    if not result.removed:
        return "no pair among the members is broken"
    if not result.optimal:
        return f"{whole}; the search was stopped: another set could be larger by {result.could_be_larger_by}"
    if not result.narrowed and result.tie_is_exact:
        return f"{whole}: of all sets as large, the one {WORDS['age'][1]}"
    if not result.narrowed:
        return f"{whole}: no set is larger; of those as large not all were compared"
    narrowings = []
    for (_, before), (name, after) in zip(result.narrowed, result.narrowed[1:], strict=False):
        if after < before:
            narrowings.append(
                f"{after} {WORDS[name][after == 1]}" if name != "age" else "and this one keeps the oldest members"
            )
    sets = result.narrowed[0][1]
    return f"{whole}: " + ", ".join(
        [f"{sets} sets are as large" if sets > 1 else "no other set is as large", *narrowings]
    )
