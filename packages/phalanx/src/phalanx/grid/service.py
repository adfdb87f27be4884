"""The grid at one member: routes requests and replication messages to the partitions that this member holds.

Only the owner, by the table that is installed here, serves a request; another member tells the caller the owner and
does nothing. What a request does is in `requests`, how writes reach backups and how partitions are copied in
`replication`, the owner's part in a migration in `migration_source`.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.common.clock import GridClock
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.memory import format_bytes
from phalanx.common.table import PartitionTable
from phalanx.grid.durability.disk_copies import DiskCopies
from phalanx.grid.locking.lock_keeper import LockKeeper
from phalanx.grid.migration_source import OutgoingMigrations
from phalanx.grid.replica.map_store import STILL
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.tombstones import TombstonePurger
from phalanx.grid.replication.anti_entropy import AntiEntropy
from phalanx.grid.replication.disk_guard import DiskGuard
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.expiry import Expirer
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.held_replicas import HeldReplicas
from phalanx.grid.replication.journal_settings import JournalChanges
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.owned_partition import OwnedPartition, Term
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.parked_requests import ParkedRequests
from phalanx.grid.replication.partition_split import PartitionsAwaitingSplit
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.grid.replication.waiting_requests import WaitingRequests
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.evaluation import Evaluator
from phalanx.grid.serving.reads import Reads
from phalanx.grid.serving.replies import Replies
from phalanx.grid.serving.scanning import WaitingScans
from phalanx.grid.serving.turns import WorkInTurns
from phalanx.grid.serving.updates import functions_of
from phalanx.grid.staging.staged_rows import OwnerStaging
from phalanx.machine.alarms import Alarm
from phalanx.machine.facts import IncarnationOver, NewView, RowsDoubted, TableConfirmed
from phalanx.machine.inputs import DiskChecked, MemoryMeasured
from phalanx.machine.outbox import Outbox
from phalanx.wire.disk_records import EpochBegun, ReplicaDropped
from phalanx.wire.messages import (
    ActiveMigration,
    CopyAck,
    CopyRefused,
    DiskReport,
    MemoryReport,
    MigrationCommit,
    MigrationOrder,
    OwnerEpoch,
    Probe,
    ProbeAnswer,
    ReplicateAck,
    ReplicateAcks,
    StoredSide,
)


class GridService:
    """The partitions that this member owns, and the replicas that follow other owners, as the table says."""

    def __init__(self, ownership: Ownership, guard: ProtectionGuard, clock: GridClock, outbox: Outbox) -> None:
        config = ownership.config
        self.this = ownership.this
        self.ownership = ownership
        self.guard = guard
        self.clock = clock
        self.memory = memory = MemoryGuard(self.this, lambda: self.held.all(), outbox, lambda: self.waiting.held_bytes)
        memory.data.owned = lambda: self.held.owned()
        self.disks = DiskGuard(self.this, memory, guard, outbox)
        self.waiting = WaitingRequests(memory.take)
        self.parked = ParkedRequests(self.waiting, outbox)
        self.replies = Replies(ownership, self.parked, outbox)
        self.leader = Leader(ownership, memory, clock, outbox)
        self.copies = CopyFlow(outbox, config.copy_chunk_bytes, config.migration_latency_target_ms)
        self.copies.kept_room.has_memory = lambda: not memory.is_full
        self.traffic = self.copies.traffic
        self.follower = Follower(ownership, memory, clock, self.copies)
        self.held = HeldReplicas(ownership, self.follower)
        self.disk_copies = DiskCopies(ownership.log, self.copies, self.held.find, lambda: len(ownership.owned))
        self.split_queue = PartitionsAwaitingSplit(ownership.awaiting_split, self.follower.undivided, self.parked, self)
        self._early: dict[int, tuple[MemberId, Probe]] = {}
        """Partition to the probe of an owner that has a newer view than this member, or a table with more partitions."""
        self._anti_entropy = AntiEntropy(ownership, config.anti_entropy_interval_ms)
        self._purger = TombstonePurger(config.tombstone_ms, clock, self.held.complete)
        self.reads = Reads(ownership, self.leader.idle_maps, clock)
        self.evictor = Evictor(self.leader, ownership)
        self.staging = OwnerStaging(self.leader, ownership, self.parked, self.evictor)
        self.journal_changes = JournalChanges(self.leader, ownership)
        self.outgoing = OutgoingMigrations(ownership, self.staging, self.journal_changes, outbox)
        self._expirer = Expirer(self.leader, ownership)
        self.leader.note_expiring, self.leader.note_progress = self._expirer.note, self._note_progress
        self.admission = RequestAdmission(ownership, guard, self.replies)
        self.turns = WorkInTurns(self.leader, ownership, self.admission, self.replies)
        self.scans = WaitingScans(self.parked, ownership, self.replies)
        self.evaluator = Evaluator(functions_of(config), ownership, outbox)
        self.locks = LockKeeper(self.leader, ownership, guard, self.replies)

    def __repr__(self) -> str:
        owned, followed = len(self.ownership.all_owned()), len(self.follower.replicas)
        return f"GridService(owned={owned}, followed={followed}, unsettled={list(self.leader.unsettled)}, {self.outgoing!r})"

    @property
    def table(self) -> PartitionTable:
        """The installed table."""
        return self.ownership.table

    def knows(self, partition: int) -> bool:
        """Return whether there is such a partition; before the first table any number can be right."""
        return partition < len(self.ownership.owned) or not self.ownership.table.version

    def validate(self) -> None:
        """Raise `InvariantViolation` if an invariant that holds between any two inputs is broken."""
        self.ownership.validate()
        table = self.ownership.table
        for owned in self.ownership.all_owned():
            partition = owned.number
            owned.validate()
            invariant(partition not in self.follower.replicas, "an owner follows nobody", partition=partition)
            invariant(table.owner(partition) == self.this, "an owner owns by the table", partition=partition)
            counting = {member for member, stream in owned.streams.items() if stream.counts}
            backups = table.replicas(partition)[1:]
            invariant(counting.issuperset(backups), "writes wait for every backup of the table", partition=partition)
        undivided = self.follower.undivided
        for partition in undivided.children():
            invariant(
                self.ownership.find_owned(partition) is None, "no half of a partition is served", partition=partition
            )
            invariant(partition not in self.follower.replicas, "a replica is here once", partition=partition)
        for replica in self.held.complete():
            for name, store in replica.maps.items():
                known = store.is_plain, store.held_bytes
                store.look_again()
                found = store.is_plain, store.count_bytes()
                invariant(known == found, "a store knows what it has", map=name, known=known, found=found)
        self.locks.validate()
        for partition in (*self.ownership.sealed, *self.ownership.unplaced):
            invariant(self.ownership.owned[partition] is None, "such a partition answers nothing", partition=partition)

    # --- the table -------------------------------------------------------------------------------------------------

    def on_rows_doubted(self, fact: RowsDoubted, now: Millis) -> None:
        """Hold the answers to writes in these partitions, and in no other ones, from now on (before `on_table`)."""
        before, self.ownership.doubted = self.ownership.doubted, fact.partitions
        for partition in sorted(before ^ fact.partitions):
            if (owned := self.ownership.find_owned(partition)) is not None:
                self._hold_answers(owned, now)
                self._note_progress(owned, now)

    def _hold_answers(self, owned: OwnedPartition, now: Millis) -> None:
        owned.hold_answers(now, holds=owned.number in self.ownership.doubted)

    def on_table(self, fact: TableConfirmed, now: Millis) -> None:
        """Follow a table that was installed, or that another master has confirmed."""
        table, ahead, confirmed_by = fact.table, fact.ahead, fact.confirmed_by
        self.guard.on_plan(table.maps, now)
        for content in table.maps.contents:
            # Rows assembled from now on must have greater stamps.
            self.clock.observe(max(content.stamp, content.pending_stamp), now)
        before, counted = self.ownership.table, self.ownership.rules.counts_reads
        self.ownership.install(table, now)
        self.evictor.on_plan(table.maps)
        self.journal_changes.on_plan(table.maps)
        reconfirmed = confirmed_by != self.ownership.confirmed_by
        if table.version:
            # A table that assigns nothing confirms no epoch. 1. This member follows an owner as its backup before it has
            # a table. 2. A cut leaves it alone: as the master it finds no table. 3. It makes one, beginning with
            # version 1.
            self.ownership.confirmed_by = confirmed_by
        is_divided = before.partition_count != table.partition_count
        if is_divided and self.follower.as_read.awaited is not None and table.partition_count % before.partition_count:
            # They are of a division of which this cluster has never heard.
            self.follower.as_read.set_aside(self.follower.as_read.partitions, table.partition_count)
            self.follower.drop_all()
            is_divided, self.ownership.owned = False, [None] * table.partition_count
        elif is_divided and not before.version and self.follower.as_read.awaited is None:
            # This is the member's first table, with another count than it is configured with: there is nothing to
            # split.
            is_divided, self.ownership.owned = False, [None] * table.partition_count
        if before.maps != table.maps and (self.ownership.rules.counts_reads or counted):
            for replica in self.held.owned():
                self.reads.follow_settings(replica)
        is_same = not is_divided and before.members == table.members and before.maps == table.maps and not reconfirmed
        outcomes = {(each.partition, each.base_version): each.committed for each in fact.completed}
        if is_divided:
            self._divide(before.partition_count, outcomes, now, reconfirmed=reconfirmed)
        self.follower.follow_table(table, outcomes, reconfirmed=reconfirmed)
        if before.maps != table.maps:
            self.follower.acknowledge_all_synced()
        for partition, row in enumerate(table.rows):
            if is_same and before.versions[partition] == table.versions[partition]:
                continue
            owner = table.members[row[0]] if row else None
            owned = self.ownership.find_owned(partition)
            asked = self.outgoing.take_probe(partition)
            if owned is not None:
                self.outgoing.on_table(owned, table, outcomes, now, reconfirmed=reconfirmed)
            if owner == self.this:
                if owned is None and self.follower.undivided.lacks(partition):
                    self.split_queue.partitions[partition] = None
                    continue
                if owned is None:
                    owned = self._take_over(partition, table.versions[partition])
                    if partition in ahead:
                        self.outgoing.seal_until_confirmed(owned)
                    self.split_queue.drop(partition)
                self._follow_table(owned, reconfirmed, now, before if not is_divided else None)
            elif partition in self.split_queue.partitions:
                self.split_queue.drop(partition)
            elif owned is not None:
                self._hand_over(owned)
                if self.this in table.replicas(partition):
                    self.follower.replicas[partition] = owned.replica
                else:
                    self.memory.deferred_free.add(owned.replica)
                    self.ownership.log.add(ReplicaDropped(partition))
                if asked is not None:
                    self.follower.on_probe(*asked)
        self.outgoing.unseal_confirmed(ahead)
        if table.maps.contents:
            self.staging.place_all(now)
        if is_divided:
            self._answer_early()

    def _follow_table(
        self, owned: OwnedPartition, reconfirmed: bool, now: Millis, before: PartitionTable | None = None
    ) -> None:
        """Let an owned partition follow the installed table. `before`: the one before it, of as many partitions; None: none."""
        table = self.ownership.table
        row = before.replicas(owned.number) if before is not None else ()
        away = self.ownership.away(row, table.replicas(owned.number))
        self._hold_answers(owned, now)
        owned.follow_table(table, reconfirmed, now, away, len(row))
        self.journal_changes.follow(owned, now)
        self.evictor.look_at(owned, now)
        if not owned.is_settled:
            self.leader.note_unsettled(owned, now)

    def _divide(
        self, former_count: int, outcomes: Mapping[tuple[int, int], bool], now: Millis, *, reconfirmed: bool
    ) -> None:
        """Split the partitions: end the ownership of all, and keep their replicas, which the new ones are made from.

        `former_count`: the number of partitions before.
        """
        held: dict[int, Replica] = {}
        self.split_queue.drop_all()
        for owned in self.ownership.all_owned():
            self.outgoing.on_table(owned, self.ownership.table, outcomes, now, reconfirmed=reconfirmed)
            self._hand_over(owned, why=f"partition {owned.number} was divided")
            held[owned.number] = owned.replica
        self.follower.divide(held, former_count, self.ownership.table, outcomes)
        self.ownership.owned = [None] * self.ownership.table.partition_count

    def begin_epoch(self, partition: int, now: Millis) -> None:
        """Begin to serve a partition that had to be split first."""
        owned = self._take_over(partition, self.ownership.table.versions[partition])
        self._follow_table(owned, False, now)
        self.staging.place(owned, now)

    def _take_over(self, partition: int, epoch: int) -> OwnedPartition:
        """Become the owner, with the replica that is here, or with an empty one if there is none."""
        replica, log = self.follower.replicas.pop(partition, None) or Replica(), self.ownership.log
        self.follower.drop_copy(partition)
        if replica.ordered_for >= 0 and replica.epoch >= epoch:
            # 1. This member joins, and gets a copy before it has a table. 2. A cut leaves it alone: it assigns all
            # partitions anew, beginning with version 1. The copy is of a cluster that goes on elsewhere and has the
            # data.
            self.memory.deferred_free.add(replica)
            log.add(ReplicaDropped(partition))
            replica = Replica()
        replica.ordered_for = -1
        self.reads.follow_settings(replica)
        owned = OwnedPartition(Term(partition, epoch, self.this), replica, self.copies, self.guard)
        log.add(EpochBegun(partition, epoch, self.this, replica.ended))
        owned.view = self.follower.view
        self.ownership.owned[partition] = owned
        self.staging.take_over(owned, self.ownership.table_installed_at)
        for name, store in replica.maps.items():
            if store.idle:
                # No replica but the former owner's knew of all uses.
                store.idle_since = STILL if is_hidden(name) else self.ownership.table_installed_at
                self.leader.idle_maps[name] = None
        self._expirer.take_over(owned)
        self.locks.take_over(owned)
        return owned

    def _hand_over(self, owned: OwnedPartition, why: str = "") -> None:
        """End the ownership of a partition. Fail the writes that wait: this member cannot know if the new owner has them."""
        why = why or f"partition {owned.number} got another owner"
        self.outgoing.release_partition(owned.number)
        self.staging.release_partition(owned.number)
        self.evictor.release_partition(owned.number)
        self.ownership.owned[owned.number] = None
        self.leader.note_settled(owned.number)
        self.leader.awaits_sync.pop(owned.number, None)
        self._expirer.release_partition(owned.number)
        self.locks.release_partition(owned.number)
        for write in owned.abandon():
            if write.partitions_left > 0:
                write.partitions_left = 0
                text = f"{why} before the backups confirmed the write"
                self.replies.fail(write.caller, write.reply.id, ErrorCode.OWNERSHIP_LOST, text)

    def on_view(self, fact: NewView, now: Millis) -> None:
        view = fact.view
        self.ownership.on_view(view)
        self.memory.on_members(view.members)
        self.guard.on_view(view, now)
        self.disks.on_view(view, now)
        self.follower.view = view.id
        for owned in self.ownership.all_owned():
            owned.on_view(view.id, fact.members, now)
            if owned.streams:
                self._note_progress(owned, now)
        self._answer_early()

    def _answer_early(self) -> None:
        """Handle the probes again that came before their view or table."""
        early, self._early = self._early, {}
        for sender, probe in early.values():
            self.answer_late(sender, probe)

    def answer_late(self, sender: MemberId, probe: Probe) -> None:
        """Handle a probe that had to wait, unless its sender has left since."""
        if sender in self.ownership.members:
            self.on_probe(sender, probe)

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Drop all data of this incarnation, which is over: other members serve it."""
        self.outgoing.end()
        self.split_queue.drop_all()
        for owned in self.ownership.all_owned():
            self._hand_over(owned)
        self.follower.end()
        self._early.clear()
        self._anti_entropy.end()
        self._purger.end()
        self.scans.end()
        self.turns.end()

    # --- replication -----------------------------------------------------------------------------------------------

    def on_replicate_ack(self, sender: MemberId, message: ReplicateAck, now: Millis) -> None:
        owned = self.ownership.find_owned(message.partition)
        if owned is not None:
            owned.on_ack(sender, message, now)
            self._note_progress(owned, now)

    def on_replicate_acks(self, sender: MemberId, message: ReplicateAcks, now: Millis) -> None:
        for ack in message.acks:
            self.on_replicate_ack(sender, ack, now)

    def on_synced(self, lsn: int, now: Millis) -> None:
        """Note how far the log of this member is synced: owners and callers wait for that."""
        self.ownership.log.note_synced(lsn)
        self.follower.held_acks.on_synced(lsn)
        self.leader.on_synced(lsn, now)

    def on_disk_checked(self, checked: DiskChecked, now: Millis) -> None:
        """Take how this member's disk does. If it has failed, no sync will come: acknowledge to owners what is in memory (DU-45), and let
        no write wait for it here. The guard answers those (DU-41).

        1. A write waits for the sync at its owner, whose disk fails. 2. Another member is to own the partition: it is sealed, until
        nothing waits. 3. If the write waited for ever, so would all callers of the partition.
        """
        self.disks.on_checked(checked, now)
        if not self.ownership.log.is_on:
            last = self.ownership.log.last_lsn
            self.follower.held_acks.on_synced(last)
            self.leader.on_synced(last, now)

    def on_probe(self, sender: MemberId, message: Probe) -> None:
        if not message.view.may_be_known_by(self.follower.view):
            # An owner with another view of the same version is on another side: its probe is never answered.
            if message.view.version > self.follower.view.version:
                self._early[message.partition] = sender, message
        elif message.of != len(self.ownership.owned) and self.ownership.table.version:
            if message.of > len(self.ownership.owned):
                self._early[message.partition] = sender, message
        elif not self.outgoing.answer_probe(sender, message):
            self.follower.on_probe(sender, message)

    def on_probe_answer(self, sender: MemberId, message: ProbeAnswer, now: Millis) -> None:
        owned = self.ownership.find_owned(message.partition)
        if owned is not None:
            owned.on_probe_answer(sender, message, now)
            if not owned.is_settled:
                self.leader.note_unsettled(owned, now)
            self._note_progress(owned, now)

    def on_copy_ack(self, sender: MemberId, message: CopyAck, now: Millis) -> None:
        owned = self.ownership.find_owned(message.partition)
        if owned is not None:
            owned.on_copy_ack(sender, message, now)

    def on_copy_refused(self, sender: MemberId, message: CopyRefused, now: Millis) -> None:
        """Give up a migration whose destination has no memory for the copy."""
        owned = self.ownership.find_owned(message.partition)
        if owned is not None and owned.end_refused_copy(sender, message.copy_id, now):
            of = f"{format_bytes(message.used)} of its memory limit of {format_bytes(message.limit)}"
            self.outgoing.on_refused(owned, sender, f"the destination uses {of}")
            self._note_progress(owned, now)

    def on_memory_report(self, sender: MemberId, message: MemoryReport, now: Millis) -> None:
        if sender in self.ownership.members:
            self.memory.on_report(sender, message, now)

    def on_disk_report(self, sender: MemberId, message: DiskReport, now: Millis) -> None:
        if sender in self.ownership.members:
            self.disks.on_report(sender, message, now)

    def on_measured(self, measured: MemoryMeasured, now: Millis) -> None:
        """Take a measurement of this process's memory."""
        self.memory.on_measured(measured, self.ownership.confirmed_by, now)

    def on_link_lost(self, peer: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        """Handle a lost connection: messages to or from the peer can be lost.

        `is_refused`: no connection was opened, so only messages that waited for one are lost.
        """
        if not is_refused:
            self.follower.on_link_lost(peer)
        for owned in list(self.leader.unsettled.values()):
            owned.on_link_lost(peer, now, is_refused=is_refused)
            self._note_progress(owned, now)

    def on_link_up(self, peer: MemberId, now: Millis) -> None:
        """Probe the replicas at a peer to which a connection is open again."""
        for owned in self.leader.unsettled.values():
            owned.on_link_up(peer, now)

    def _note_progress(self, owned: OwnedPartition, now: Millis) -> None:
        if self.outgoing.active:
            self.outgoing.advance_migration(owned, now)
        if owned.is_settled:
            self.leader.note_settled(owned.number)

    # --- migrations ------------------------------------------------------------------------------------------------

    def on_migration_order(self, sender: MemberId, message: MigrationOrder, now: Millis) -> None:
        """Take an order of this member's master. An order for another version of the partition than the installed one
        is ignored (DL-27): an older one is over, a newer one is repeated.
        """
        owned = self.ownership.find_owned(message.partition)
        if owned is None or self.ownership.table.versions[message.partition] != message.base_version:
            return
        if self.outgoing.on_order(owned, message, sender, now):
            self.leader.note_unsettled(owned, now)

    def refusal_to_commit(self, message: MigrationCommit) -> str | None:
        """Say why this member must refuse to commit a migration to it; None: it can commit."""
        if self.ownership.table.versions[message.partition] == message.row.version:
            return None
        return self.follower.refusal_to_commit(message)

    def stored(self) -> StoredSide | None:
        """Return what was read from the folder and no cluster has taken up yet; None: nothing."""
        return self.follower.as_read.side_under(self.table)

    def undecided(self) -> tuple[tuple[ActiveMigration, ...], tuple[OwnerEpoch, ...]]:
        """Return what a new master must know besides the table (DL-29)."""
        states = [*self.outgoing.states(), *self.follower.incoming.open.values()]
        return tuple(states), tuple(self.follower.unknown_epochs())

    # --- time ------------------------------------------------------------------------------------------------------

    def alarms(self) -> list[Alarm]:
        """Return the alarms of the parts, in the order in which they ring."""
        pacer = self.copies.pacer
        return [
            self.parked.alarm,
            Alarm(self.guard),
            Alarm(self.disks),
            Alarm(self.split_queue, others_follow=True),
            *([pacer.alarm] if pacer is not None else []),
            self.memory.deferred_free.alarm,
            self.disk_copies.alarm,
            Alarm(self._purger),
            self.turns.alarm,
            self.staging.alarm,
            self.evictor.alarm,
            self.scans.alarm,
            self._expirer.alarm,
            self.locks.alarm,
            Alarm(self._anti_entropy),
            self.leader.alarm,
        ]
