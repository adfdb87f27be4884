"""Who continues if some pairs of members could not talk, and why these: the question, and the answer as a plain object.

Each master keeps the best connected set of the members that it reaches (`membership.connectivity`). Members that it reaches and removes
wait until their links are whole. Members that it does not reach hear nothing of that: the oldest of them claims the mastership, and
they continue as a cluster of their own. That is a full cut, and the rule holds again among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx.common.ids import address_of
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import Protection
from phalanx.common.words import counted
from phalanx.membership.connectivity import SLICE, ConnectedSet, Search, count_holders
from phalanx.reports.cuts import Find
from phalanx.reports.placement import Placement

MOST_NAMED = 3
"""How many members of a side, or maps, a sentence names."""


class Given(msgspec.Struct):
    """The cluster that it is about. Members oldest first, under the names that are shown."""

    members: list[str]
    master: str
    lite: list[str]
    zones: dict[str, str]
    holders: list[tuple[frozenset[str], int]]
    """Members that hold the replicas of a partition, and how many partitions those hold together."""
    find: Find
    table_version: int | None = None
    protections: list[tuple[str, Protection]] = []
    """Names of maps, or their beginnings with `*`, and when these refuse calls."""

    def data_members(self, members: Iterable[str]) -> list[str]:
        """Return those that hold data."""
        without = set(self.lite)
        return [member for member in members if member not in without]

    def count_lost(self, kept: Iterable[str]) -> int:
        """Return how many partitions have no replica at these members, and one elsewhere."""
        inside = set(kept)
        return sum(count for held_by, count in self.holders if held_by and inside.isdisjoint(held_by))


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
        _protections_of(partition_table.maps),
    )


def _protections_of(plan: MapPlan) -> list[tuple[str, Protection]]:
    """Return the names for which a protection is set that can refuse something; `*`: all other maps."""
    named = [(name, change.protection) for name, change in plan.maps if change.protection is not None]
    return [(name, protection) for name, protection in [*named, ("*", plan.usual.protection)] if protection.is_on]


class RefusedCalls(msgspec.Struct, frozen=True):
    """A map that refuses calls on one side."""

    map: str
    """Its name, or the beginning of names with `*`."""
    needs: str
    """What it needs, in words."""


class SurvivingSide(msgspec.Struct, frozen=True):
    """Members that continue as one cluster, and what becomes of the data there."""

    master: str
    members: tuple[str, ...]
    """Oldest first."""
    waiting: tuple[str, ...]
    """Members that the master reaches and removes: they come back when their links are whole."""
    lost_partitions: int
    """Partitions of which no replica is on this side: they begin empty."""
    refuses: tuple[RefusedCalls, ...]
    because: str
    """Why these members stay, in words."""


class SidesSearch:
    """The search for all sides, slice by slice. The side of the master comes first."""

    def __init__(self, given: Given, cuts: dict[str, set[str]]) -> None:
        self.given = given
        self._cuts = cuts
        self._voters = given.data_members(given.members) or given.members
        self._apart: list[str] = []
        """Members that no master so far reaches."""
        self.sides: list[SurvivingSide] = []
        """The sides after the first one that are found."""
        self.first = self._present = self._begin(given.members, given.master)
        """The search on the side of the master."""
        self._master = given.master

    @property
    def is_over(self) -> bool:
        """Whether all sides are found."""
        return self._present.is_over and not self._apart

    @property
    def undecided(self) -> list[str]:
        """Return the members that no side is known for yet."""
        if self._present is self.first:
            return self._apart
        return [*self._present.members, *self._apart]

    def run(self, steps: int = SLICE) -> bool:
        """Continue for about this many steps, of some microseconds each. Return whether the search is complete."""
        if not self._present.run(steps):
            return False
        if self._present is not self.first:
            self.sides.append(self._side(self._present, self._master))
        if not self._apart:
            self._present = self.first
            return True
        self._master = self._apart[0]
        self._present = self._begin(self._apart, self._master)
        return False

    def first_side(self) -> SurvivingSide:
        """Return the side of the master, by the best set so far."""
        return self._side(self.first, self.given.master)

    def _begin(self, members: list[str], master: str) -> Search[str]:
        """Begin to search among those that a master reaches; the others are apart from it."""
        cuts, given = self._cuts, self.given
        its: set[str] = cuts.get(master, set())
        self._apart = [member for member in members if member in its or master in cuts.get(member, ())]
        apart = set(self._apart)
        reached = [member for member in members if member not in apart]
        return Search(reached, cuts, master=master, lite=given.lite, zones=given.zones, holders=given.holders)

    def _side(self, search: Search[str], master: str) -> SurvivingSide:
        best, given = search.best(), self.given
        kept = set(best.members)
        data, votes = len(given.data_members(kept)), sum(voter in kept for voter in self._voters)
        has_majority = 2 * votes > len(self._voters)
        refuses = [
            RefusedCalls(name, f"{protection}, and {data} {'is' if data == 1 else 'are'} here")
            for name, protection in given.protections
            if data < protection.minimum or (protection.majority and not has_majority)
        ]
        return SurvivingSide(master, best.members, best.removed, given.count_lost(kept), tuple(refuses), best.because)


def largest_sets(search: SidesSearch, limit: int, most_work: int) -> list[tuple[str, ...]]:
    """Return the set that is kept on the side of the master, then others as large, as they would come next.

    `limit`: the most sets that are looked for; `most_work`: as of `Search.find_largest`. Without a proof there is one set.
    """
    first = search.first
    best = first.best()
    if not first.is_over:
        return [best.members]

    def key(kept: tuple[str, ...]) -> tuple[int, int, int, int]:
        its = first.find_score(kept)
        return its.lost_partitions, -its.members, -its.zones, -its.whole_zones

    others = (kept for kept in first.find_largest(limit, most_work) if kept != best.members)
    return [best.members, *sorted(others, key=key)]


def count_of(best: ConnectedSet[str]) -> int | None:
    """Return how many sets are as large; None: not counted."""
    return best.narrowed[0][1] if best.narrowed else None


def tell(sides: list[SurvivingSide], undecided: list[str]) -> str:
    """Return in a sentence what becomes of the cluster. `undecided`: members for which no side was found in time."""
    if len(sides) == 1 and not undecided:
        return sides[0].because
    every = f"at least {len(sides) + 1}" if undecided else "both" if len(sides) == 2 else f"all {len(sides)}"
    named = " | ".join(map(_named, sides[:MOST_NAMED])) + (" | …" if len(sides) > MOST_NAMED or undecided else "")
    of_maps = _tell_of_maps(sides, "all" if undecided else every)
    return f"FULL CUT: {every} sides continue, each with its own master: {named}; {of_maps}"


def _named(side: SurvivingSide) -> str:
    shown = ", ".join(side.members[:MOST_NAMED])
    more = len(side.members) - MOST_NAMED
    return f"{shown} and {counted(more, 'other')}" if more > 0 else shown


def _tell_of_maps(sides: list[SurvivingSide], every: str) -> str:
    """Say which maps stop, and where: a map that is not protected takes writes on each side."""
    where: dict[tuple[int, ...], list[str]] = {}
    for name in dict.fromkeys(refusal.map for side in sides for refusal in side.refuses):
        places = tuple(i for i, side in enumerate(sides) if name in {refusal.map for refusal in side.refuses})
        where.setdefault(places, []).append("all other maps" if name == "*" else name)
    sentences = []
    for places, names in where.items():
        on = (
            f"{every} sides"
            if len(places) == len(sides)
            else " and ".join(f"the side of {sides[i].master}" for i in places)
        )
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        sentences.append(f"protected maps stop on {on}: {', '.join(names[:MOST_NAMED])}{more}")
    rest = f"maps that are not protected take writes on {every} sides"
    return "; ".join([*sentences, rest])


def tell_meeting(given: Given, sides: list[SurvivingSide]) -> str:
    """Say which side the others join when the links are whole, by the order in which masters decide it; empty: there is one side."""
    if len(sides) == 1:
        return ""
    ranks = {side.master: (len(given.data_members(side.members)), len(side.members)) for side in sides}
    best, second = sorted(sides, key=lambda side: ranks[side.master], reverse=True)[:2]
    if ranks[best.master] == ranks[second.master]:
        return (
            f"one side joins the other. {best.master} and {second.master} are equal: each has the same number of members that hold data, and of all members. The side whose "
            "member list has the higher version stays, then the one whose master has the greater identity"
        )
    has_more_data = ranks[best.master][0] > ranks[second.master][0]
    why = (
        "more members hold data there"
        if has_more_data
        else "the same number of members hold data there, and it has more members"
    )
    return f"the others join the side of {best.master}: {why}"


def as_object(
    given: Given, cuts: dict[str, set[str]], search: SidesSearch, sets: list[tuple[str, ...]]
) -> dict[str, Any]:
    """Return what would be decided, and why, as a plain object. `sets`: the largest on the side of the master."""
    age = {member: place for place, member in enumerate(given.members)}
    pairs = {tuple(sorted((one, other), key=age.__getitem__)) for one, others in cuts.items() for other in others}
    best, sides = search.first.best(), [search.first_side(), *search.sides]
    kept = set(best.members)
    return {
        "members": given.members,
        "master": given.master,
        "lite": given.lite,
        "zones": given.zones,
        "table_version": given.table_version,
        "cut": sorted(pairs, key=lambda pair: [age[member] for member in pair]),
        "kept": best.members,
        "removed": [member for member in given.members if member not in kept],
        "optimal": best.optimal,
        "could_be_larger_by": best.could_be_larger_by,
        "lost_partitions": sides[0].lost_partitions,
        "decided_by": best.decided_by,
        "because": tell(sides, search.undecided),
        "narrowed": dict(best.narrowed),
        "tie_is_exact": best.tie_is_exact,
        "largest_count": count_of(best),
        "largest": [_standing(search, each) for each in sets],
        "is_full_cut": len(sides) > 1 or bool(search.undecided),
        "sides": msgspec.to_builtins(sides),
        "undecided": search.undecided,
        "meeting": tell_meeting(given, sides),
    }


def _standing(search: SidesSearch, kept: tuple[str, ...]) -> dict[str, Any]:
    """Return a set with how it does by each criterion."""
    its = msgspec.structs.asdict(search.first.find_score(kept))
    return {"kept": kept, **its, "lost_partitions": search.given.count_lost(kept)}
