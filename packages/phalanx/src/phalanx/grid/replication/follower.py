"""The backup's side of replication: replicas of partitions that other members own.

A replica applies the writes of one owner in the order of their sequence numbers, and acknowledges the greatest number
up to which it has all of them. A write of another owner or epoch, or out of order, changes nothing. A member that
claims to own the partition is believed if the installed table says so, or can be too old to know it. A new owner first
probes whether both hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.codec.hashing import children_of
from phalanx.codec.rows import greatest_head
from phalanx.common.clock import STAMP_BYTES, GridClock, stamp_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged_steps import maps_consumed_by, snapshot_made_by
from phalanx.grid.replication.copying import IncomingCopy
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.follower_rules import believes, is_older_than_loss, may_hold
from phalanx.grid.replication.held_acks import Acks, HeldAcks, send_acks
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.migration_destination import IncomingMigrations, refusal_to_commit
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.partition_split import UndividedReplicas
from phalanx.grid.replication.replicas_as_read import ReplicasAsRead
from phalanx.grid.replication.restored import RestoredReplicas
from phalanx.wire.disk_records import CopyBegun, CopyDropped, EpochBegun, ReplicaDropped
from phalanx.wire.messages import (
    ActiveMigration,
    CopyAck,
    CopyChunk,
    CopyRefused,
    CopyStart,
    MigrationCommit,
    Mutation,
    OwnerEpoch,
    Probe,
    ProbeAnswer,
    ReplicateAck,
    ReplicateClear,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    ReplicateUpdates,
)


class Follower:
    """The replicas at this member that follow an owner elsewhere, and the copies that arrive."""

    def __init__(self, ownership: Ownership, memory: MemoryGuard, clock: GridClock, flow: CopyFlow) -> None:
        self.this = ownership.this
        self._ownership = ownership
        self._log = ownership.log
        self.replicas: dict[int, Replica] = {}
        """Partition to a complete replica."""
        self.copies: dict[int, IncomingCopy] = {}
        """Partition to a copy that is arriving."""
        self.incoming = IncomingMigrations(ownership.this, flow.out)
        self.acks: Acks = {}
        """What is acknowledged at the end of this input."""
        self.held_acks = HeldAcks(ownership.log, flow.out)
        self.deferred_free = memory.deferred_free
        self.undivided = UndividedReplicas(self.replicas, self.deferred_free, self._log)
        """Replicas of partitions that the table has split and this member has not."""
        self.as_read = ReplicasAsRead(self.this, self.replicas, self._log, flow.out)
        """What was read from the folder, and is neither served nor follows an owner."""
        self.take_back: Callable[[CopyStart, Millis], Replica | None] = lambda start, now: None
        """Returns what is kept as it was read, if an owner that is about to copy has all that it lacks at hand."""
        self._owns = ownership.owns
        self._out = flow.out
        self._clock = clock
        self._traffic = flow.traffic
        self._memory = memory
        self._table: PartitionTable | None = None
        self.view = ViewId()
        """The installed view."""

    def restore(self, restored: RestoredReplicas) -> None:
        """Take what was read from the folder. These replicas are served, or follow an owner, when a table says so."""
        self.as_read.restore(restored)
        self._clock.restore(restored.clock)

    def on_replicate(self, sender: MemberId, message: Mutation, now: Millis) -> None:
        partition = message.partition
        self._traffic.last_at = now
        if self._owns(partition):
            return
        # If this member becomes the owner next, the stamps of its writes must be greater than those that it holds.
        if type(message) is ReplicatePut:
            self._clock.observe_stored(message.values, now)
        elif type(message) is ReplicateRemove:
            self._clock.observe(max(message.stamps, default=message.ended_at), now)
        elif isinstance(message, ReplicateClear | ReplicateStaged | ReplicateUpdates):
            self._clock.observe(message.stamp, now)
        copy = self.copies.get(partition)
        if copy is not None and copy.replica.epoch == message.epoch and copy.source == sender:
            if message.seq == copy.replica.seq + 1:
                self._memory.take_mutation(message)
                self.deferred_free.add_stores(apply(copy.replica, message, now))
                self._log.add(message, to_copy=True)
            return
        replica = self.replicas.get(partition)
        if self.undivided and (undivided := self.undivided.of_old_rule(partition, message.epoch, sender)) is not None:
            replica = undivided
        if replica is None or replica.epoch != message.epoch or replica.leader != sender:
            # The owner takes this member for a backup in sync: without an answer it would wait for ever.
            if self._believes(sender, partition, message.epoch) and self._may_hold(partition, message.epoch):
                self._out.send(sender, ProbeAnswer(partition, message.epoch, -1))
            return
        if message.seq == replica.seq + 1:
            is_step = type(message) is ReplicateStaged and self._log.is_on
            needed = maps_consumed_by(replica, message) if is_step else ()  # type: ignore[arg-type]  # it is one
            self._memory.take_mutation(message)
            if useless := apply(replica, message, now):
                self.deferred_free.add_stores(useless)
            if self._log.is_on:
                self._log.add(message)
            if is_step:
                made = snapshot_made_by(replica, message)  # type: ignore[arg-type]  # it is one
                self._log.note_step(partition, needed, made, message.map)
        if message.seq <= replica.seq:
            if now >= self._log.late_from or self._ownership.rules.is_always(message.map):
                self.held_acks.add(sender, partition, message.epoch, replica.seq)
                return
            acks = self.acks.get(sender)
            if acks is None:
                acks = self.acks[sender] = {}
            acks[partition] = ReplicateAck(partition, message.epoch, replica.seq)

    def acknowledge(self) -> None:
        """Send the acknowledgements of the writes that this input has applied, as far as they need not wait for a sync."""
        if self.acks:
            send_acks(self._out, self.acks)
            self.acks.clear()
        if self.held_acks.new:
            self.held_acks.end_input()

    def _acknowledge_synced(self, owner: MemberId, partition: int, epoch: int, seq: int) -> None:
        """Acknowledge also the sync of what is here, if the writes of any map wait for that."""
        if self._ownership.rules.any_always:
            self.held_acks.add(owner, partition, epoch, seq)

    def on_probe(self, sender: MemberId, message: Probe) -> None:
        partition, epoch = message.partition, message.epoch
        if self._owns(partition) or not self._may_hold(partition, epoch):
            return
        if not self._believes(sender, partition, epoch):
            return
        self.drop_copy(partition)
        if self.undivided.begin_for(partition):
            self.undivided.sort_entries((partition,))
        replica = self._find(partition)
        if replica is None and message.base_epoch == 0 and message.base_seq == 0:
            # A partition without any write yet begins empty at all members.
            replica = self.replicas[partition] = Replica()
            self._log.add(EpochBegun(partition, 0, "", -1))
        in_sync_to = -1
        if replica is not None:
            base = (message.base_epoch, message.base_seq, message.base_leader)
            if (replica.epoch, replica.seq, replica.leader) == base:
                self.held_acks.forget(partition)
                replica.begin_epoch(epoch, sender)
                self._log.add(EpochBegun(partition, epoch, sender, replica.ended))
            if (replica.epoch, replica.leader) == (epoch, sender):
                in_sync_to = replica.seq
        if self.undivided.lacks(partition):
            # The replica follows the owner from now on, and answers when it can take writes.
            self.undivided.questions[partition] = sender, message
        else:
            self._out.send(sender, ProbeAnswer(partition, epoch, in_sync_to))
            if in_sync_to >= 0:
                self._acknowledge_synced(sender, partition, epoch, in_sync_to)

    def on_copy_start(self, sender: MemberId, message: CopyStart, now: Millis) -> None:
        partition, base_version = message.partition, message.base_version
        if self._table is not None and message.of != self._table.partition_count:
            return
        if self._table is None and self.as_read.is_of_other_count(message.of):
            # The first table divides what was read, and would divide this, too. The owner asks again soon.
            return
        if not message.view.may_be_known_by(self.view):
            return
        if base_version:
            is_wanted = self._table is None or base_version >= self._table.versions[partition]
            is_wanted = is_wanted and not self._is_over(message.ordered_by)
        else:
            is_wanted = self._may_hold(partition, message.epoch)
        self.undivided.begin_for(partition)
        if is_wanted and not self._owns(partition) and self._believes(sender, partition, message.epoch):
            kept = self.take_back(message, now) if message.is_question else None
            if base_version and self._memory.is_full and kept is None:
                self._refuse_copy(sender, partition, message.copy_id)
                return
            # The copy follows from an earlier probe, so a probe that still waits here is obsolete.
            self.undivided.questions.pop(partition, None)
            self.drop_copy(partition)
            if message.migration is not None:
                self.incoming.open[partition] = ActiveMigration(partition, base_version, message.migration)
            if message.is_question:
                has_to = kept.seq if kept is not None else -1
                self._out.send(sender, CopyAck(partition, message.copy_id, -1, has_to=has_to))
            if kept is not None:
                self._free(partition)
                self.replicas[partition] = kept
                if (kept.epoch, kept.leader) != (message.epoch, sender):
                    kept.begin_epoch(message.epoch, sender)
                    self._log.add(EpochBegun(partition, message.epoch, sender, kept.ended))
                self._end_copy(sender, partition, kept, base_version, message.ordered_by)
                return
            # It is not the copy's to replace: it can have what the cluster has not.
            self.as_read.set_aside({partition}, message.of)
            self.as_read.note_count(message.of)
            self.copies[partition] = IncomingCopy(sender, message)
            self._log.add(CopyBegun(message, sender, -1, False))

    def on_copy_chunk(self, sender: MemberId, message: CopyChunk, now: Millis) -> None:
        partition = message.partition
        copy = self.copies.get(partition)
        if copy is None or not copy.accepts(sender, message):
            return
        if message.rows:
            self._clock.observe(stamp_of(greatest_head(message.rows, STAMP_BYTES)), now)
        self._clock.observe(
            max([*message.removed_at, *(each.cleared_at for each in message.forgotten)], default=0), now
        )
        self._memory.take_chunk(message)
        copy.apply(message, now)
        self._log.add(message, to_copy=True)
        if copy.base_version and self._memory.is_full and not message.last:
            self.drop_copy(partition)
            self.incoming.drop(partition)
            self._refuse_copy(sender, partition, message.copy_id)
            return
        self._out.send(sender, CopyAck(partition, message.copy_id, message.index, self._traffic.is_there(now)))
        if message.last:
            # The old replica is dropped only now, when the new one is complete.
            del self.copies[partition]
            self._free(partition)
            self.replicas[partition] = copy.replica
            self._end_copy(sender, partition, copy.replica, copy.base_version, copy.ordered_by)

    def _end_copy(
        self, owner: MemberId, partition: int, replica: Replica, base_version: int, ordered_by: MemberId | None
    ) -> None:
        """Tell the owner that all is here that was to be copied."""
        replica.ordered_for, replica.ordered_by = base_version, ordered_by
        self._out.send(owner, ReplicateAck(partition, replica.epoch, replica.seq))
        self._acknowledge_synced(owner, partition, replica.epoch, replica.seq)

    def _refuse_copy(self, sender: MemberId, partition: int, copy_id: int) -> None:
        """Refuse the copy of a migration: this member has no memory for it, and the partition has its replicas elsewhere.

        A copy for a backup of the table is always taken. It takes the place of what is here, and writes wait for it.
        """
        self._out.send(sender, CopyRefused(partition, copy_id, self._memory.used, self._memory.limit))

    def on_link_lost(self, peer: MemberId) -> None:
        """Drop the incomplete copies from a peer whose connection is lost: some of their messages can be lost."""
        for partition in [p for p, copy in self.copies.items() if copy.source == peer]:
            self.drop_copy(partition)
            self.incoming.drop(partition)

    def drop_copy(self, partition: int) -> None:
        """Drop the copy of a partition that is arriving, if there is one."""
        copy = self.copies.pop(partition, None)
        if copy is not None:
            self.deferred_free.add(copy.replica)
            self._log.add(CopyDropped(partition))

    def _drop(self, partition: int) -> None:
        self._log.add(ReplicaDropped(partition))
        self._free(partition)

    def _free(self, partition: int) -> None:
        self.undivided.drop(partition)
        self.held_acks.forget(partition)
        self.deferred_free.add(self.replicas.pop(partition, None))

    def _find(self, partition: int) -> Replica | None:
        """Return the replica of a partition, also a child of a split that is not complete yet; None: there is none."""
        return self.replicas.get(partition) or self.undivided.child(partition)

    def _held(self) -> Mapping[int, Replica]:
        """Return all replicas by partition, with the children of splits that are not complete yet, without those that stay as read."""
        held = self.replicas | self.undivided.children() if self.undivided.is_under_way else self.replicas
        if self.as_read.awaited is None:
            return held
        return {partition: replica for partition, replica in held.items() if partition not in self.as_read.partitions}

    def follow_table(
        self, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool], *, reconfirmed: bool
    ) -> None:
        """Drop the replicas for which the table does not list this member, except copies that the master can yet
        commit.

        A replica of an epoch that the table does not know yet stays: its owner has a newer table, which is on its way
        here and can list this member. `reconfirmed`: another master than before has published or confirmed the table.
        """
        if not table.version:
            return  # Such a table assigns nothing, and its number of partitions means nothing.
        if self._table is None:
            for partition in [p for p, copy in self.copies.items() if copy.partition_count != table.partition_count]:
                self.drop_copy(partition)
                self.incoming.drop(partition)
            for partition in [p for p in self.replicas if p >= table.partition_count]:
                self._drop(partition)
            self.incoming.drop_beyond(table.partition_count)
        self.as_read.follow_table(table)
        self._table = table
        self.undivided.follow_table(table)
        mine = table.members.index(self.this) if self.this in table.members else -1
        rows, versions = table.rows, table.versions
        for partition in [p for p in self.incoming.open if mine not in rows[p]]:
            self._end_former_order(partition, table, outcomes, reconfirmed=reconfirmed)
        held = self._held()
        for partition in [p for p in held if mine not in rows[p]]:
            replica = held[partition]
            if max(replica.ordered_for, replica.epoch - 1) < versions[partition]:
                self._drop(partition)
        for partition in [p for p in self.copies if mine not in rows[p]]:
            copy = self.copies[partition]
            if max(copy.base_version, copy.replica.epoch - 1) < versions[partition]:
                self.drop_copy(partition)
        self.incoming.end_passed(table, outcomes)
        for partition in [p for p, replica in self._held().items() if is_older_than_loss(replica, p, table, self.this)]:
            self._drop(partition)
        if reconfirmed:
            self._end_unknown_rules(table)

    def acknowledge_all_synced(self) -> None:
        """Acknowledge to each owner also the sync of what is here: it can wait for that since this table."""
        for partition, replica in self.replicas.items():
            if replica.leader in self._ownership.members:
                self._acknowledge_synced(MemberId(replica.leader), partition, replica.epoch, replica.seq)

    def divide(
        self,
        held: dict[int, Replica],
        former_count: int,
        table: PartitionTable,
        outcomes: Mapping[tuple[int, int], bool],
    ) -> None:
        """Split the replicas as the table says; drop copies under way. `held`: the replicas that this member owned.

        `former_count`: the number of partitions before.
        """
        self.undivided.begin_all()
        for partition in sorted(self.incoming.open):
            self.incoming.end(partition, table, outcomes)
        for partition in list(self.copies):
            self.drop_copy(partition)
        awaited = self.as_read.divide(former_count, table)
        unfinished = self.undivided.children()
        held = held | self.replicas | unfinished
        self.replicas.clear()
        listed = {
            partition: held[partition]
            for partition in sorted(held)
            if any(
                self.this in table.replicas(child) and not is_older_than_loss(held[partition], child, table, self.this)
                for child in children_of(partition, table.partition_count, former_count)
            )
        }
        for partition in [p for p in held if p not in listed and p not in unfinished]:
            self.deferred_free.add(held[partition])
            self._log.add(ReplicaDropped(partition))
        self.undivided.begin_splits(listed, former_count, table)
        if awaited is not None:
            self.as_read.restore(awaited)

    def _end_former_order(
        self, partition: int, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool], *, reconfirmed: bool
    ) -> None:
        """Drop a copy whose master has a successor: it will not be committed.

        1. On one side of a cut M orders O to copy a partition in its version 7 to this member. 2. This member goes on
        with master N, which found the partition in version 5. N's versions can never pass 7, so the version alone would
        keep the copy. An order of N itself can arrive before N's first table.
        """
        copy, replica = self.copies.get(partition), self.replicas.get(partition)
        held = copy or replica
        if held is None or not self._is_over(held.ordered_by):
            return
        self.drop_copy(partition)
        if replica is not None and self._is_over(replica.ordered_by):
            replica.ordered_for, replica.ordered_by = -1, None
            if reconfirmed:
                self._drop(partition)  # The new master's table does not know its owner's epoch either.
        self.incoming.end(partition, table, outcomes)

    def _is_over(self, ordered_by: MemberId | None) -> bool:
        return ordered_by is not None and self._ownership.is_former(ordered_by)

    def refusal_to_commit(self, message: MigrationCommit) -> str | None:
        """Say why this member must refuse to commit a migration; None: it can commit."""
        is_listed = self._table is not None and self.this in self._table.replicas(message.partition)
        return refusal_to_commit(self.replicas.get(message.partition), is_listed, message)

    def unknown_epochs(self) -> list[OwnerEpoch]:
        """Return the rules that replicas here follow and that are newer than the table."""
        table = self._table
        return [
            OwnerEpoch(partition, replica.epoch, replica.leader, replica.seq)
            for partition, replica in self._held().items()
            if table is not None and replica.epoch > table.versions[partition]
        ]

    def drop_all(self) -> None:
        """Drop all replicas: they are of other partitions than the cluster has."""
        for partition in list(self.replicas):
            self._drop(partition)

    def finish_splits(self) -> dict[int, Replica]:
        """Split at once what is left to split, and return all replicas."""
        self.undivided.divide_all()
        return self.replicas

    def observe(self, stamp: int, now: Millis) -> None:
        """Give writes from now on greater stamps than this."""
        self._clock.observe(stamp, now)

    def stamp(self, now: Millis) -> int:
        """Return the time of the grid."""
        return self._clock.read(now)

    def end(self) -> None:
        """Give up all replicas: this incarnation is over."""
        self.replicas.clear()
        self.undivided.clear()
        self.copies.clear()
        self.incoming.open.clear()
        self.held_acks.end()

    def _end_unknown_rules(self, table: PartitionTable) -> None:
        """Stop following owners whose epoch the new master's table does not know. The replicas stay, under no owner.

        1. Master M makes L the owner of a partition and dies when only L has the table. 2. L has already probed B, its
        backup, and B follows L. 3. L dies. The next master never hears of L's epoch, and can give another owner the same
        epoch, or a lower one. B must be able to follow that owner.

        The owner is told, because it can be one that the new master has made with its next table, and then it takes B for a
        backup in sync: it would learn of it with its next write, and until then all migrations that rely on it would fail.
        """
        for partition, replica in self._held().items():
            if replica.epoch > table.versions[partition]:
                if replica.leader in table.members:
                    self._out.send(MemberId(replica.leader), ProbeAnswer(partition, replica.epoch, -1))
                replica.ended = replica.epoch
                self.held_acks.forget(partition)
                replica.begin_epoch(table.births[partition], f"none, at {self.this}")
                self._log.add(EpochBegun(partition, replica.epoch, replica.leader, replica.ended))

    def _believes(self, sender: MemberId, partition: int, epoch: int) -> bool:
        return believes(self._table, self._find(partition), sender, partition, epoch)

    def _may_hold(self, partition: int, epoch: int) -> bool:
        return may_hold(self._table, self.replicas.get(partition), self.this, partition, epoch)
