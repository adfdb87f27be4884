"""Whether a member can be stopped now, and why not: a pure judgement of what it and its master say.

Two questions have different answers. *Killed*: what it holds is gone at once, so others must hold all of it, and
no migration must be under way that would leave a partition with less than it should have. *Stopped gracefully* (SIGTERM): it
hands over what it holds before it goes, so it is enough that somebody is there to take it, and a master that decides. With a
folder it comes back, and keeps there what no backup takes over.

A folder helps the last member: with it the whole cluster is switched off, and comes back. While others live, partitions that only
its folder has are not served until it is back, so a folder is no copy then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx.common.ids import MemberId, address_of
from phalanx.common.memory import format_bytes
from phalanx.common.restart_wait import wait_in_words
from phalanx.common.words import counted
from phalanx.reports.partitions import wait_as_object
from phalanx.reports.progress import waits_of
from phalanx.wire.figures import DiskStatus
from phalanx.wire.messages import MigrationsReply, SafetyReply

WAIT = "wait until it is done: add `--wait 60` to this command"
DRAIN = "stop it with SIGTERM: it hands over its data, then leaves"
DRAIN_FOLDER = "let it leave, with phalanx members --leave: it hands over its data"
"""With a folder SIGTERM means that it comes back."""
START_ANOTHER = "start another member first"
NEW_DISK = "stop the member whose disk has failed, and start it again with an empty folder on a disk that works"
MORE_MEMORY = "start another member first, remove entries, or raise memory_limit of the members"


class Reason(msgspec.Struct, frozen=True):
    """Why a member must not be stopped."""

    what: str
    """A short name, for machines."""
    count: int
    said: str
    advice: str = WAIT


class Judgement(msgspec.Struct, frozen=True):
    """May this member be stopped now?"""

    member: MemberId
    against_kill: list[Reason]
    against_leaving: list[Reason]
    notes: list[str]

    @property
    def may_be_killed(self) -> bool:
        return not self.against_kill

    @property
    def may_leave(self) -> bool:
        return not self.against_leaving


class MasterSays(msgspec.Struct, frozen=True):
    """What only the master knows, and what it sees of the other members."""

    member: MemberId
    migrations: MigrationsReply
    safety: SafetyReply


def judge(member: MemberId, own: SafetyReply, master: MasterSays | None) -> Judgement:
    """Judge whether a member can be killed, and whether it can leave, without loss of data.

    `master`: what the master reports; None if it does not answer.
    """
    held = own.owned + own.backups
    leaving = {each.member for each in master.migrations.leaving} if master is not None else set()
    staying = [other for other in own.view.data_members if other != member and other not in leaving]
    views = list(_about_views(member, own, master))
    unclear = [*views, *_about_the_search(master)]
    takes_part = list(_about_its_migrations(member, own, master))
    kept = list(_about_kept(own))
    against_kill = [*kept, *takes_part, *views]
    is_last = own.disk is not None and own.view.members == (member,)
    if held:
        against_kill = [
            *kept,
            *(() if is_last else _about_data(own, staying)),
            *takes_part,
            *_about_the_others(member, own, master),
            *_about_kept_elsewhere(member, master),
            *unclear,
        ]
    against_leaving = list(unclear) if held else []
    if held and not staying and own.disk is None:
        who = "no member that holds data" if len(own.view.data_members) < len(own.view.members) else "no member"
        said = f"{who} would stay to take over its data"
        against_leaving.append(Reason("nobody_stays", held, said, START_ANOTHER))
    if held:
        no_room = list(_about_memory(member, master))
        against_kill += no_room
        against_leaving += no_room
    notes = [*_notes(member, own, held), *_about_disk(own, held, is_last=not staying)]
    if master is not None and master.migrations.missing and member in leaving:
        notes.insert(0, waits_of(master.migrations))
    return Judgement(member, against_kill, against_leaving, notes)


def against_all(found: Judgement, reason: Reason) -> Judgement:
    """Return the judgement with one more reason, against a kill and against a graceful stop."""
    return Judgement(found.member, [reason, *found.against_kill], [reason, *found.against_leaving], found.notes)


def disk_as_object(disk: DiskStatus | None) -> dict[str, Any] | None:
    """Return how the disk of a member does, without what names its file system; None: it has no folder."""
    if disk is None:
        return None
    return {name: getattr(disk, name) for name in DiskStatus.__struct_fields__ if name != "device"}


def _drain(own: SafetyReply) -> str:
    return DRAIN if own.disk is None else DRAIN_FOLDER


def _about_kept(own: SafetyReply) -> Iterable[Reason]:
    """Yield the reason if this member has orphaned replicas that can be nowhere else in the cluster."""
    if own.kept:
        said = (
            f"it keeps {counted(own.kept_entries, 'entry', 'entries')} in {_partitions(own.kept)} of a side that gave up its "
            f"cluster, and has not merged them yet"
        )
        yield Reason("kept", own.kept, said, f"{WAIT}, or {_drain(own)}")


def _about_data(own: SafetyReply, staying: list[MemberId]) -> Iterable[Reason]:
    """Yield reasons why data would be lost at once."""
    if own.only_here:
        has_no_backups = own.configured_replicas == 1
        because = ": no backups are configured" if has_no_backups else ""
        if own.disk is not None:
            because += "; they would not be served until it is back with its folder"
        advice = _drain(own) if staying else START_ANOTHER
        if staying and not has_no_backups:
            advice = f"{WAIT}, or {_drain(own)}"
        yield Reason(
            "only_here", own.only_here, f"no other member holds {own.only_here:,} of its partitions{because}", advice
        )
    elif own.lacking:
        has = "has" if own.lacking == 1 else "have"
        said = f"{_partitions(own.lacking)} that it holds {has} fewer than {own.wanted_replicas} replicas"
        yield Reason("lacking_here", own.lacking, said)
    if own.one_disk:
        said = f"there is one disk with {own.one_disk:,} of its partitions, its own: others hold them in memory only, because their disks have failed"
        yield Reason("one_disk", own.one_disk, said, NEW_DISK)
    if own.unconfirmed:
        has = "has" if own.unconfirmed == 1 else "have"
        said = f"{_partitions(own.unconfirmed)} that it owns {has} a backup that has not confirmed everything"
        yield Reason("unconfirmed", own.unconfirmed, said)


def _about_its_migrations(member: MemberId, own: SafetyReply, master: MasterSays | None) -> Iterable[Reason]:
    """Yield reasons why migrations would have to begin again."""
    under_way = master.migrations.under_way if master is not None else []
    by_master = sum(member in (each.owner, *each.migration.participants) for each in under_way)
    if migrating := max(own.migrating, by_master):
        yield Reason("migrating", migrating, f"it takes part in {counted(migrating, 'migration')}")


def _about_the_others(member: MemberId, own: SafetyReply, master: MasterSays | None) -> Iterable[Reason]:
    """Yield reasons why other members lack something, so that no further one should go."""
    if master is None:
        return
    migrations = master.migrations
    if migrations.lacking and not (own.only_here or own.lacking):
        said = f"{_partitions(migrations.lacking)} elsewhere have fewer than {own.wanted_replicas} replicas on members that stay"
        yield Reason("lacking", migrations.lacking, said)
    if migrations.remaining:
        said = f"{_partitions(migrations.remaining)} are not yet where they should be"
        yield Reason("rebalancing", migrations.remaining, said)
    for each in migrations.leaving:
        if each.member != member and each.replicas:
            said = f"{address_of(each.member)} is leaving, and has {counted(each.replicas, 'replica')} to hand over"
            yield Reason("leaving", each.replicas, said)
    behind = [each for each in migrations.without_table if each != member]
    if behind:
        said = f"not yet confirmed the present partition table (version {own.table_version}): {_names(behind)}"
        yield Reason("behind", len(behind), said)


def _about_memory(member: MemberId, master: MasterSays | None) -> Iterable[Reason]:
    """Yield the reason if the other members have no memory for what this member holds."""
    short = master.migrations.memory_shortage if master is not None else None
    if short is None:
        return
    whose = "it" if short.member == member else address_of(short.member)
    said = (
        f"without {whose} the other members would need {format_bytes(short.needed)} of memory, and their limits allow "
        f"{format_bytes(short.room)}"
    )
    yield Reason("memory", short.needed - short.room, said, MORE_MEMORY)


def _about_kept_elsewhere(member: MemberId, master: MasterSays | None) -> Iterable[Reason]:
    """Yield the reason if other members have orphaned replicas to merge: without this member that waits, or is lost."""
    for each in master.migrations.kept if master is not None else ():
        if each.member != member:
            said = (
                f"{address_of(each.member)} keeps {counted(each.entries, 'entry', 'entries')} in {_partitions(each.replicas)} of "
                f"a side that gave up its cluster, and has not merged them yet"
            )
            yield Reason("kept_elsewhere", each.replicas, said)


def _about_views(member: MemberId, own: SafetyReply, master: MasterSays | None) -> Iterable[Reason]:
    """Yield the reason if it is not certain which members are there."""
    if master is None:
        said = f"its master, {address_of(own.view.master)}, does not answer"
        return [Reason("master_silent", 1, said, "wait until the members have another master")]
    reasons = []
    seen = {member: own.view, master.member: master.safety.view}
    if own.view != master.safety.view:
        versions = ", ".join(f"{address_of(who)} has version {view.version}" for who, view in seen.items())
        reasons.append(Reason("view_changing", 1, f"the member list is changing: {versions}"))
    suspected = {member: own.suspected, master.member: master.safety.suspected}
    for who, whom in suspected.items():
        if whom:
            said = f"{address_of(who)} suspects {_names(whom)}"
            reasons.append(Reason("suspected", len(whom), said, "wait until it is removed, or answers again"))
    return reasons


def _about_the_search(master: MasterSays | None) -> Iterable[Reason]:
    migrations = master.migrations if master is not None else None
    if migrations is not None and migrations.searching_for:
        said = f"the new master still asks {_names(migrations.searching_for)} for their partition tables"
        yield Reason("searching", len(migrations.searching_for), said)
    elif migrations is not None and not migrations.is_master:
        yield Reason("no_master", 1, f"the members do not agree yet that {address_of(master.member)} is the master")  # type: ignore[union-attr]  # told came from it


def _notes(member: MemberId, own: SafetyReply, held: int) -> list[str]:
    if own.restart_wait is not None:
        return [
            f"{wait_in_words(own.restart_wait)}. Until then nothing is served, and this member changes nothing that its folder has"
        ]
    if not own.table_version:
        return ["partitions are not assigned yet: nothing is stored"]
    if own.view.traits_of(member).lite:
        return ["it is a lite member: it holds no data"]
    if not held:
        return ["it holds no data"]
    notes = [f"it owns {_partitions(own.owned)} and backs up {own.backups}"]
    if own.memory_limit:
        notes.append(f"it uses {format_bytes(own.memory_used)} of its memory limit of {format_bytes(own.memory_limit)}")
    if own.wanted_replicas < own.configured_replicas:
        holders = own.view.data_members
        members = counted(len(holders), "member" if len(holders) == len(own.view.members) else "data member")
        notes.append(f"{own.configured_replicas} replicas are configured, and {members} can hold {own.wanted_replicas}")
    return notes


def _about_disk(own: SafetyReply, held: int, *, is_last: bool) -> Iterable[str]:
    """Yield what the folder of a member has of what it holds."""
    disk = own.disk
    if disk is None or not held or own.restart_wait is not None:
        return
    behind = ""
    if disk.unsynced_bytes:
        behind = f"; {format_bytes(disk.unsynced_bytes)} of it, from the last {disk.unsynced_ms / 1000:.1f} s, are not synced yet"
    yield f"its folder has all that it holds{behind}"
    if is_last:
        yield "no other member stays to take it over: it stays in the folder, and comes back when the member starts again"
    elif own.only_here and own.configured_replicas == 1:
        waits = counted(own.only_here, "partition is", "partitions are")
        yield f"{waits} not served from SIGTERM until it is back: no backups are configured"
    if disk.why:
        yield f"its disk is {disk.state}: {disk.why}"


def _partitions(count: int) -> str:
    return counted(count, "partition")


def _names(members: Iterable[MemberId]) -> str:
    return ", ".join(map(address_of, members))


def as_object(found: Judgement, own: SafetyReply) -> dict[str, Any]:
    """Return the judgement and its figures as a plain object."""
    return {
        "member": found.member,
        "address": address_of(found.member),
        "may_be_killed": found.may_be_killed,
        "may_leave": found.may_leave,
        "against_kill": found.against_kill,
        "against_leaving": found.against_leaving,
        "notes": found.notes,
        **{name: getattr(own, name) for name in _OWN},
        "view_version": own.view.version,
        "restart_wait": wait_as_object(own.restart_wait),
        "disk": disk_as_object(own.disk),
    }


_OWN = (
    "owned", "backups", "only_here", "lacking", "unconfirmed", "kept", "kept_entries", "migrating", "wanted_replicas",
    "configured_replicas", "table_version", "memory_used", "memory_limit",
)  # fmt: skip
"""Fields of what the member says that machines are told."""
