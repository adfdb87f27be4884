"""Is a cluster whole? Judged from what its members say, and from what the one knows who starts and ends them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from phalanx.common.ids import Address, MemberId, address_of
from phalanx.common.words import counted
from phalanx.reports.placement import Placement


@dataclass(frozen=True)
class Surveyed:
    """What was seen of a cluster at one time."""

    serving: Mapping[str, tuple[MemberId, Placement]]
    """Name of each process that serves to its incarnation, and the list and the table that it has installed."""
    leaving: Collection[Address] = ()
    """Where members listen that were told to leave, and have not ended."""
    starting: int = 0
    """Processes that are not ready yet: any of them can be in the list already."""
    heard_of: Collection[MemberId] = field(default=frozenset())
    """All incarnations that serve, or ever served."""


def find_missing(seen: Surveyed) -> str | None:
    """Find why the cluster is not whole; None: it is. In a whole cluster all that serve have one list
    and one table, the list has exactly them and perhaps those that come or go, and every partition has
    all its replicas on members of the list.
    """
    if not seen.serving:
        return "nobody serves"
    (first_name, (_, first)), *others = seen.serving.items()
    for name, (_, placement) in others:
        if placement.view != first.view:
            return f"{name} has member list {placement.view.version}, {first_name} {first.view.version}"
        if placement.table != first.table:
            return f"{name} has table version {placement.table.version}, {first_name} {first.table.version}"
    return _find_missing_member(seen, first) or _find_missing_replica(first)


def _find_missing_member(seen: Surveyed, placement: Placement) -> str | None:
    """Find a member of the list that does not serve, and is neither leaving nor coming: nobody has heard of one that comes.

    A member that was killed a moment ago does not come: the table still has replicas on it, which are none.
    """
    view, ids = placement.view, {member for member, _ in seen.serving.values()}
    for member in sorted(ids):
        if member not in view:
            return f"{member} is not in member list {view.version}"
    may_come = seen.starting
    for member in view.members:
        if member in ids or address_of(member) in seen.leaving:
            continue
        may_come -= 1
        if member in seen.heard_of or may_come < 0:
            return f"member list {view.version} still has {member}"
    return None


def _find_missing_replica(placement: Placement) -> str | None:
    version, lacking = placement.table.version, placement.lacking()
    if not placement.table.is_assigned:
        return "the partitions are not assigned"
    if lacking:
        have = counted(len(lacking), "partition has", "partitions have")
        return f"{have} fewer than {placement.wanted_replicas} replicas by table version {version}"
    return None
