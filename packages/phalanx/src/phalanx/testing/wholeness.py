"""Whether the members of a test agree who they are, and hold all replicas that they should."""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import combinations

from phalanx.common.ids import Address, MemberId, address_of
from phalanx.testing.cuts import Cuts
from phalanx.testing.local_member import LocalMember
from phalanx.wire.messages import SafetyReply


def why_not_whole(members: Sequence[LocalMember], own: Set[Address], cuts: Cuts) -> str:
    """Return what is missing; empty: nothing. `members`: all that run and do not hang. `own`: the addresses of all that the cluster
    has had; members elsewhere are those of the tested program, which can come and go.
    """
    if not members:
        return "all members that run hang"
    found: dict[MemberId, tuple[LocalMember, SafetyReply]] = {}
    outside: list[str] = []
    for member in members:
        says = member.safety()
        if says is None:
            outside.append(member.name)
        else:
            found[member.id] = member, says
    names = {identity: member.name for identity, (member, _) in found.items()}
    return (
        _why_outside(outside, found, names, cuts)
        or _why_views_differ(found, names, own, cuts)
        or next((why for member, says in found.values() if (why := _why_unsafe(member, says))), "")
        or next((why for member, says in found.values() if (why := _why_migrating(member, says))), "")
    )


def _why_outside(
    outside: list[str], found: dict[MemberId, tuple[LocalMember, SafetyReply]], names: dict[MemberId, str], cuts: Cuts
) -> str:
    """Say which member is in no cluster because it cannot reach all others of any view; empty: none.

    Such a member is not admitted anywhere, and waits until the cut ends.
    """
    sides = {frozenset(names.get(each, "") for each in says.view.members) for _, says in found.values()}
    for name in outside:
        if not sides or any(not any(cuts.between(name, other) for other in side) for side in sides):
            return f"{name} is in no cluster"
    return ""


def _why_views_differ(
    found: dict[MemberId, tuple[LocalMember, SafetyReply]], names: dict[MemberId, str], own: Set[Address], cuts: Cuts
) -> str:
    views = {}
    for identity, (member, says) in found.items():
        view = says.view
        gone = [each for each in view.members if each not in found and address_of(each) in own]
        if gone or says.suspected:
            return f"{member.name} has not removed {', '.join(dict.fromkeys((*gone, *says.suspected)))}"
        if identity not in view:
            return f"{member.name} has a view without itself"
        here = [each for each in view.members if each in found]
        for other in here:
            if (found[other][1].view.version, found[other][1].view.members) != (view.version, view.members):
                return f"{member.name} and {names[other]} have different views"
            if found[other][1].table_version != says.table_version:
                return f"{member.name} and {names[other]} have different partition tables"
        views[frozenset(names[each] for each in here)] = member
    for side in views:
        for name, another in combinations(sorted(side), 2):
            if cuts.between(name, another):
                return f"{name} and {another} are cut off from each other, and in one view"
    for one_side, other_side in combinations(views, 2):
        if not any(cuts.between(one, other) for one in one_side for other in other_side):
            return f"{', '.join(sorted(one_side))} and {', '.join(sorted(other_side))} have not merged"
    return ""


def _why_unsafe(member: LocalMember, says: SafetyReply) -> str:
    for count, what in (
        (says.lacking, "partitions have too few replicas"),
        (says.unconfirmed, "partitions have a backup that may lack writes"),
        (says.migrating, "partitions migrate"),
        (says.kept, "partitions wait to be merged"),
    ):
        if count:
            return f"{count} {what}, as {member.name} says"
    return ""


def _why_migrating(member: LocalMember, says: SafetyReply) -> str:
    if says.view.master != member.id:
        return ""
    migrations = member.migrations()
    return "" if migrations is not None and migrations.at_rest else f"{member.name}, the master, plans migrations"
