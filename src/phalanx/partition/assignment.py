"""Which member should hold which replica: a pure function of the members and the present table.

In this order: zones apart (or hosts), members loaded by their weights, few moves. Where zones of unequal size make the
first two impossible together, zones win: a small zone's members then hold more than their share, or a large one's less.

The least number of moves in theory, which any balance needs: of the replicas that partitions lack, each is a copy; of
those that a member holds above its share (rounded up for as many members as there are replicas left over, those that
hold most first), each moves. With equal weights and one zone that is also what is made, except where the members below
their share hold a replica of the very partitions that lack one; there the least possible is searched for if the whole
is small.

How: what cannot stay is dropped, owners and backups in proportion; members below their share take what is open in turn,
each as often as it lacks replicas; chains of replacements then mend what that left (`balancing.py`). Members and
partitions are numbers in it, and no partition looks at all members. Ties go to the member named first.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from typing import TypeVar, cast

from phalanx.common.invariant import invariant
from phalanx.partition.placement.balancing import Draft, level_owners, level_replicas, save_moves
from phalanx.partition.placement.shares import Candidate, bound_zones, find_quotas, number_zones

__all__ = ["Candidate", "assign", "count_moves", "find_fewest_moves", "least_loaded"]

M = TypeVar("M", bound=Hashable)

CHOICE = 5
"""Among so many members whose turn it is, a partition takes the one that shares the fewest with its owner: what an owner
leaves behind is then spread over all others."""

SCRAMBLE = 0x9E3779B1


def assign(
    table: Sequence[Sequence[M | None]], members: Sequence[M | Candidate[M]], backup_count: int
) -> list[tuple[M, ...]]:
    """The target replicas of every partition.

    `table`: of each partition its present replicas by index, owner first, None where there is none; rows may be short.
    Members named there that are not in `members` are gone or leaving: others take their places. `members`: who may hold
    replicas, in the order that breaks ties; `Candidate`s where weights, zones or hosts differ. Zones count if any
    member names one, else hosts. Returns of each partition its owner and then its backups:
    `min(backup_count + 1, len(members))` different members.

    Each member holds its fair share of all replicas, rounded down or up, and owns its part of what it holds, rounded
    down or up: with equal weights the members differ by at most one in both. What stays keeps its index, except where
    another is to be the owner: a newcomer at first, which costs nothing, else a backup that exchanges with the owner.
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
    level_replicas(draft, quotas)
    save_moves(draft, quotas, theoretical)
    owners = [_natural_owner(draft, partition) for partition in range(len(table))]
    level_owners(draft, owners, draft.loads)
    return [tuple([names[m] for m in _in_places(draft, p, owner)]) for p, owner in enumerate(owners)]


def count_moves(table: Sequence[Sequence[M | None]], rows: Sequence[Sequence[M]]) -> int:
    """Replicas that have to be copied to a member that does not hold one of the partition."""
    return sum(member not in before for before, row in zip(table, rows, strict=True) for member in row)


def find_fewest_moves(table: Sequence[Sequence[M | None]], members: Sequence[M], backup_count: int) -> int:
    """Return how many moves any balance needs in theory, with equal weights and one zone: see above."""
    if not members:
        return 0
    held = dict.fromkeys(members, 0)
    for row in table:
        for member in dict.fromkeys(row):
            if member is not None and member in held:
                held[member] += 1
    share, larger = divmod(len(table) * min(backup_count + 1, len(members)), len(members))
    fullest_first = sorted(held.values(), reverse=True)
    return sum(max(share + (position < larger) - count, 0) for position, count in enumerate(fullest_first))


def least_loaded(candidates: Sequence[M], loads: dict[M, int]) -> M:
    """The candidate with the fewest replicas, the first named among equals."""
    return min(candidates, key=lambda member: loads.get(member, 0))


def _numbered(row: Sequence[M | None], number: dict[M, int]) -> list[int]:
    """The row with -1 for holes and for members that are gone; what is named twice counts where it is hottest."""
    result: list[int] = []
    for name in row:
        member = -1 if name is None else number.get(name, -1)
        result.append(-1 if member in result else member)
    return result


def _drop(draft: Draft, quotas: Sequence[int]) -> None:
    """Take away what cannot stay: too many in a row or a zone; then what members hold above their quotas."""
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
            # The colder one among equals.
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
        # Fewest open places first: who takes them can take only one of each partition.
        by_openness = sorted(owned[member], key=lambda p: -len(draft.rows[p]))
        as_owner = max(0, min(excess, len(by_openness) + quota // -draft.replicas))
        chosen, rest = by_openness[:as_owner], by_openness[as_owner:]
        chosen += sorted(backed[member], key=lambda p: -len(draft.rows[p]))[: excess - as_owner]
        chosen += rest[: excess - len(chosen)]
        for partition in chosen:
            draft.drop(partition, member)


def _fill(draft: Draft, quotas: Sequence[int]) -> None:
    """Give what is open to the members below their quotas, each in its turn; the emptiest partitions first."""
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
                    # In another order each time around, or the same few would share partitions over and over.
                    tie = (chosen + 1) * (2 * left + 1) * SCRAMBLE >> 8 & 0xFFFFF
                    heapq.heappush(turns, (turn + 1 / lacking[chosen], tie, chosen))
            else:
                chosen = _anybody(draft, partition, quotas)
            for waiting in seen:
                heapq.heappush(turns, waiting)
            draft.add(partition, chosen)
            if owner >= 0:
                shared[owner * count + chosen] = shared.get(owner * count + chosen, 0) + 1


def _anybody(draft: Draft, partition: int, quotas: Sequence[int]) -> int:
    """Return a member for a place for which every member that lacks replicas is excluded; chains set the balance right."""
    row = draft.rows[partition]
    allowed = [zone for zone in range(len(draft.bounds.most)) if draft.has_place_in(partition, zone)]
    places = set(allowed)
    fit = [m for m in range(len(quotas)) if m not in row and draft.zones[m] in places]
    return min(fit, key=lambda m: (draft.loads[m] - quotas[m], m))


def _natural_owner(draft: Draft, partition: int) -> int:
    """The owner before, if it stays; else who comes new, in its place; else the hottest that stays."""
    row, before = draft.rows[partition], draft.before[partition]
    if before and before[0] in row:
        return before[0]
    return next((m for m in row if m not in before), row[0])


def _in_places(draft: Draft, partition: int, owner: int) -> list[int]:
    """The row by index: what stays keeps its index, the owner comes first and who was there takes its place."""
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
