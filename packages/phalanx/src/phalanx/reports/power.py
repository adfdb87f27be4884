"""Whether everything can lose power now: a pure judgement of what all members say of their folders.

What comes back is what the folders have. A partition is there again if one of its holders has a folder, and the cluster goes on
by itself if the majority of its data members have one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from phalanx.common.ids import MemberId, address_of
from phalanx.common.memory import format_bytes
from phalanx.common.words import counted
from phalanx.reports.placement import Placement
from phalanx.reports.safety import Reason
from phalanx.wire.messages import SafetyReply

SET_FOLDER = "give each member that holds data a folder (data_dir)"
ASK_AGAIN = "look why it does not answer, and ask again"
MERGE_FIRST = "wait until it is merged"


class PowerJudgement(msgspec.Struct, frozen=True):
    """What happens if all members lose power now."""

    against: list[Reason]
    """Why more would be lost than the last moment."""
    notes: list[str]


def judge_power(placement: Placement, answers: Mapping[MemberId, SafetyReply | None]) -> PowerJudgement:
    """Judge what would come back. `answers`: what each member of the list says; None: it does not answer."""
    members = placement.view.data_members
    against = list(_about_members(members, answers))
    lacking = [each for each in members if (says := answers.get(each)) is not None and says.disk is None]
    against += _about_partitions(placement, lacking)
    if lacking and 2 * len(lacking) >= len(members):
        said = f"{counted(len(lacking), 'member')} of {len(members)} would come back without its vote: the cluster would wait for an operator"
        against.append(Reason("no_majority", len(lacking), said, SET_FOLDER))
    return PowerJudgement(against, [*_about_last_moment(answers), *_about_devices(placement, answers)])


def _about_members(members: Iterable[MemberId], answers: Mapping[MemberId, SafetyReply | None]) -> Iterable[Reason]:
    for member in members:
        says, name = answers.get(member), address_of(member)
        if says is None:
            yield Reason("no_answer", 1, f"{name} does not answer", ASK_AGAIN)
        elif says.disk is not None and says.disk.state == "failed":
            yield Reason("disk_failed", 1, f"the disk of {name} has failed: {says.disk.why}", SET_FOLDER)
        elif says.kept:
            said = f"{name} keeps {counted(says.kept_entries, 'entry', 'entries')} of a side that gave up its cluster: no folder has them"
            yield Reason("kept", says.kept, said, MERGE_FIRST)


def _about_partitions(placement: Placement, lacking: list[MemberId]) -> Iterable[Reason]:
    """Yield the reason if no holder of a partition has a folder."""
    table = placement.table
    lost = [
        partition
        for partition in range(table.partition_count)
        if (holders := table.replicas(partition)) and all(each in lacking for each in holders)
    ]
    if lost:
        who = ", ".join(map(address_of, lacking))
        has = "has" if len(lacking) == 1 else "have"
        said = f"{who} {has} no folder, and {counted(len(lost), 'partition')} would be lost that nobody else holds"
        yield Reason("no_folder", len(lost), said, SET_FOLDER)


def _about_last_moment(answers: Mapping[MemberId, SafetyReply | None]) -> Iterable[str]:
    disks = [says.disk for says in answers.values() if says is not None and says.disk is not None]
    behind = [disk for disk in disks if disk.unsynced_bytes]
    if behind:
        size, oldest_ms = sum(disk.unsynced_bytes for disk in behind), max(disk.unsynced_ms for disk in behind)
        yield (
            f"{format_bytes(size)} on {counted(len(behind), 'member')} were not synced a moment ago, the oldest for "
            f"{oldest_ms / 1000:.1f} s"
        )
    if disks:
        yield "what was written in the last 200 ms or so before the cut can be lost, on a slow disk more"


def _about_devices(placement: Placement, answers: Mapping[MemberId, SafetyReply | None]) -> Iterable[str]:
    """Yield which members have their folders on one file system, and how many partitions are nowhere else."""
    sharing: dict[str, list[MemberId]] = defaultdict(list)
    for member, says in answers.items():
        if says is not None and says.disk is not None:
            sharing[says.disk.device].append(member)
    for members in sharing.values():
        if len(members) < 2:
            continue
        table = placement.table
        only = sum(
            len(holders := table.replicas(partition)) > 1 and all(each in members for each in holders)
            for partition in range(table.partition_count)
        )
        has = f": all copies of {counted(only, 'partition')} are on that disk" if only else ""
        yield f"{', '.join(map(address_of, members))} have their folders on one file system{has}"


def power_as_object(found: PowerJudgement) -> dict[str, Any]:
    """Return the judgement as a plain object."""
    return {"may_lose_power": not found.against, "against": found.against, "notes": found.notes}
