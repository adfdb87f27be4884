"""Balance a draft of an assignment: chains take a replica, or ownership, from members that have too much.

Members and partitions are numbers here.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.partition.placement.shares import ZoneBounds

SMALL = 100_000
"""Largest number of combinations of a replica and a member for which `save_moves` searches for fewer moves."""


class Draft:
    """An assignment under construction."""

    def __init__(self, before: list[list[int]], zones: Sequence[int], bounds: ZoneBounds, replicas: int) -> None:
        self.before = before
        """By partition and index: the member of the present table, -1 where there is none that stays in the cluster."""
        self.zones = zones
        self.bounds = bounds
        self.replicas = replicas
        self.is_zoned = len(bounds.most) > 1
        self.has_fewest = any(bounds.fewest)
        """Whether there are too few zones to keep all replicas apart."""
        self.rows: list[list[int]] = [[m for m in row if m >= 0] for row in before]
        """By partition: its members in the draft, in no particular order."""
        self.loads = [0] * len(zones)
        for row in self.rows:
            for member in row:
                self.loads[member] += 1

    def is_new(self, partition: int, member: int) -> bool:
        return member not in self.before[partition]

    def drop(self, partition: int, member: int) -> None:
        self.rows[partition].remove(member)
        self.loads[member] -= 1

    def add(self, partition: int, member: int) -> None:
        self.rows[partition].append(member)
        self.loads[member] += 1

    def in_zones(self, partition: int) -> list[int]:
        """Return how many replicas of the partition each zone holds."""
        counts = [0] * len(self.bounds.most)
        for member in self.rows[partition]:
            counts[self.zones[member]] += 1
        return counts

    def room(self, partition: int) -> int:
        """Return how many replicas can still go to any zone with room; below zero: so many are in the wrong zones."""
        row = self.rows[partition]
        if not self.has_fewest or not self.is_zoned:
            return self.replicas - len(row)
        return self.replicas - sum(map(max, self.in_zones(partition), self.bounds.fewest))

    def has_place_in(self, partition: int, zone: int) -> bool:
        """Return whether one more replica of the partition can be in the zone."""
        zones = self.zones
        there = sum(zones[m] == zone for m in self.rows[partition])
        return there < self.bounds.fewest[zone] or (there < self.bounds.most[zone] and self.room(partition) > 0)

    def may_replace(self, partition: int, member: int, other: int) -> bool:
        """Return whether `other`, which holds no replica of the partition, can replace `member` in it."""
        zones = self.zones
        if zones[member] == zones[other]:
            return True
        leaving = entering = 0
        for m in self.rows[partition]:
            leaving += zones[m] == zones[member]
            entering += zones[m] == zones[other]
        return leaving > self.bounds.fewest[zones[member]] and entering < self.bounds.most[zones[other]]

    def moves(self) -> int:
        return sum(m not in before for before, row in zip(self.before, self.rows, strict=True) for m in row)


Arc = tuple[int, int, int]
"""A partition, the member that gives up its replica, and the member that takes it."""


def balance_replicas(draft: Draft, quotas: Sequence[int]) -> None:
    """Bring every member to its quota, first with replicas that move anyway, then with others."""
    if draft.loads == list(quotas):
        return
    held: list[list[int]] = [[] for _ in quotas]
    for partition, row in enumerate(draft.rows):
        for member in row:
            held[member].append(partition)
    for is_free in (True, False):
        tries = 2 * sum(abs(load - quota) for load, quota in zip(draft.loads, quotas, strict=True)) + 10
        while tries and (chain := _find_chain(draft, quotas, held, is_free=is_free)):
            tries -= 1
            for partition, giver, taker in chain:
                row = draft.rows[partition]
                # An earlier step of the chain may have changed the zones of the same partition.
                if giver not in row or taker in row or not draft.may_replace(partition, giver, taker):
                    break
                draft.drop(partition, giver)
                draft.add(partition, taker)
                held[giver].remove(partition)
                held[taker].append(partition)


def _find_chain(draft: Draft, quotas: Sequence[int], held: list[list[int]], *, is_free: bool) -> list[Arc]:
    """Return a shortest chain from a member above its quota to one below, last step first; empty: there is none."""
    queue = [m for m, load in enumerate(draft.loads) if load > quotas[m]]
    came_by: dict[int, Arc] = {}
    unseen = [m for m, load in enumerate(draft.loads) if load <= quotas[m]]
    for giver in queue:
        for partition in held[giver]:
            if is_free and not draft.is_new(partition, giver) and len(draft.before[partition]) <= draft.replicas:
                continue
            row, left = draft.rows[partition], []
            is_dear = is_free and not draft.is_new(partition, giver)
            for taker in unseen:
                is_out = taker in row or (is_dear and draft.is_new(partition, taker))
                if is_out or (draft.is_zoned and not draft.may_replace(partition, giver, taker)):
                    left.append(taker)
                else:
                    came_by[taker] = (partition, giver, taker)
                    queue.append(taker)
                    if draft.loads[taker] < quotas[taker]:
                        return _trace(came_by, taker)
            unseen = left
            if not unseen:
                break
    return []


def _trace(came_by: dict[int, Arc], end: int) -> list[Arc]:
    chain = []
    while end in came_by:
        chain.append(came_by[end])
        end = came_by[end][1]
    return chain


def save_moves(draft: Draft, quotas: Sequence[int], theoretical: int) -> None:
    """Undo moves with rings of replacements of negative total cost, until there is none.

    Only if the draft has more moves than the theoretical minimum, and is small. Without zones the result is minimal.
    """
    members = len(quotas)
    if draft.replicas * len(draft.rows) * members > SMALL:
        return
    saved = draft.moves() - theoretical
    fewest, most = min(quotas), max(quotas)
    is_level = most - fewest == 1 and not draft.is_zoned
    while saved > 0 and (ring := _find_ring(draft, (fewest, most) if is_level else None)):
        rows, loads = [list(row) for row in draft.rows], list(draft.loads)
        for partition, giver, taker in ring:
            draft.drop(partition, giver)
            draft.add(partition, taker)
        bounds = draft.bounds
        if draft.is_zoned and any(
            not few <= count <= many
            for partition, _, _ in ring
            for few, count, many in zip(bounds.fewest, draft.in_zones(partition), bounds.most, strict=True)
        ):
            draft.rows, draft.loads = rows, loads
            return
        saved = draft.moves() - theoretical


def _find_ring(draft: Draft, limits: tuple[int, int] | None) -> list[Arc]:
    """Return a ring of replacements that saves more moves than it adds (Bellman-Ford); empty: there is none.

    With limits, one more node stands for the choice of the members with the larger share: a chain from a member that
    can hold one fewer to one that can hold one more is a ring through it.
    """
    count = len(draft.loads)
    arcs: dict[tuple[int, int], tuple[int, int]] = {}
    for partition, row in enumerate(draft.rows):
        new = [draft.is_new(partition, m) for m in range(count)]
        for giver in row:
            for taker in range(count):
                cost = new[taker] - new[giver]
                is_better = (giver, taker) not in arcs or cost < arcs[giver, taker][0]
                if is_better and taker not in row and draft.may_replace(partition, giver, taker):
                    arcs[giver, taker] = (cost, partition)
    if limits is not None:
        for member, load in enumerate(draft.loads):
            if load > limits[0]:
                arcs[count, member] = (0, -1)
            if load < limits[1]:
                arcs[member, count] = (0, -1)
    costs, came_from = [0] * (count + 1), [-1] * (count + 1)
    last = -1
    for _ in range(count + 1):
        last = -1
        for (giver, taker), (cost, _) in arcs.items():
            if costs[giver] + cost < costs[taker]:
                costs[taker], came_from[taker], last = costs[giver] + cost, giver, taker
        if last < 0:
            return []
    for _ in range(count + 1):
        last = came_from[last]
    ring: list[Arc] = []
    taker = last
    while not ring or taker != last:
        giver = came_from[taker]
        ring.append((arcs[giver, taker][1], giver, taker))
        taker = giver
    return [arc for arc in ring if arc[0] >= 0]


def balance_owners(draft: Draft, owners: list[int], quotas: Sequence[int]) -> None:
    """Let every member own its share of the partitions it holds, rounded down or up.

    First with new replicas, which can take any index at no cost, then with exchanges of the owner and a backup.
    """
    owned: list[list[int]] = [[] for _ in quotas]
    for partition, owner in enumerate(owners):
        owned[owner].append(partition)
    counts = [len(partitions) for partitions in owned]
    fewest = [quota // draft.replicas for quota in quotas]
    most = [-(-quota // draft.replicas) for quota in quotas]
    for is_free in (True, False):
        for above, below in ((most, fewest), (most, most), (fewest, fewest)):
            while _exchange(draft, owners, owned, counts, (above, below), is_free=is_free):
                pass


def _exchange(
    draft: Draft,
    owners: list[int],
    owned: list[list[int]],
    counts: list[int],
    limits: tuple[list[int], list[int]],
    *,
    is_free: bool,
) -> bool:
    """Run one round: search breadth first from all members above, then apply all chains of the shortest length.

    Return whether anything changed.
    """
    above, below = limits
    queue = [m for m, count in enumerate(counts) if count > above[m]]
    distance = dict.fromkeys(queue, 0)
    exits: dict[int, list[tuple[int, int]]] = {}
    longest = len(counts)
    for giver in queue:
        if distance[giver] >= longest:
            break
        owned[giver] = [p for p in dict.fromkeys(owned[giver]) if owners[p] == giver]
        exits[giver] = []
        for partition in owned[giver]:
            for taker in draft.rows[partition]:
                if is_free and not (draft.is_new(partition, taker) or draft.before[partition][0] == taker):
                    continue
                if taker not in distance:
                    distance[taker] = distance[giver] + 1
                    queue.append(taker)
                    if counts[taker] < below[taker]:
                        longest = min(longest, distance[taker])
                if distance[taker] == distance[giver] + 1:
                    exits[giver].append((partition, taker))
    has_changed = False
    for source in [m for m in queue if distance[m] == 0]:
        while counts[source] > above[source]:
            chain: list[tuple[int, int]] = []
            at = source
            while not (chain and counts[at] < below[at]):
                if exits.get(at):
                    partition, taker = exits[at].pop()
                    if owners[partition] == at:
                        chain.append((partition, taker))
                        at = taker
                elif chain:
                    at = owners[chain.pop()[0]]
                else:
                    break
            if not chain:
                break
            counts[source] -= 1
            counts[at] += 1
            for partition, taker in chain:
                owners[partition] = taker
                owned[taker].append(partition)
            has_changed = True
    return has_changed
