"""Which members would be kept if some pairs could not talk, and why these: the question, and the answer as a plain object."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.common.ids import address_of
from phalanx.membership.connectivity import ConnectedSet, Search, count_holders
from phalanx.operations.cuts import Find
from phalanx.operations.placement import Placement


class Given(msgspec.Struct):
    """The cluster that it is about. Members oldest first, under the names that are shown."""

    members: list[str]
    master: str
    lite: list[str]
    zones: dict[str, str]
    holders: list[tuple[frozenset[str], int]]
    find: Find
    table_version: int | None = None


def given_by(placement: Placement) -> Given:
    """Return the cluster as it is. Members are named by their addresses, and by their ports where these differ."""
    view, partition_table = placement.view, placement.table
    names: list[str] = [address_of(member) for member in view.members]
    known = {name: name for name in names}
    for name in names:
        port = name.rpartition(":")[2]
        known[port] = "" if port in known else name
    rows = [partition_table.replicas(partition) for partition in range(partition_table.partition_count)]
    present = set(view.members)
    held = [[address_of(member) for member in row if member in present] for row in rows]
    return Given(
        names,
        address_of(view.master),
        [address_of(member) for member in view.members if view.traits_of(member).lite],
        {address_of(member): view.traits_of(member).zone for member in view.members},
        count_holders(held),
        lambda name: known.get(name) or None,
        partition_table.version,
    )


def search_for(given: Given, cuts: dict[str, set[str]]) -> Search[str]:
    """Return the search for the best set, not begun."""
    return Search(given.members, cuts, master=given.master, lite=given.lite, zones=given.zones, holders=given.holders)


def sort(search: Search[str], best: ConnectedSet[str], sets: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the set that is kept, then the others as they would come next."""

    def key(kept: tuple[str, ...]) -> tuple[int, int, int, int]:
        its = search.find_standing(kept)
        return its.lost_partitions, -its.members, -its.zones, -its.whole_zones

    return [best.members, *sorted((kept for kept in sets if kept != best.members), key=key)]


def count_of(best: ConnectedSet[str]) -> int | None:
    """Return how many sets are as large; None: not counted."""
    return best.narrowed[0][1] if best.narrowed else None


def as_object(
    given: Given, cuts: dict[str, set[str]], search: Search[str], best: ConnectedSet[str], sets: list[tuple[str, ...]]
) -> dict[str, Any]:
    """Return what would be decided, and why, as a plain object."""
    age = {member: place for place, member in enumerate(given.members)}
    pairs = {tuple(sorted((one, other), key=age.__getitem__)) for one, others in cuts.items() for other in others}
    return {
        "members": given.members,
        "master": given.master,
        "lite": given.lite,
        "zones": given.zones,
        "table_version": given.table_version,
        "cut": sorted(pairs, key=lambda pair: [age[member] for member in pair]),
        "kept": best.members,
        "removed": best.removed,
        "optimal": best.optimal,
        "could_be_larger_by": best.could_be_larger_by,
        "lost_partitions": best.lost_partitions,
        "decided_by": best.decided_by,
        "because": best.because,
        "narrowed": dict(best.narrowed),
        "tie_is_exact": best.tie_is_exact,
        "largest_count": count_of(best),
        "largest": [{"kept": kept, **msgspec.structs.asdict(search.find_standing(kept))} for kept in sets],
    }
