"""Bugs of a member's disk to plant: logs that miss something, and clusters that come back from their folders wrongly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any
from unittest.mock import patch

import msgspec

from phalanx.common.disk_state import DiskState
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, TableRow
from phalanx.grid.replica.mutation import APPLY
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.protection import WriteRefusal
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.effects import Effect, Send
from phalanx.node.node import Node
from phalanx.node.sync_gate import SyncGate
from phalanx.partition.coordinator.eligibility import EligibleMembers
from phalanx.partition.recovery.restart import VERSION_STEP, Restart, plan_restart
from phalanx.wire.disk_records import (
    ClusterLeft,
    CopyBegun,
    CopyDropped,
    DiskRecord,
    EpochBegun,
    IncarnationEnded,
    KeptMerged,
    KeptTakenBack,
    MergeBegun,
    ReplicaDropped,
    ReplicasDivided,
    ReplicasKept,
)
from phalanx.wire.messages import (
    CopyChunk,
    CopyStart,
    MigrationAnswer,
    ReplicateClear,
    ReplicateJournal,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    ReplicateUpdates,
)
from phalanx.wire.table_messages import StoredSide

from .replacing import replace

# --- a log that misses something ---------------------------------------------------------------------------------------


def _log_with(keep: Callable[[DiskRecord, bool], DiskRecord | None]) -> Callable[[Node], None]:
    """Return a bug: the log has of each record what `keep` returns of it; None: nothing."""

    class Forgetful(ReplicaLog):
        __slots__ = ()

        def add(self, body: DiskRecord, *, to_copy: bool = False) -> None:
            kept = keep(body, to_copy)
            if kept is not None:
                super().add(kept, to_copy=to_copy)

    def plant(node: Node) -> None:
        node.log.__class__ = Forgetful

    return plant


def _log_no(kind: type) -> Callable[[Node], None]:
    """Return a bug: the log has no records of this kind."""
    return _log_with(lambda body, to_copy: None if type(body) is kind else body)


class _NoPlainPuts(ReplicaLog):
    __slots__ = ()

    def put(self, name: str, key: bytes, stored: bytes, partition_count: int) -> None:
        pass


def log_no_plain_puts(node: Node) -> None:
    """What needs no message to backups is not logged either."""
    node.log.__class__ = _NoPlainPuts


class _PutsWithoutOutcomes(ReplicaLog):
    __slots__ = ()

    def add(self, body: DiskRecord, *, to_copy: bool = False) -> None:
        if type(body) is ReplicatePut and body.applied is not None:
            body = msgspec.structs.replace(body, applied=None)
        super().add(body, to_copy=to_copy)


def log_no_outcomes(node: Node) -> None:
    """An entry that was put is logged, and not that its call was carried out."""
    node.log.__class__ = _PutsWithoutOutcomes


def _without_outcomes(body: DiskRecord, to_copy: bool) -> DiskRecord:
    """Leave out of copies to the disk which calls were carried out."""
    if type(body) is CopyBegun and body.from_disk_copy:
        return msgspec.structs.replace(body, start=msgspec.structs.replace(body.start, outcomes=()))
    return body


class _PutsTwice(ReplicaLog):
    __slots__ = ()

    def put(self, name: str, key: bytes, stored: bytes, partition_count: int) -> None:
        super().put(name, key, stored, partition_count)
        super().put(name, key, stored, partition_count)


def log_plain_puts_twice(node: Node) -> None:
    """What needs no message to backups has more numbers in the log than in memory."""
    node.log.__class__ = _PutsTwice


class _PutsBehind(ReplicaLog):
    __slots__ = ()

    def _end_puts(self) -> None:
        records, self._records = self._records, []
        super()._end_puts()
        self._records = [*self._records, *records]


def log_plain_puts_first(node: Node) -> None:
    """Plain puts are logged before what was added before them."""
    node.log.__class__ = _PutsBehind


# --- a restart that goes wrong -----------------------------------------------------------------------------------------


def _consider(node: Node, change: Callable[[Mapping[MemberId, StoredSide]], Mapping[MemberId, StoredSide]]) -> None:
    """Let the master decide on other sides than there are."""
    restarting = node.coordinator.restarting
    original = restarting.consider
    replace(restarting, "consider", lambda sides, now: original(change(sides), now))


def take_the_smallest_position(node: Node) -> None:
    """The holder that has least rules a partition of a cluster that comes back."""

    def turn(sides: Mapping[MemberId, StoredSide]) -> Mapping[MemberId, StoredSide]:
        return {
            member: msgspec.structs.replace(
                side,
                positions=tuple(
                    msgspec.structs.replace(each, epoch=-each.epoch, seq=-each.seq) for each in side.positions
                ),
            )
            for member, side in sides.items()
        }

    _consider(node, turn)


def take_an_older_row(node: Node) -> None:
    """The oldest table that anybody has read counts."""

    def age(sides: Mapping[MemberId, StoredSide]) -> Mapping[MemberId, StoredSide]:
        oldest = min((side.table for side in sides.values() if side.table), key=lambda table: table.version)
        return {member: msgspec.structs.replace(side, table=oldest) for member, side in sides.items()}

    _consider(node, age)


def count_rows_without_majority(node: Node) -> None:
    """A side that went on without the majority counts like any other one."""

    def forgive(sides: Mapping[MemberId, StoredSide]) -> Mapping[MemberId, StoredSide]:
        return {member: msgspec.structs.replace(side, lacks_majority=False) for member, side in sides.items()}

    _consider(node, forgive)


def take_all_for_prefixes(node: Node) -> None:
    """A member takes it that the cluster has all that it has read from its folder."""
    merging = node.data_merging
    original = merging._on_looked_up
    replace(merging, "_on_looked_up", lambda handed, now, *, is_there: original(handed, now, is_there=True))


def take_back_whatever_is_there(node: Node) -> None:
    """A member that comes back uses what it has read, also if its last writes are none of the cluster's."""
    follower = node.grid.follower
    original = follower.take_back

    def take_back(start: CopyStart, now: Millis) -> Replica | None:
        with patch("phalanx.grid.merge.returning.is_prefix", return_value=True):
            return original(start, now)

    replace(follower, "take_back", take_back)


def restart_without_majority(node: Node) -> None:
    """Those that are back first go on, however few they are."""
    restarting = node.coordinator.restarting
    original = restarting.consider

    def consider(sides: Mapping[MemberId, StoredSide], now: Millis, others: Collection[MemberId]) -> Restart | None:
        restarting.accept()
        return original(sides, now)

    replace(restarting, "consider", consider)


def restart_without_holders(node: Node) -> None:
    """Partitions that nobody has who is back begin empty."""
    restarting = node.coordinator.restarting
    original = restarting.consider

    def consider(sides: Mapping[MemberId, StoredSide], now: Millis, others: Collection[MemberId]) -> Restart | None:
        plan = plan_restart(sides)
        if plan.table is not None and plan.lacking and not plan.lacks_majority:
            restarting.forget()
            table, begins = plan.table, (next(iter(sides)),)
            rows = {p: TableRow(begins, table.versions[p], table.versions[p]) for p in table.dormant}
            return plan._replace(table=table.with_rows(rows))
        return original(sides, now)

    replace(restarting, "consider", consider)


def begin_dormant_empty(node: Node) -> None:
    """Partitions begin empty although their last holders have them in their folders."""
    replace(node.coordinator._rebalancer.folders, "has_any", lambda slots, confirming: False)


def forget_for_dormant(node: Node) -> None:
    """A member that comes back drops what dormant partitions wait for."""
    follower = node.grid.follower
    original = follower.follow_table

    def follow_table(table: PartitionTable, *arguments: Any, **options: Any) -> None:
        if table.is_assigned:
            follower.as_read.awaited = None
        original(table, *arguments, **options)

    replace(follower, "follow_table", follow_table)


def restart_with_the_same_versions(node: Node) -> None:
    """The rows of a cluster that comes back have the versions that they had."""
    restarting = node.coordinator.restarting
    original = restarting.consider

    def consider(sides: Mapping[MemberId, StoredSide], now: Millis, others: Collection[MemberId]) -> Restart | None:
        plan = original(sides, now, others)
        if plan is None or (table := plan.table) is None:
            return plan
        rows = {
            partition: table.row(partition)._replace(version=table.versions[partition] % VERSION_STEP)
            for partition in range(table.partition_count)
            if table.versions[partition] >= VERSION_STEP
        }
        return plan._replace(table=table.with_rows(rows))

    replace(restarting, "consider", consider)


def forget_what_was_read(node: Node) -> None:
    """A side that joins another one before it could go on throws away what it has read from its folders."""
    merging = node.data_merging
    original = merging._keep_what_is_held

    def keep_what_is_held(now: Millis) -> None:
        follower = node.grid.follower
        for partition in follower.as_read.partitions:
            del follower.replicas[partition]
        follower.as_read.awaited = None
        original(now)

    replace(merging, "_keep_what_is_held", keep_what_is_held)


def forget_as_last_leaver(node: Node) -> None:
    """The last member that leaves forgets what nobody else has."""
    original = node._log_end

    def log_end() -> None:
        record = node.membership.view_log.last_record
        original()
        view = record()
        if view is not None and not node.membership.leaves_others() and node.grid.stored() is None:
            node.log.add(ClusterLeft())

    replace(node, "_log_end", log_end)


# --- what waits for a sync ---------------------------------------------------------------------------------------------


def acknowledge_unsynced(node: Node) -> None:
    """An owner answers writes of all maps at once, also those that wait for their syncs."""
    replace(node.grid.leader, "waits_for_sync", lambda name, now: False)


def say_synced_too_early(node: Node) -> None:
    """A backup says that it has synced what it has only applied."""
    replace(node.grid.follower.held_acks, "_log", ReplicaLog(is_on=False))


class _AnswersAtOnce(SyncGate):
    def pass_on(self, effects: list[Effect]) -> list[Effect]:
        answers = [each for each in effects if type(each) is Send and type(each.message) is MigrationAnswer]
        return [*answers, *super().pass_on([each for each in effects if each not in answers])]


def answer_commits_unsynced(node: Node) -> None:
    """The destination of a migration says that it has committed before what it got is on its disk."""
    node._sync_gate.__class__ = _AnswersAtOnce


def tell_tables_unsynced(node: Node) -> None:
    """A master tells a table, and a member acknowledges one, that a power cut can take from it."""
    replace(node._sync_gate, "pass_on", lambda effects: effects)


# --- copies to the disk, and reading back ------------------------------------------------------------------------------


def copy_past_steps(node: Node) -> None:
    """A copy to the disk goes on although a step has consumed rows that it has yet to get."""
    node.log.note_step = lambda *_: None


# --- disks that fail, or are full ---------------------------------------------------------------------------------------


def wait_for_a_failed_sync(node: Node) -> None:
    """What waits at its owner for the sync of a disk that has failed waits for ever."""
    leader, real = node.grid.leader, node.grid.leader.on_synced

    def on_synced(lsn: int, now: Millis) -> None:
        if leader.log is None or leader.log.is_on:
            real(lsn, now)

    replace(leader, "on_synced", on_synced)


def acknowledge_without_disk(node: Node) -> None:
    """A member whose disk has failed goes on as before."""
    replace(node.grid.guard, "on_disk", lambda refusal, now: None)


def leave_with_what_it_holds(node: Node) -> None:
    """A member whose disk has failed leaves at once, whatever it holds, and its master lets it."""
    draining = node.coordinator.draining
    to_hand_over = draining.to_hand_over
    replace(node.grid.disks, "lets_leave", lambda table: node.grid.disks.state is DiskState.FAILED)
    replace(draining, "to_hand_over", lambda member: 0 if member in draining.without_disk else to_hand_over(member))


class _NoneFailed(EligibleMembers):
    failed = property(lambda self: frozenset(), lambda self, failed: None)


def keep_owners_without_disks(node: Node) -> None:
    """The master moves nothing away from disks that have failed."""
    node.coordinator._eligible.__class__ = _NoneFailed


def refuse_removals_when_full(node: Node) -> None:
    """A full disk refuses all writes."""
    disks, on_disk = node.grid.disks, node.grid.guard.on_disk

    def refuse(refusal: WriteRefusal | None, now: Millis) -> None:
        full = WriteRefusal(ErrorCode.GRID_FULL, "the disk is full") if disks.state is DiskState.FULL else None
        on_disk(refusal or full, now)

    replace(node.grid.guard, "on_disk", refuse)


def admit_copied_folders(node: Node) -> None:
    """The master admits a member with the folder of another one."""
    copied = node.membership._join_requests._refusals._copied
    replace(copied, "refuse", lambda request, view, queued, now: None)


def admit_members_of_other_clusters(node: Node) -> None:
    """The master admits members whose folders have the data of another cluster."""
    replace(node.membership._join_requests._refusals, "_why_other_data", lambda message: "")


DISK_CANARIES: dict[str, Callable[[Node], None]] = {
    "admit-copied-folders": admit_copied_folders,
    "admit-members-of-other-clusters": admit_members_of_other_clusters,
    "log-no-puts": _log_no(ReplicatePut),
    "log-no-removals": _log_no(ReplicateRemove),
    "log-no-updates": _log_no(ReplicateUpdates),
    "log-no-clears": _log_no(ReplicateClear),
    "log-no-journal-changes": _log_no(ReplicateJournal),
    "log-no-steps": _log_no(ReplicateStaged),
    "log-no-writes-to-copies": _log_with(lambda body, to_copy: None if to_copy and type(body) in APPLY else body),
    "log-no-chunks": _log_no(CopyChunk),
    "log-no-epochs": _log_no(EpochBegun),
    "log-no-drops": _log_no(ReplicaDropped),
    "log-no-dropped-copies": _log_no(CopyDropped),
    "log-no-divisions": _log_no(ReplicasDivided),
    "log-no-ends": _log_no(IncarnationEnded),
    "log-no-kept-replicas": _log_no(ReplicasKept),
    "log-no-merges": _log_no(KeptMerged),
    "log-no-begun-merges": _log_no(MergeBegun),
    "log-no-replicas-taken-back": _log_no(KeptTakenBack),
    "log-no-plain-puts": log_no_plain_puts,
    "log-no-outcomes": log_no_outcomes,
    "log-plain-puts-first": log_plain_puts_first,
    "log-plain-puts-twice": log_plain_puts_twice,
    "take-the-smallest-position": take_the_smallest_position,
    "take-an-older-row": take_an_older_row,
    "count-rows-without-majority": count_rows_without_majority,
    "take-all-for-prefixes": take_all_for_prefixes,
    "take-back-whatever-is-there": take_back_whatever_is_there,
    "restart-without-majority": restart_without_majority,
    "restart-without-holders": restart_without_holders,
    "begin-dormant-empty": begin_dormant_empty,
    "forget-for-dormant": forget_for_dormant,
    "restart-with-the-same-versions": restart_with_the_same_versions,
    "forget-what-was-read": forget_what_was_read,
    "forget-as-last-leaver": forget_as_last_leaver,
    "copy-no-outcomes": _log_with(_without_outcomes),
    "copy-past-steps": copy_past_steps,
    "acknowledge-without-disk": acknowledge_without_disk,
    "leave-with-what-it-holds": leave_with_what_it_holds,
    "keep-owners-without-disks": keep_owners_without_disks,
    "wait-for-a-failed-sync": wait_for_a_failed_sync,
    "refuse-removals-when-full": refuse_removals_when_full,
    "acknowledge-unsynced": acknowledge_unsynced,
    "count-backups-unsynced": say_synced_too_early,
    "tell-tables-unsynced": tell_tables_unsynced,
    "answer-commits-unsynced": answer_commits_unsynced,
}
"""Name to what takes the rule out."""
