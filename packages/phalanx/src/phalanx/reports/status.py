"""The whole cluster at one moment: what each member says of itself, and why not all is well."""

from __future__ import annotations

from typing import Any, NamedTuple

from phalanx.common.errors import ClientClosed, UnavailableError
from phalanx.common.ids import MemberId, address_of
from phalanx.common.words import counted
from phalanx.reports.partitions import Seen
from phalanx.reports.partitions import as_object as partitions_as_object
from phalanx.reports.progress import in_one_line
from phalanx.wire.messages import ActivityReply, ReplicasReply, SafetyReply


class MemberAnswer(NamedTuple):
    """What one member says of itself."""

    held: ReplicasReply
    safety: SafetyReply
    activity: ActivityReply | None = None
    """What it did in the last seconds; None: it was not asked."""


class Look(NamedTuple):
    """What was seen of a cluster at one moment."""

    seen: Seen
    answers: dict[MemberId, MemberAnswer | None]
    sizes: dict[str, int]
    against: list[str]
    """Why not all is well."""


def problems(seen: Seen, answers: dict[MemberId, MemberAnswer | None]) -> list[str]:
    """Return why not all is well, a sentence each."""
    view, found = seen.placement.view, []
    for member, says in answers.items():
        name = address_of(member)
        if says is None:
            found.append(f"{name} does not answer")
            continue
        safety = says.safety
        if safety.view.version != view.version:
            found.append(f"{name} has member list {safety.view.version}, and others {view.version}")
        if safety.suspected:
            found.append(f"{name} suspects {', '.join(map(address_of, safety.suspected))}")
        if says.held.kept_entries:
            kept = counted(says.held.kept_entries, "entry", "entries")
            found.append(f"{name} keeps {kept} of a side that gave up its cluster")
        if 0 < safety.memory_limit <= safety.memory_used:
            found.append(f"{name} refuses writes that need more memory: its memory is full")
        if safety.disk_problem:
            found.append(f"{name} has trouble with its disk: {safety.disk_problem}")
        if safety.event_log_problem:
            found.append(
                f"{name} cannot write its event log ({safety.event_log_problem}): events wait, and are lost if too many wait"
            )
    if not seen.is_whole:
        found.append(in_one_line(seen))
    if seen.losses is not None and (count := len(seen.losses.losses.losses) + seen.losses.losses.earlier):
        found.append(f"{counted(count, 'loss is', 'losses are')} not acknowledged")
    return found


def silent_owners(seen: Seen, answers: dict[MemberId, MemberAnswer | None]) -> list[MemberId]:
    """Return the members that own partitions and do not answer: maps cannot be counted before they do, or are removed."""
    counts = seen.placement.counts()
    return [member for member, says in answers.items() if says is None and counts[member][0]]


def not_counted(because: list[MemberId] | ClientClosed | UnavailableError) -> str:
    """Say why the sizes of maps are missing."""
    if not isinstance(because, list):
        return f"maps cannot be counted: {because}"
    return f"maps are not counted while {', '.join(map(address_of, because))} does not answer"


def as_object(look: Look) -> dict[str, Any]:
    """Return the whole cluster as a plain object."""
    holdings = {member: says.held if says is not None else None for member, says in look.answers.items()}
    view = look.seen.placement.view
    releases = view.all_releases()
    found: dict[str, Any] = {
        "well": not look.against,
        "problems": look.against,
        "cluster_version": view.cluster_version,
    }
    found |= partitions_as_object(look.seen, holdings, every=False)
    for each in found["members"]:
        says = look.answers[each["member"]]
        each["memory_used"] = says.safety.memory_used if says is not None else None
        each["memory_limit"] = says.safety.memory_limit if says is not None else None
        each["event_log_problem"] = says.safety.event_log_problem if says is not None else None
        each["suspects"] = says.safety.suspected if says is not None else None
        each["master"] = each["member"] == view.master
        each["release"] = releases[each["member"]].name
    return found | {"maps": [{"map": name, "size": size} for name, size in look.sizes.items()]}
