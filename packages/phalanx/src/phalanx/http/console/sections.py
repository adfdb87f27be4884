"""What the views of the console show, as plain objects. Types of the same names are in `assets/js/types.d.ts`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from phalanx.common.ids import MemberId, address_of
from phalanx.common.table import HOLE, PartitionTable
from phalanx.common.view import MembersView
from phalanx.http.console.peers import PeerAnswers
from phalanx.http.durations import CALL_ENDS_S, percentile_ms
from phalanx.http.served_member import ServedMember, why_not_ready
from phalanx.membership.detect.suspicion import Trust
from phalanx.reports import losses, safety
from phalanx.reports.partitions import migrations_as_object, wait_as_object
from phalanx.reports.placement import Placement
from phalanx.reports.safety import MasterSays, Reason, judge
from phalanx.wire.messages import ActivityReply, LossesReply, MigrationsReply


def cluster(member: ServedMember, view: MembersView | None, answers: Mapping[MemberId, PeerAnswers]) -> dict[str, Any]:
    """Return the members with their links, versions and loads."""
    table = member.node.installed_table.table
    found: dict[str, Any] = {
        "at": time.time_ns() // 1_000_000,
        "this": member.address,
        "against_ready": why_not_ready(member),
        "view_version": view.version if view is not None else 0,
        "table_version": table.version,
        "master": address_of(view.master) if view is not None else None,
        "restart_wait": wait_as_object(member.node.installed_table.restart_wait),
        "members": [],
        "suspicions": [],
        "late": [],
    }
    if view is None:
        return found
    counts = Placement(view, table, table.maps.depth).counts()
    known = answers.get
    found["members"] = [
        _member(member, view, each, known(each) or PeerAnswers(), counts[each]) for each in view.members
    ]
    suspicions = member.node.membership.suspicions
    now = member.now()
    own = {each: reason for each, reason in suspicions.suspected.items() if each in view}
    found["suspicions"] = [_suspicion(member.id, each, reason) for each, reason in own.items()]
    for by, its in answers.items():
        if by != member.id and its.safety is not None and its.answers:
            found["suspicions"] += [_suspicion(by, each, "") for each in its.safety.suspected if each in view]
    found["late"] = [
        address_of(each)
        for each in view.members
        if each != member.id and suspicions.trust_in(each) is not Trust.SUSPECTED and suspicions.is_in_doubt(each, now)
    ]
    return found


def _suspicion(by: MemberId, of: MemberId, reason: str) -> dict[str, str]:
    return {"by": address_of(by), "of": address_of(of), "reason": reason}


def _member(
    this: ServedMember, view: MembersView, member: MemberId, peer: PeerAnswers, counts: tuple[int, int]
) -> dict[str, Any]:
    traits, safe, held = view.traits_of(member), peer.safety, peer.holdings
    is_this = member == this.id  # its answer can be a moment old
    return {
        "member": member,
        "address": address_of(member),
        "zone": traits.zone,
        "weight": traits.weight,
        "lite": traits.lite,
        "answers": True if is_this else peer.answers,
        "silent_since": int(peer.silent_since * 1000) or None,
        "view_version": view.version if is_this else safe.view.version if safe is not None else None,
        "table_version": this.node.installed_table.table.version
        if is_this
        else safe.table_version
        if safe is not None
        else None,
        "owned": counts[0],
        "backups": counts[1],
        **_activity(peer.activity),
        "entries": held.entries if held is not None else None,
        "bytes": held.bytes if held is not None else None,
        "memory_used": safe.memory_used if safe is not None else None,
        "memory_limit": safe.memory_limit if safe is not None else None,
        "event_log_problem": this.event_log_problem if is_this else safe.event_log_problem if safe is not None else "",
        "kept_entries": safe.kept_entries if safe is not None else 0,
        "disk": safety.disk_as_object(safe.disk) if safe is not None else None,
    }


def _activity(reply: ActivityReply | None) -> dict[str, Any]:
    """Return what a member did in the last seconds; None: it does not tell, or does not count calls."""
    point = reply.points[-1] if reply is not None and reply.points else None
    if reply is None or point is None:
        return {"calls_per_s": None, "p99_ms": None, "clients": None, "processor": None}
    calls = round((point.reads + point.writes) * 1000 / max(point.took_ms, 1), 1)
    return {
        "calls_per_s": calls if reply.counts_calls else None,
        "p99_ms": percentile_ms(point.classes, CALL_ENDS_S, 0.99),
        "clients": point.clients,
        "processor": round(point.processor_ms / max(point.took_ms, 1), 3),
    }


def partitions(view: MembersView, table: PartitionTable, since: Mapping[int, int]) -> dict[str, Any]:
    """Return who holds each partition: for each a list of places in `members`; -1: nobody."""
    placement = Placement(view, table, table.maps.depth)
    return {
        "assigned": table.is_assigned,
        "table_version": table.version,
        "members": [address_of(each) for each in table.members],
        "present": [each in view for each in table.members],
        "rows": [[-1 if place == HOLE else place for place in row] for row in table.rows],
        "wanted": placement.wanted_replicas,
        "configured": placement.backup_count + 1,
        "lacking": {str(partition): at for partition, at in since.items()},
        "without_owner": [p for p, owner in enumerate(table.owners()) if owner is None] if table.is_assigned else [],
    }


def moves(migrations: MigrationsReply | None) -> dict[str, Any]:
    """Return what the master moves, with addresses."""
    found = migrations_as_object(migrations)
    if found is None or migrations is None:
        return {"known": False, "under_way": []}
    under_way = [
        {
            "partition": each.partition,
            "kind": str(each.migration.kind.value),
            "source": _address(each.migration.source),
            "destination": _address(each.migration.destination),
            "phase": each.phase,
            "age_ms": each.age_ms,
        }
        for each in migrations.under_way
    ]
    leaving = [{"address": address_of(each.member), "replicas": each.replicas} for each in migrations.leaving]
    kept = [{"address": address_of(each.member), "entries": each.entries} for each in migrations.kept]
    names = (
        "at_rest",
        "planned",
        "arrived",
        "remaining",
        "done",
        "copied_entries",
        "copied_bytes",
        "took_ms",
        "left_ms",
    )
    figures = {name: found[name] for name in (*names, "lacking")}
    searching = [address_of(each) for each in migrations.searching_for]
    return {"known": True, **figures, "under_way": under_way, "leaving": leaving, "kept": kept, "searching": searching}


def _address(member: MemberId | None) -> str | None:
    return address_of(member) if member is not None else None


def _from_before(member: MemberId, view: MembersView) -> Reason:
    said = f"the member list is changing: {address_of(member)} has not told anything since version {view.version} of it"
    return Reason("view_changing", 1, said)


def safety_of_all(
    view: MembersView,
    answers: Mapping[MemberId, PeerAnswers],
    migrations: MigrationsReply | None,
    lost: LossesReply | None,
) -> dict[str, Any]:
    """Return for each member whether it can be stopped now, by the judgement of `phalanx safe`, and what is lost."""
    masters = answers.get(view.master)
    says = None
    if migrations is not None and masters is not None and masters.safety is not None and masters.answers:
        says = MasterSays(view.master, migrations, masters.safety)
    members = []
    for member in view.members:
        its = answers.get(member)
        if its is None or its.safety is None or not its.answers:
            members.append({"address": address_of(member), "known": False})
            continue
        judged = judge(member, its.safety, says)
        if its.safety.view != view:
            # 1. B dies. 2. This member has the list without B. 3. C has told, a moment ago, that others hold all that it holds.
            judged = safety.against_all(judged, _from_before(member, view))
        found = safety.as_object(judged, its.safety)
        members.append({"known": True, **found})
    return {
        "members": members,
        "losses": losses.as_objects(lost) if lost is not None else None,
        "memory_short": migrations is not None and migrations.memory_shortage is not None,
    }
