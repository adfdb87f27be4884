"""The grid at one member: routes requests and replication messages to the partitions that this member holds.

Only the owner, by the table that is installed here, serves a request; another member tells the caller the owner and
does nothing. What a request does is in `requests`, how writes reach backups and how partitions are copied in
`replication`, the owner's part in a migration in `migration_source`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from phalanx.common.clock import COUNTER_BITS, GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.memory import told_bytes
from phalanx.common.table import PartitionTable
from phalanx.grid.locking.lock_keeper import LockKeeper
from phalanx.grid.migration_source import OutgoingMigrations
from phalanx.grid.replica.access_statistics import AccessStatistics, recorded_for
from phalanx.grid.replica.map_store import STILL, MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.tombstones import TombstonePurger
from phalanx.grid.replication.anti_entropy import AntiEntropy
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.expiry import Expirer
from phalanx.grid.replication.flow_control import CallerTraffic, CopyPacer
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.journal_settings import JournalChanges, read_journal
from phalanx.grid.replication.leader import LOOK_EVERY_MS, Leader
from phalanx.grid.replication.map_rules import rules_of
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.partition_split import PartitionsAwaitingSplit
from phalanx.grid.replication.protection import MajorityQuestion, ProtectionGuard
from phalanx.grid.serving.evaluation import FailedRequests
from phalanx.grid.serving.scanning import WaitingScans
from phalanx.grid.serving.turns import WorkInTurns
from phalanx.grid.serving.updates import functions_of
from phalanx.grid.staging.staged_rows import OwnerStaging
from phalanx.machine.alarms import Alarm
from phalanx.machine.facts import IncarnationOver, NewView, TableConfirmed
from phalanx.machine.inputs import MemoryMeasured
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import (
    ActiveMigration,
    CopyAck,
    CopyRefused,
    JournalReply,
    MemoryReport,
    MigrationCommit,
    MigrationOrder,
    OwnerEpoch,
    Probe,
    ProbeAnswer,
    ReadJournal,
    ReplicateAck,
    ReplicateAcks,
)

EXPECTED_AT_ONCE = 4_096
"""Where a map has more entries in a partition when its reads begin to be recorded, these are recorded under copies of their keys."""


class GridService(Leader):
    """The partitions that this member owns, and the replicas that follow other owners, as the table says."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        table: PartitionTable,
        outbox: Outbox,
        clock: GridClock,
        majority: MajorityQuestion,
    ) -> None:
        guard = ProtectionGuard(this, table.maps, majority, config.heartbeat_interval_ms, outbox)
        super().__init__(this, config, table, outbox, clock, guard)
        self.traffic = CallerTraffic()
        self.follower = Follower(
            this, self.owns, self._is_former, outbox, clock, self.deferred_free, self.traffic, self.memory
        )
        self.split_queue = PartitionsAwaitingSplit(
            self.awaiting_split, self.follower.undivided, self.parked, self._begin_epoch, self._answer
        )
        self._early: dict[int, tuple[MemberId, Probe]] = {}
        """Partition to the probe of an owner that has a newer view than this member, or a table with more
        partitions."""
        self._confirmed_by: MemberId | None = None
        self._members: tuple[MemberId, ...] = ()
        """The members of the installed view, oldest first."""
        target_ms = config.migration_latency_target_ms
        self.pacer = CopyPacer(target_ms, config.copy_chunk_bytes, self.traffic) if target_ms else None
        self._anti_entropy = AntiEntropy(self, config.anti_entropy_interval_ms)
        self._purger = TombstonePurger(config.tombstone_ms, clock, self._replicas)
        self.turns = WorkInTurns(self)
        self.kept_replicas: Callable[[], list[Replica]] = list
        """Returns the replicas of former incarnations that are not merged yet."""
        self.evictor = Evictor(self, table.maps)
        self.staging = OwnerStaging(self, self.turns, self.evictor, config.staging_ms)
        self.journal_changes = JournalChanges(self)
        self.outgoing = OutgoingMigrations(self, self.staging, self.journal_changes, lambda: self._confirmed_by)
        self.scans = WaitingScans(self)
        self.functions = functions_of(config)
        """The functions of updates, by name."""
        self.failed_requests = FailedRequests(outbox)
        self.read_now: Millis = -1
        """`now` of the last read that was recorded."""
        self.read_time: Millis = 0
        """What the grid's clock showed then: all reads of one millisecond share this number, and so its memory."""
        self._expirer = Expirer(self)
        self.locks = LockKeeper(self)

    def __repr__(self) -> str:
        owned, followed = len(self.all_owned()), len(self.follower.replicas)
        return f"GridService(owned={owned}, followed={followed}, unsettled={list(self.unsettled)}, {self.outgoing!r})"

    def knows(self, partition: int) -> bool:
        """Whether there is such a partition; before the first table any number may be right."""
        return partition < len(self.owned) or not self.table.version

    def _replicas(self) -> list[Replica]:
        """Return all complete replicas that are split as the table says."""
        return [*(owned.replica for owned in self.all_owned()), *self.follower.replicas.values()]

    def all_replicas(self) -> list[Replica]:
        """Return all replicas at this member, also those that are still arriving, being split, or kept after a merge."""
        copies = [copy.replica for copy in self.follower.copies.values()]
        return [*self._replicas(), *self.follower.undivided.replicas(), *copies, *self.kept_replicas()]

    def validate(self) -> None:
        """Raise `InvariantViolation` if an invariant that holds between any two inputs is broken."""
        invariant(self.rules == rules_of(self.table.maps, self.config), "the rules of maps are the table's", grid=self)
        for owned in self.all_owned():
            partition = owned.number
            invariant(owned.is_plain is (not owned.streams), "a partition knows whether it has streams", owned=owned)
            invariant(self.table.owner(partition) == self.this, "an owner owns by the table", partition=partition)
            invariant(partition not in self.follower.replicas, "an owner follows nobody", partition=partition)
            backups = set(self.table.replicas(partition)[1:])
            counting = {member for member, stream in owned.streams.items() if stream.counts}
            invariant(backups <= counting, "writes wait for every backup of the table", partition=partition)
        undivided = self.follower.undivided
        for partition in undivided.children():
            invariant(self.find_owned(partition) is None, "no half of a partition is served", partition=partition)
            invariant(partition not in self.follower.replicas, "a replica is here once", partition=partition)
        for replica in self._replicas():
            for name, store in replica.maps.items():
                is_plain = store.is_plain
                store.look_again()
                invariant(
                    store.is_plain is is_plain, "a store knows what it has beside entries", map=name, was=is_plain
                )
                counted = store.count_bytes()
                invariant(
                    store.held_bytes == counted,
                    "bytes are counted as they come and go",
                    map=name,
                    held=store.held_bytes,
                    counted=counted,
                )
        self.locks.validate()
        for partition in (*self.sealed, *self.unplaced):
            invariant(self.owned[partition] is None, "such a partition answers nothing", partition=partition)

    # --- requests --------------------------------------------------------------------------------------------------

    def note_read(self, store: MapStore, name: str, key: bytes, now: Millis) -> None:
        """Record a read of an entry, if the map's settings ask for it."""
        accesses = store.accesses
        if accesses is None:
            recorded = recorded_for(self.table.maps.of(name))
            if not recorded:
                return
            accesses = store.accesses = AccessStatistics(recorded)
            store.is_plain = False
            if len(store.entries) <= EXPECTED_AT_ONCE:
                accesses.expect(store.entries)
        if now != self.read_now:
            self.begin_reads(now)
        accesses.note(key, self.read_time)

    def begin_reads(self, now: Millis) -> None:
        """Look at the clock for the reads that are made at this time."""
        self.read_now, self.read_time = now, self.clock.read(now) >> COUNTER_BITS

    def _follow_recording(self, replica: Replica) -> None:
        for name, store in replica.maps.items():
            self.follow_recording(name, store)

    def follow_recording(self, name: str, store: MapStore) -> None:
        """Record of a map's reads what its settings ask for, and forget what they do not."""
        if store.accesses is None:
            return
        recorded = recorded_for(self.table.maps.of(name))
        if store.accesses.recorded & ~recorded:
            store.eviction_order = None  # Ranks rely on reads that are forgotten now; they may only grow.
        store.accesses.record(recorded)
        if not recorded:
            store.accesses = None
        store.look_again()

    def has_idle(self, name: str) -> bool:
        """Whether a map has entries here that expire when nobody uses them."""
        return name in self.idle_maps

    def touch_all(
        self,
        owned_ones: Sequence[OwnedPartition],
        name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        now: Millis,
    ) -> None:
        """Let the idle time of entries that were read begin anew."""
        if name in self.idle_maps:
            for key, owned, value in zip(keys, owned_ones, values, strict=False):
                if value is not None:
                    owned.replica.maps[name].touch(key, now)

    def read_journal(self, owned: OwnedPartition, request: ReadJournal) -> JournalReply:
        """Answer a reader of a journal."""
        return read_journal(owned, request)

    # --- the table -------------------------------------------------------------------------------------------------

    def on_table(self, fact: TableConfirmed, now: Millis) -> None:
        """Follow a table that was installed, or that another master has confirmed."""
        table, ahead, confirmed_by = fact.table, fact.ahead, fact.confirmed_by
        self.guard.on_plan(table.maps, now)
        for content in table.maps.contents:
            # Rows assembled from now on must have greater stamps.
            self.clock.observe(max(content.stamp, content.pending_stamp), now)
        counted, self.rules = self.rules.counts_reads, rules_of(table.maps, self.config)
        self.evictor.on_plan(table.maps)
        self.journal_changes.on_plan(table.maps)
        reconfirmed = confirmed_by != self._confirmed_by
        if table.version:
            # A table that assigns nothing confirms no epoch. 1. This member follows an owner as its backup before it has
            # a table. 2. A cut leaves it alone: as the master it finds no table. 3. It makes one, beginning with
            # version 1.
            self._confirmed_by = confirmed_by
        before, self.table, self.table_installed_at = self.table, table, now
        is_divided = before.partition_count != table.partition_count
        if is_divided and not before.version:
            # This is the member's first table, with another count than it is configured with: there is nothing to
            # split.
            is_divided, self.owned = False, [None] * table.partition_count
        if before.maps != table.maps and (self.rules.counts_reads or counted):
            for replica in [each.replica for each in self.all_owned()]:
                self._follow_recording(replica)
        is_same = not is_divided and before.members == table.members and before.maps == table.maps and not reconfirmed
        outcomes = {(each.partition, each.base_version): each.committed for each in fact.completed}
        if is_divided:
            self._divide(before.partition_count, outcomes, now, reconfirmed=reconfirmed)
        self.follower.follow_table(table, outcomes, reconfirmed=reconfirmed)
        for partition, row in enumerate(table.rows):
            if is_same and before.versions[partition] == table.versions[partition]:
                continue
            owner = table.members[row[0]] if row else None
            owned = self.find_owned(partition)
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
                self._follow_table(owned, reconfirmed, now)
            elif partition in self.split_queue.partitions:
                self.split_queue.drop(partition)
            elif owned is not None:
                self._hand_over(owned)
                if self.this in table.replicas(partition):
                    self.follower.replicas[partition] = owned.replica
                else:
                    self.deferred_free.add(owned.replica)
                if asked is not None:
                    self.follower.on_probe(*asked)
        self.outgoing.unseal_confirmed(ahead)
        if table.maps.contents:
            self.staging.place_all(now)
        if is_divided:
            self._answer_early()

    def _follow_table(self, owned: OwnedPartition, reconfirmed: bool, now: Millis) -> None:
        owned.follow_table(self.table, reconfirmed, now)
        self.journal_changes.follow(owned, now)
        self.evictor.look_at(owned, now)
        if not owned.is_settled:
            self.note_unsettled(owned, now)

    def _divide(self, of: int, outcomes: Mapping[tuple[int, int], bool], now: Millis, *, reconfirmed: bool) -> None:
        """Split the partitions: end the ownership of all, and keep their replicas, which the new ones are made from.

        `of`: the number of partitions before.
        """
        held: dict[int, Replica] = {}
        self.split_queue.drop_all()
        for owned in self.all_owned():
            self.outgoing.on_table(owned, self.table, outcomes, now, reconfirmed=reconfirmed)
            self._hand_over(owned, why=f"partition {owned.number} was divided")
            held[owned.number] = owned.replica
        self.follower.divide(held, of, self.table, outcomes)
        self.owned = [None] * self.table.partition_count

    def _begin_epoch(self, partition: int, now: Millis) -> None:
        """Begin to serve a partition that had to be split first."""
        owned = self._take_over(partition, self.table.versions[partition])
        self._follow_table(owned, False, now)
        self.staging.place(owned, now)

    def _take_over(self, partition: int, epoch: int) -> OwnedPartition:
        """Become the owner, with the replica that is here, or with an empty one if there is none."""
        replica = self.follower.replicas.pop(partition, None) or Replica()
        self.follower.drop_copy(partition)
        if replica.ordered_for >= 0 and replica.epoch >= epoch:
            # 1. This member joins, and gets a copy before it has a table. 2. A cut leaves it alone: it assigns all
            # partitions anew, beginning with version 1. The copy is of a cluster that goes on elsewhere and has the
            # data.
            self.deferred_free.add(replica)
            replica = Replica()
        replica.ordered_for = -1
        self._follow_recording(replica)
        owned = OwnedPartition(self.this, partition, replica, epoch, self.out, self.pacer, self.guard)
        owned.view = self.follower.view
        self.owned[partition] = owned
        self.staging.take_over(owned, self.table_installed_at)
        for name, store in replica.maps.items():
            if store.idle:
                # No replica but the former owner's knew of all uses.
                store.idle_since = STILL if is_hidden(name) else self.table_installed_at
                self.idle_maps[name] = None
        self._expirer.take_over(owned)
        self.locks.take_over(owned)
        return owned

    def _hand_over(self, owned: OwnedPartition, why: str = "") -> None:
        """End the ownership of a partition. Fail the writes that wait: this member cannot know if the new owner has
        them."""
        why = why or f"partition {owned.number} got another owner"
        self.outgoing.let_go(owned.number)
        self.staging.let_go(owned.number)
        self.evictor.let_go(owned.number)
        self.owned[owned.number] = None
        self.note_settled(owned.number)
        self._expirer.let_go(owned.number)
        self.locks.let_go(owned.number)
        for write in owned.abandon():
            if write.partitions_left > 0:
                write.partitions_left = 0
                text = f"{why} before the backups confirmed the write"
                self.fail(write.caller, write.reply.id, ErrorCode.OWNERSHIP_LOST, text)

    def on_view(self, fact: NewView, now: Millis) -> None:
        view = fact.view
        self._members = view.members
        self.memory.on_members(view.members)
        self.guard.on_view(view, now)
        self.follower.view = view.id
        for owned in self.all_owned():
            owned.on_view(view.id, fact.members, now)
            if owned.streams:
                self._note_progress(owned, now)
        self._answer_early()

    def _answer_early(self) -> None:
        """Handle the probes again that came before their view or table."""
        early, self._early = self._early, {}
        for sender, probe in early.values():
            self._answer(sender, probe)

    def _answer(self, sender: MemberId, probe: Probe) -> None:
        """Handle a probe that had to wait, unless its sender has left since."""
        if sender in self._members:
            self.on_probe(sender, probe)

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Drop all data of this incarnation, which is over: other members serve it."""
        self.outgoing.end()
        self.split_queue.drop_all()
        for owned in self.all_owned():
            self._hand_over(owned)
        self.follower.end()
        self._early.clear()
        self._anti_entropy.end()
        self._purger.end()
        self.scans.end()
        self.turns.end()

    # --- replication -----------------------------------------------------------------------------------------------

    def on_replicate_ack(self, sender: MemberId, message: ReplicateAck, now: Millis) -> None:
        owned = self.find_owned(message.partition)
        if owned is not None:
            owned.on_ack(sender, message, now)
            self._note_progress(owned, now)

    def on_replicate_acks(self, sender: MemberId, message: ReplicateAcks, now: Millis) -> None:
        for ack in message.acks:
            self.on_replicate_ack(sender, ack, now)

    def on_probe(self, sender: MemberId, message: Probe) -> None:
        if not message.view.may_be_known_by(self.follower.view):
            # An owner with another view of the same version is on another side: its probe is never answered.
            if message.view.version > self.follower.view.version:
                self._early[message.partition] = sender, message
        elif message.of != len(self.owned) and self.table.version:
            if message.of > len(self.owned):
                self._early[message.partition] = sender, message
        elif not self.outgoing.answer_probe(sender, message):
            self.follower.on_probe(sender, message)

    def on_probe_answer(self, sender: MemberId, message: ProbeAnswer, now: Millis) -> None:
        owned = self.find_owned(message.partition)
        if owned is not None:
            owned.on_probe_answer(sender, message, self.next_copy_id(), self.config.copy_chunk_bytes, now)
            if not owned.is_settled:
                self.note_unsettled(owned, now)
            self._note_progress(owned, now)

    def on_copy_ack(self, sender: MemberId, message: CopyAck, now: Millis) -> None:
        owned = self.find_owned(message.partition)
        if owned is not None:
            owned.on_copy_ack(sender, message, now)

    def on_copy_refused(self, sender: MemberId, message: CopyRefused, now: Millis) -> None:
        """Give up a migration whose destination has no memory for the copy."""
        owned = self.find_owned(message.partition)
        if owned is not None and owned.end_refused_copy(sender, message.copy_id, now):
            of = f"{told_bytes(message.used)} of its memory limit of {told_bytes(message.limit)}"
            self.outgoing.on_refused(owned, sender, f"the destination uses {of}")
            self._note_progress(owned, now)

    def on_memory_report(self, sender: MemberId, message: MemoryReport, now: Millis) -> None:
        if sender in self._members:
            self.memory.on_report(sender, message, now)

    def on_measured(self, measured: MemoryMeasured, now: Millis) -> None:
        """Take a measurement of this process's memory."""
        self.memory.on_measured(measured, self._confirmed_by, now)

    def on_link_lost(self, peer: MemberId, now: Millis, *, is_refused: bool = False) -> None:
        """Handle a lost connection: messages to or from the peer may be lost.

        `is_refused`: no connection was opened, so only messages that waited for one are lost.
        """
        if not is_refused:
            self.follower.on_link_lost(peer)
        for owned in list(self.unsettled.values()):
            owned.on_link_lost(peer, now, is_refused=is_refused)
            self._note_progress(owned, now)

    def on_link_up(self, peer: MemberId, now: Millis) -> None:
        """Probe the replicas at a peer to which a connection is open again."""
        for owned in self.unsettled.values():
            owned.on_link_up(peer, now)

    def note_expiry(self, owned: OwnedPartition, name: str) -> None:
        self._expirer.note(owned.number, name)

    def _note_progress(self, owned: OwnedPartition, now: Millis) -> None:
        if self.outgoing.active:
            self.outgoing.go_on(owned, now)
        if owned.is_settled:
            self.note_settled(owned.number)

    # --- migrations ------------------------------------------------------------------------------------------------

    def on_migration_order(self, sender: MemberId, message: MigrationOrder, now: Millis) -> None:
        """Take an order of this member's master. An order for another version of the partition than the installed one
        is ignored (DL-27): an older one is over, a newer one is repeated.
        """
        owned = self.find_owned(message.partition)
        if owned is not None and self.table.versions[message.partition] == message.base_version:
            self.outgoing.on_order(owned, message, sender, now)

    def refusal_to_commit(self, message: MigrationCommit) -> str | None:
        """Say why this member must refuse to commit a migration to it; None: it can commit."""
        if self.table.versions[message.partition] == message.row.version:
            return None
        return self.follower.refusal_to_commit(message)

    def _is_former(self, master: MemberId) -> bool:
        """Whether a master has a successor whose table is installed.

        A master whose view or table has not arrived here yet is a member of the view here: had it joined later, this
        member would be older, and it would not be this member's master.
        """
        return master != self._confirmed_by and master not in self._members

    def undecided(self) -> tuple[tuple[ActiveMigration, ...], tuple[OwnerEpoch, ...]]:
        """Return what a new master must know besides the table (DL-29)."""
        states = [*self.outgoing.states(), *self.follower.incoming.values()]
        return tuple(states), tuple(self.follower.unknown_epochs())

    # --- time ------------------------------------------------------------------------------------------------------

    def alarms(self) -> list[Alarm]:
        """Return the alarms of this machine and its parts, in the order in which they ring."""
        return [
            self.parked.alarm,
            Alarm(self.guard),
            Alarm(self.split_queue, others_follow=True),
            *([self.pacer.alarm] if self.pacer is not None else []),
            self.deferred_free.alarm,
            Alarm(self._purger),
            self.turns.alarm,
            self.staging.alarm,
            self.evictor.alarm,
            self.scans.alarm,
            self._expirer.alarm,
            self.locks.alarm,
            Alarm(self._anti_entropy),
            self.alarm,
        ]

    def on_time(self, now: Millis) -> None:
        """Ask replicas again that owe something, and give up copies that stand still."""
        if not self.unsettled or now < self.look_at:
            return
        self.look_at = now + LOOK_EVERY_MS
        for owned in list(self.unsettled.values()):
            owned.ask_if_silent(now)
            for member in owned.stalled_copies(now):
                owned.on_link_lost(member, now)
            self._note_progress(owned, now)
