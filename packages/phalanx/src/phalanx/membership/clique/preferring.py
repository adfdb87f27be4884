"""Choose among the largest sets: the one that loses the fewest partitions, then the most members, zones and the oldest.

Components are chosen one by one, except those that share what is at stake: a partition whose replicas lie in several, a
zone with members in several. Those are chosen together as long as there are few combinations; beyond that, one
component after the other is improved until none can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import msgspec

from phalanx.membership.clique.graph import Work, bits

COMBINATIONS = 4_096
"""So many combinations of the largest sets of several components are gone through."""

Key = tuple[int, int, int, int, int]

CRITERIA = ("lost", "members", "zones", "whole", "age")
"""What decides among the largest sets, in this order."""


class Stakes(msgspec.Struct, frozen=True):
    """What is at stake besides members, as sets of vertices of the whole graph."""

    holders: tuple[tuple[int, int], ...] = ()
    """The members that hold the replicas of some partitions, and the number of these partitions."""
    zones: tuple[int, ...] = ()
    """The members that hold data of each zone."""

    def key(self, kept: int) -> Key:
        """Return the sort key of a set: the smaller the better."""
        lost = sum(count for mask, count in self.holders if not mask & kept)
        seen = sum(1 for zone in self.zones if zone & kept)
        whole = sum(1 for zone in self.zones if not zone & ~kept)
        return lost, -kept.bit_count(), -seen, -whole, -kept


class Choice(msgspec.Struct, frozen=True):
    """The set chosen, and how."""

    kept: int
    left: tuple[int, ...]
    """How many sets there were, and how many were left after each of `CRITERIA`. Empty: they were not counted."""
    exact: bool
    """Whether no other of the largest sets is better by any criterion."""


class PreferenceOptions(msgspec.Struct, frozen=True):
    """Of one component: sets to choose from, in the names of the whole graph."""

    sets: list[int]
    others: int = 0
    """Vertices that can be in or out of sets that are not listed; 0: all sets are."""
    is_oldest: bool = True
    """Whether the first is the one with the oldest vertices."""


class Group(msgspec.Struct, frozen=True):
    """Components that share something at stake."""

    members: list[int]
    stakes: Stakes
    always: int
    """The vertices that are kept with any choice."""


def choose(fixed: int, parts: Sequence[PreferenceOptions], stakes: Stakes) -> Work[Choice]:
    """Choose the best combination of one set of each component. `fixed`: vertices that are in any."""
    kept, exact = fixed, True
    left = [1] * (1 + len(CRITERIA))
    complete = not any(part.others for part in parts)
    groups = yield from _group(fixed, parts, stakes)
    for group in groups:
        members = [parts[index].sets for index in group.members]
        if any(parts[index].others for index in group.members):
            exact &= all(parts[index].is_oldest for index in group.members) and group.stakes == Stakes()
        if prod(map(len, members)) > COMBINATIONS:
            exact = False
            kept |= yield from _improve(members, group)
            continue
        options = list(map(sum, product(*members)))
        keys = []
        for option in options:
            keys.append(group.stakes.key(group.always | option))
            yield 1 + len(group.stakes.holders) // 8
        best = min(keys)
        kept |= options[keys.index(best)]
        for criterion in range(len(left)):
            left[criterion] *= sum(1 for key in keys if key[:criterion] == best[:criterion])
    return Choice(kept, tuple(left) if exact and complete else (), exact)


def _group(fixed: int, parts: Sequence[PreferenceOptions], stakes: Stakes) -> Work[list[Group]]:
    """Group components that share something at stake; what no choice changes is left out."""
    always, ever = fixed, 0
    owner: dict[int, int] = {}
    for index, part in enumerate(parts):
        inside, outside = part.sets[0] & ~part.others, part.others
        for each in part.sets:
            inside &= each
            outside |= each
        always |= inside
        ever |= outside & ~inside
        owner.update(dict.fromkeys(bits(outside & ~inside), index))
        yield len(part.sets)
    leader = list(range(len(parts)))

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    contested = [(mask & ever, count) for mask, count in stakes.holders if not mask & always and mask & ever]
    zones = [zone for zone in stakes.zones if zone & ever and not (zone & always and zone & ~always & ~ever)]
    for mask in [*(mask for mask, _ in contested), *zones]:
        touched = {find(owner[vertex]) for vertex in bits(mask & ever)}
        for index in touched:
            leader[index] = min(touched)
        yield len(touched)
    groups: dict[int, list[int]] = {}
    for index in range(len(parts)):
        groups.setdefault(find(index), []).append(index)
    mine: dict[int, tuple[list[tuple[int, int]], list[int]]] = {index: ([], []) for index in groups}
    for mask, count in contested:
        mine[find(owner[mask.bit_length() - 1])][0].append((mask, count))
    for zone in zones:
        mine[find(owner[(zone & ever).bit_length() - 1])][1].append(zone)
    return [
        Group(group, Stakes(tuple(mine[index][0]), tuple(mine[index][1])), always) for index, group in groups.items()
    ]


def _improve(lists: Sequence[Sequence[int]], group: Group) -> Work[int]:
    """Give one component after the other its best set, with the others unchanged, until none changes."""
    key, always = group.stakes.key, group.always
    chosen = yield from _lose_little(lists, group)
    now = sum(chosen)
    changed = True
    while changed:
        changed = False
        for index, sets in enumerate(lists):
            others = now & ~chosen[index]
            best = min(sets, key=lambda each: key(always | others | each))
            yield len(sets) * (1 + len(group.stakes.holders) // 8)
            if key(always | others | best) < key(always | now):
                chosen[index], now, changed = best, others | best, True
    return now


def _lose_little(lists: Sequence[Sequence[int]], group: Group) -> Work[list[int]]:
    """Choose sets that lose few partitions, by trying for a while: first the set of each component that loses the least."""
    last: dict[int, list[tuple[int, int]]] = {}
    everywhere = [0] * len(lists)
    for index, sets in enumerate(lists):
        for each in sets:
            everywhere[index] |= each
    for mask, count in group.stakes.holders:
        # What becomes of it is known once the last of these has been chosen for.
        last.setdefault(max(index for index, any_of in enumerate(everywhere) if any_of & mask), []).append(
            (mask, count)
        )
        yield 1 + len(lists) // 8
    best: list[int] = []
    fewest = sum(count for _, count in group.stakes.holders) + 1
    branches: list[tuple[int, int, list[int]]] = [(0, 0, [])]
    tried = 0
    while branches and fewest and (tried < COMBINATIONS or not best):
        lost, kept, chosen = branches.pop()
        if lost >= fewest:
            continue
        if len(chosen) == len(lists):
            best, fewest = chosen, lost
            continue
        further = []
        for each in lists[len(chosen)]:
            more = sum(count for mask, count in last.get(len(chosen), ()) if not mask & (kept | each))
            further.append((lost + more, -each.bit_count(), -each))
        tried += 1
        yield 1 + len(further)
        further.sort(reverse=True)
        branches += [(less, kept | -each, [*chosen, -each]) for less, _, each in further]
    return best
