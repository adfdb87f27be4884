"""Which member should hold which replica: a pure function of the members and the present table.

Balanced within one replica per member (all replicas together, and owners alone), no member twice in a partition, and
whatever can stay where it is stays. A slow twin in the tests checks the balance; ties go to the member named first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from phalanx.common.invariant import invariant

M = TypeVar("M", bound=Hashable)


def assign(table: Sequence[Sequence[M | None]], members: Sequence[M], backup_count: int) -> list[tuple[M, ...]]:
    """The target replicas of every partition.

    `table`: of each partition its present replicas, owner first; None or an empty row where there is none. Members
    named there that are not in `members` are gone. `members`: who may hold replicas, in the order that breaks ties.
    Returns of each partition its owner and then its backups: `min(backup_count + 1, len(members))` different members.
    """
    invariant(len(set(members)) == len(members), "no member is listed twice", members=members)
    if not members:
        return [() for _ in table]
    wanted = min(backup_count + 1, len(members))
    live = set(members)
    rows = [list(dict.fromkeys(m for m in row if m is not None and m in live))[:wanted] for row in table]
    _fill(rows, members, wanted)
    _level_replicas(rows, members)
    _level_owners(rows, members)
    return [tuple(row) for row in rows]


def least_loaded(candidates: Sequence[M], loads: dict[M, int]) -> M:
    """The candidate with the fewest replicas, the first named among equals."""
    return min(candidates, key=lambda member: loads.get(member, 0))


def _loads(rows: list[list[M]], members: Sequence[M]) -> dict[M, int]:
    loads = dict.fromkeys(members, 0)
    for row in rows:
        for member in row:
            loads[member] += 1
    return loads


def _fill(rows: list[list[M]], members: Sequence[M], wanted: int) -> None:
    """Give every partition its number of replicas, the least loaded member first.

    Owners first, then backups; among equally loaded members the one that shares the fewest partitions with the owner
    comes first, so that the backups of one member are spread over all others.
    """
    loads = _loads(rows, members)
    shared: dict[tuple[M, M], int] = {}
    order = {member: position for position, member in enumerate(members)}
    for index in range(wanted):
        for row in rows:
            if len(row) > index:
                continue
            free = [member for member in members if member not in row]
            owner = row[0] if row else None

            def rank(member: M, owner: M | None = owner) -> tuple[int, int, int]:
                together = shared.get((owner, member), 0) if owner is not None else 0
                return loads[member], together, order[member]

            chosen = min(free, key=rank)
            row.append(chosen)
            loads[chosen] += 1
            if owner is not None:
                shared[owner, chosen] = shared.get((owner, chosen), 0) + 1


def _level_replicas(rows: list[list[M]], members: Sequence[M]) -> None:
    """Move replicas from the fullest to the emptiest member until they differ by at most one."""
    loads = _loads(rows, members)
    holding: dict[M, list[int]] = {member: [] for member in members}
    for partition, row in enumerate(rows):
        for member in row:
            holding[member].append(partition)
    while True:
        fullest = max(members, key=lambda member: loads[member])
        emptiest = min(members, key=lambda member: loads[member])
        if loads[fullest] - loads[emptiest] <= 1:
            return
        held = set(holding[emptiest])
        # One that is held by the fullest and not by the emptiest exists, for the fullest holds more; backups first.
        movable = [partition for partition in holding[fullest] if partition not in held]
        chosen = max(movable, key=lambda partition: rows[partition].index(fullest))
        rows[chosen][rows[chosen].index(fullest)] = emptiest
        holding[fullest].remove(chosen)
        holding[emptiest].append(chosen)
        loads[fullest] -= 1
        loads[emptiest] += 1


def _level_owners(rows: list[list[M]], members: Sequence[M]) -> None:
    """Exchange owners and backups inside partitions until members own equally many, within one.

    An exchange moves no replica to another member. A chain of exchanges from the member that owns most to one that
    owns at least two fewer is searched breadth first; while there is one, apply it.
    """
    if not rows or len(rows[0]) < 2:
        return
    owned = dict.fromkeys(members, 0)
    for row in rows:
        owned[row[0]] += 1
    while chain := _next_chain(rows, members, owned):
        for partition, index in chain:
            row = rows[partition]
            owned[row[0]] -= 1
            owned[row[index]] += 1
            row[0], row[index] = row[index], row[0]


def _next_chain(rows: list[list[M]], members: Sequence[M], owned: dict[M, int]) -> list[tuple[int, int]]:
    """A chain from the member that owns most, or from the next one where that has none."""
    fewest = min(owned.values())
    for giver in sorted(members, key=lambda member: -owned[member]):
        if owned[giver] - fewest < 2:
            break
        if chain := _exchange_chain(rows, giver, owned):
            return chain
    return []


def _exchange_chain(rows: list[list[M]], giver: M, owned: dict[M, int]) -> list[tuple[int, int]]:
    """Exchanges (partition, index of the backup that becomes owner) that take one partition from the giver."""
    by_owner: dict[M, list[int]] = {}
    for partition, row in enumerate(rows):
        by_owner.setdefault(row[0], []).append(partition)
    came_by: dict[M, tuple[M, int, int]] = {}
    queue = [giver]
    for member in queue:
        for partition in by_owner.get(member, ()):
            for index, backup in enumerate(rows[partition][1:], start=1):
                if backup == giver or backup in came_by:
                    continue
                came_by[backup] = (member, partition, index)
                queue.append(backup)
                if owned[giver] - owned[backup] >= 2:
                    return _trace(came_by, giver, backup)
    return []


def _trace(came_by: dict[M, tuple[M, int, int]], giver: M, taker: M) -> list[tuple[int, int]]:
    chain = []
    while taker != giver:
        before, partition, index = came_by[taker]
        chain.append((partition, index))
        taker = before
    return chain[::-1]
