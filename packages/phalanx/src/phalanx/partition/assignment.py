"""Which member should hold which replica: a pure function of the members and the present table.

Priorities, highest first: replicas of a partition in different zones (or hosts), load in proportion to weight, few
moves. Where zones of unequal size make the first two incompatible, zones win: the members of a small zone then hold
more than their share, or those of a large zone less.

The theoretical minimum of moves, which every balanced assignment needs: one copy for each replica that a partition
lacks, and one move for each replica that a member holds above its share. (The share is rounded up for as many members
as there are replicas left over; members that hold most come first.) With equal weights and one zone the result reaches
this minimum, except where the members below their share already hold a replica of the partitions that lack one. Then
the least possible is searched for if the problem is small.

Algorithm: 1. Drop the replicas that cannot stay, owners and backups in proportion. 2. Members below their share take
open places in turn, each as often as it lacks replicas. 3. Chains of replacements correct the rest (`balancing.py`).
Members and partitions are numbers in it, and no partition looks at all members. Ties go to the member named first.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import TypeVar, cast

from phalanx.common.invariant import invariant
from phalanx.partition.placement.balancing import Draft, balance_owners, balance_replicas, save_moves
from phalanx.partition.placement.shares import Candidate, bound_zones, find_quotas, number_zones

__all__ = ["Candidate", "assign"]

M = TypeVar("M", bound=Hashable)

CHOICE = 5
"""How many members whose turn it is are compared. A partition takes the one that shares the fewest partitions with its
owner, so that the partitions of an owner that fails are spread over all others."""

SCRAMBLE = 0x9E3779B1


def assign(
    table: Sequence[Sequence[M | None]], members: Sequence[M | Candidate[M]], backup_count: int
) -> list[tuple[M, ...]]:
    """Return the target replicas of every partition: its owner, then its backups.

    `table`: the present replicas of each partition by index, owner first, None where there is none; rows can be short.
    Members in it that are not in `members` are gone or leaving: others take their places. `members`: the members that
    can hold replicas, in the order that breaks ties; `Candidate`s where weights, zones or hosts differ. Zones count if
    any member names one, else hosts. Each row has `min(backup_count + 1, len(members))` different members.

    Each member holds its fair share of all replicas, rounded down or up, and owns its share of the partitions it holds,
    rounded down or up: with equal weights the members differ by at most one in both. A replica that stays keeps its
    index, except where the partition gets another owner: preferably a new replica, which costs nothing, else a backup
    that changes places with the owner.
    """
    candidates = [cast(Candidate[M], m) if isinstance(m, Candidate) else Candidate(m) for m in members]
    names = [candidate.member for candidate in candidates]
    number = {name: position for position, name in enumerate(names)}
    invariant(len(number) == len(names), "no member is listed twice", members=members)
    invariant(all(c.weight > 0 for c in candidates), "weights are above zero", members=members)
    if not names or not table:
        return [() for _ in table]
    replicas = min(backup_count + 1, len(names))
    zones = number_zones(candidates)
    draft = Draft([_numbered(row, number) for row in table], zones, bound_zones(zones, replicas), replicas)
    weights = [candidate.weight for candidate in candidates]
    quotas = find_quotas(weights, zones, draft.bounds, len(table), replicas, draft.loads)
    theoretical = sum(max(quota - load, 0) for quota, load in zip(quotas, draft.loads, strict=True))
    _drop(draft, quotas)
    _fill(draft, quotas)
    balance_replicas(draft, quotas)
    save_moves(draft, quotas, theoretical)
    owners = [_natural_owner(draft, partition) for partition in range(len(table))]
    balance_owners(draft, owners, draft.loads)
    return [tuple([names[m] for m in _order_by_index(draft, p, owner)]) for p, owner in enumerate(owners)]


def _numbered(row: Sequence[M | None], number: dict[M, int]) -> list[int]:
    """Return the row as numbers, -1 for holes and departed members; a member named twice keeps its lowest index."""
    result: list[int] = []
    for name in row:
        member = -1 if name is None else number.get(name, -1)
        result.append(-1 if member in result else member)
    return result


def _drop(draft: Draft, quotas: Sequence[int]) -> None:
    """Drop replicas above the limits of a row or a zone, then those that members hold above their quotas."""
    loads, zones, bounds = draft.loads, draft.zones, draft.bounds
    for partition, row in enumerate(draft.rows):
        if len(row) <= draft.replicas and (
            not draft.is_zoned or (not draft.has_fewest and len({zones[m] for m in row}) == len(row))
        ):
            continue
        while True:
            counts = draft.in_zones(partition)
            crowded = [m for m in row if counts[zones[m]] > bounds.most[zones[m]]]
            if not crowded and draft.room(partition) < 0:
                crowded = [m for m in row if counts[zones[m]] > bounds.fewest[zones[m]]]
            if not crowded:
                break
            # Among equals, the one with the higher replica index.
            draft.drop(partition, max(reversed(crowded), key=lambda m: loads[m] - quotas[m]))
    owned: list[list[int]] = [[] for _ in quotas]
    backed: list[list[int]] = [[] for _ in quotas]
    for partition, row in enumerate(draft.rows):
        first = draft.before[partition][0] if row else -1
        for member in row:
            if loads[member] > quotas[member]:
                (owned if member == first else backed)[member].append(partition)
    for member, quota in enumerate(quotas):
        excess = loads[member] - quota
        if excess <= 0:
            continue
        # Partitions with the fewest open places first: a member can take only one place of each partition.
        by_openness = sorted(owned[member], key=lambda p: -len(draft.rows[p]))
        as_owner = max(0, min(excess, len(by_openness) + quota // -draft.replicas))
        chosen, rest = by_openness[:as_owner], by_openness[as_owner:]
        chosen += sorted(backed[member], key=lambda p: -len(draft.rows[p]))[: excess - as_owner]
        chosen += rest[: excess - len(chosen)]
        for partition in chosen:
            draft.drop(partition, member)


def _fill(draft: Draft, quotas: Sequence[int]) -> None:
    """Give open places to the members below their quotas in turn; partitions with the fewest replicas come first."""
    rows, count = draft.rows, len(quotas)
    lacking = [max(quota - load, 0) for quota, load in zip(quotas, draft.loads, strict=True)]
    turns = [(1 / lacks, 0, member) for member, lacks in enumerate(lacking) if lacks]
    heapq.heapify(turns)
    shared: dict[int, int] = {}
    for length in range(draft.replicas):
        for partition, row in enumerate(rows):
            if len(row) != length:
                continue
            owner = row[0] if row else -1
            seen: list[tuple[float, int, int]] = []
            best, fewest, until, looked = -1, (0, 0), 0.0, 0
            while turns and looked < CHOICE:
                turn, _, member = turns[0]
                if best >= 0 and turn >= until:
                    break
                seen.append(heapq.heappop(turns))
                if member in row or (draft.is_zoned and not draft.has_place_in(partition, draft.zones[member])):
                    continue
                looked += 1
                together = (shared.get(owner * count + member, 0), (member - owner) % count)
                if best < 0 or together < fewest:
                    if best < 0:
                        until = turn + 1 / lacking[member]
                    best, fewest = len(seen) - 1, together
                    if owner < 0:
                        break
            if best >= 0:
                turn, _, chosen = seen.pop(best)
                if (left := quotas[chosen] - draft.loads[chosen]) > 1:
                    # A different order each round: otherwise the same few members would share partitions every time.
                    tie = (chosen + 1) * (2 * left + 1) * SCRAMBLE >> 8 & 0xFFFFF
                    heapq.heappush(turns, (turn + 1 / lacking[chosen], tie, chosen))
            else:
                chosen = _fallback_member(draft, partition, quotas)
            for waiting in seen:
                heapq.heappush(turns, waiting)
            draft.add(partition, chosen)
            if owner >= 0:
                shared[owner * count + chosen] = shared.get(owner * count + chosen, 0) + 1


def _fallback_member(draft: Draft, partition: int, quotas: Sequence[int]) -> int:
    """Return a member for a place that no member below its quota can take; chains restore the balance later."""
    row = draft.rows[partition]
    allowed = [zone for zone in range(len(draft.bounds.most)) if draft.has_place_in(partition, zone)]
    places = set(allowed)
    fit = [m for m in range(len(quotas)) if m not in row and draft.zones[m] in places]
    return min(fit, key=lambda m: (draft.loads[m] - quotas[m], m))


def _natural_owner(draft: Draft, partition: int) -> int:
    """Return the previous owner if it stays; else the first new member; else the first member of the row."""
    row, before = draft.rows[partition], draft.before[partition]
    if before and before[0] in row:
        return before[0]
    return next((m for m in row if m not in before), row[0])


def _order_by_index(draft: Draft, partition: int, owner: int) -> list[int]:
    """Return the row by index: members that stay keep their indexes, then the owner changes places with index 0."""
    row, before = draft.rows[partition], draft.before[partition]
    places = [before[i] if i < len(before) and before[i] in row else -1 for i in range(draft.replicas)]
    others = [m for m in row if m not in places]
    if owner in others:
        others.remove(owner)
        free = 0 if places[0] < 0 else places.index(-1)
        places[free] = owner
    others.sort(key=lambda m: before.index(m) if m in before else len(before))
    places = [m if m >= 0 else others.pop(0) for m in places]
    at = places.index(owner)
    places[0], places[at] = places[at], places[0]
    return places
