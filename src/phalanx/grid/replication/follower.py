"""The backup's side of replication: replicas of partitions that other members own.

A replica applies the writes of one owner's rule in the order of their numbers, and acknowledges the greatest number
up to which it has all of them. A write of another rule, or out of order, changes nothing. Who says that it owns the
partition is believed if the installed table says so too, or may be too old to know it; and it first asks whether both
hold the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.codec.hashing import children_of
from phalanx.common.clock import GridClock
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.grid.replica.deferred_free import DeferredFree
from phalanx.grid.replica.mutation import apply
from phalanx.grid.replica.store import Replica
from phalanx.grid.replication.copying import IncomingCopy
from phalanx.grid.replication.partition_split import UndividedReplicas
from phalanx.machine.outbox import Outbox
from phalanx.wire import events
from phalanx.wire.messages import (
    ActiveMigration,
    CopyAck,
    CopyChunk,
    CopyStart,
    MigrationCommit,
    Mutation,
    Probe,
    ProbeAnswer,
    ReplicateAck,
    ReplicateAcks,
    ReplicateClear,
    ReplicatePut,
    ReplicateRemove,
    ReplicateStaged,
    Rule,
)


class Follower:
    """The replicas at this member that follow an owner elsewhere, and the copies that arrive."""

    def __init__(
        self,
        this: MemberId,
        owns: Callable[[int], bool],
        is_former: Callable[[MemberId], bool],
        outbox: Outbox,
        clock: GridClock,
        discarded: DeferredFree,
    ) -> None:
        """`is_former`: whether another master has come after this one, and stands behind the installed table. `discarded`
        takes what is dropped."""
        self.this = this
        self.replicas: dict[int, Replica] = {}
        """Partition to a complete replica."""
        self.copies: dict[int, IncomingCopy] = {}
        """Partition to a copy that is arriving, or has arrived and is not in the table yet."""
        self.incoming: dict[int, ActiveMigration] = {}
        """Partition to the migration to this member for which a copy arrives or has arrived, and whose outcome is open."""
        self.acks: dict[MemberId, dict[int, ReplicateAck]] = {}
        """Owner and partition to what the owner is to be told at the end of this input."""
        self.deferred_free = discarded
        self.undivided = UndividedReplicas(self.replicas, self.deferred_free)
        """Replicas of partitions of a smaller count."""
        self._owns = owns
        self._is_former = is_former
        self._out = outbox
        self._clock = clock
        self._table: PartitionTable | None = None
        self.view = ViewId()
        """The installed one."""

    def on_replicate(self, sender: MemberId, message: Mutation, now: Millis) -> None:
        partition = message.partition
        if self._owns(partition):
            return
        # Should this member own the partition next, its writes must be newer than what it holds.
        if type(message) is ReplicatePut:
            self._clock.observe_stored(message.values, now)
        elif type(message) is ReplicateRemove:
            self._clock.observe(max(message.stamps, default=message.ended_at), now)
        elif type(message) is ReplicateClear or type(message) is ReplicateStaged:
            self._clock.observe(message.stamp, now)
        copy = self.copies.get(partition)
        if copy is not None and copy.replica.epoch == message.epoch and copy.source == sender:
            if message.seq == copy.replica.seq + 1:
                self.deferred_free.add_stores(apply(copy.replica, message, now))
            return
        replica = self.replicas.get(partition)
        if self.undivided and (undivided := self.undivided.of_old_rule(partition, message.epoch, sender)) is not None:
            replica = undivided
        if replica is None or replica.epoch != message.epoch or replica.ruler != sender:
            # Without an answer the owner, which takes this one for a backup in sync, would wait for ever.
            if self._believes(sender, partition, message.epoch) and self._may_hold(partition, message.epoch):
                self._out.send(sender, ProbeAnswer(partition, message.epoch, -1))
            return
        if message.seq == replica.seq + 1 and (useless := apply(replica, message, now)):
            self.deferred_free.add_stores(useless)
        if message.seq <= replica.seq:
            acks = self.acks.get(sender)
            if acks is None:
                acks = self.acks[sender] = {}
            acks[partition] = ReplicateAck(partition, message.epoch, replica.seq)

    def acknowledge(self) -> None:
        """Tell owners which of the writes of this input are applied here."""
        for owner, acks in self.acks.items():
            told = list(acks.values())
            self._out.send(owner, told[0] if len(told) == 1 else ReplicateAcks(told))
        self.acks.clear()

    def on_probe(self, sender: MemberId, message: Probe) -> None:
        partition, epoch = message.partition, message.epoch
        if self._owns(partition) or not self._may_hold(partition, epoch):
            return
        if not self._believes(sender, partition, epoch):
            return
        self.drop_copy(partition)
        if self.undivided.begin_for(partition):
            self.undivided.go_on((partition,))
        replica = self._find(partition)
        if replica is None and message.base_epoch == 0 and message.base_seq == 0:
            # A partition that nobody has written to yet begins empty everywhere.
            replica = self.replicas[partition] = Replica()
        in_sync_to = -1
        if replica is not None:
            base = (message.base_epoch, message.base_seq, message.base_ruler)
            if (replica.epoch, replica.seq, replica.ruler) == base:
                replica.begin_rule(epoch, sender)
            if (replica.epoch, replica.ruler) == (epoch, sender):
                in_sync_to = replica.seq
        if self.undivided.lacks(partition):
            # It follows the owner from now on, and says so when it can take writes.
            self.undivided.questions[partition] = sender, message
        else:
            self._out.send(sender, ProbeAnswer(partition, epoch, in_sync_to))

    def on_copy_start(self, sender: MemberId, message: CopyStart) -> None:
        partition, base_version = message.partition, message.base_version
        if self._table is not None and message.of != self._table.partition_count:
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
            # It is the answer to a question that was asked before: one that still waits is older.
            self.undivided.questions.pop(partition, None)
            self.drop_copy(partition)
            self.copies[partition] = IncomingCopy(sender, message)
            if message.migration is not None:
                self.incoming[partition] = ActiveMigration(partition, base_version, message.migration)

    def on_copy_chunk(self, sender: MemberId, message: CopyChunk, now: Millis) -> None:
        partition = message.partition
        copy = self.copies.get(partition)
        if copy is None or not copy.accepts(sender, message):
            return
        self._clock.observe_stored(message.values, now)
        self._clock.observe(
            max([*message.removed_at, *(each.cleared_at for each in message.forgotten)], default=0), now
        )
        copy.apply(message, now)
        self._out.send(sender, CopyAck(partition, message.copy_id, message.index))
        if message.last:
            # The old state goes only now, when the new one is whole.
            del self.copies[partition]
            self._drop(partition)
            self.replicas[partition] = copy.replica
            copy.replica.ordered_for, copy.replica.ordered_by = copy.base_version, copy.ordered_by
            self._out.send(sender, ReplicateAck(partition, copy.replica.epoch, copy.replica.seq))

    def on_link_lost(self, peer: MemberId) -> None:
        """A copy is whole only if nothing of it was lost: what has not arrived completely is dropped."""
        for partition in [p for p, copy in self.copies.items() if copy.source == peer]:
            self.drop_copy(partition)
            self.incoming.pop(partition, None)

    def drop_copy(self, partition: int) -> None:
        """End a copy that arrives, if there is one."""
        copy = self.copies.pop(partition, None)
        if copy is not None:
            self.deferred_free.add(copy.replica)

    def _drop(self, partition: int) -> None:
        self.undivided.drop(partition)
        self.deferred_free.add(self.replicas.pop(partition, None))

    def _find(self, partition: int) -> Replica | None:
        """The replica that is here, also one that is not whole before another one is divided."""
        return self.replicas.get(partition) or self.undivided.child(partition)

    def _held(self) -> Mapping[int, Replica]:
        """All of them."""
        return self.replicas | self.undivided.children() if self.undivided.is_under_way else self.replicas

    def follow_table(
        self, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool], *, reconfirmed: bool
    ) -> None:
        """Drop what the table gives to others, except copies that the master has yet to decide about.

        A replica of an epoch that the table does not know yet stays: its owner works by a newer table, which is on its
        way here and may list this member. `reconfirmed`: another master than before stands behind the table.
        """
        if not table.version:
            return  # It assigns nothing, and says nothing of how many partitions there are.
        if self._table is None:
            for partition in [p for p, copy in self.copies.items() if copy.of != table.partition_count]:
                self.drop_copy(partition)
                self.incoming.pop(partition, None)
            for partition in [p for p in self.replicas if p >= table.partition_count]:
                self._drop(partition)
            for partition in [p for p in self.incoming if p >= table.partition_count]:
                del self.incoming[partition]
        self._table = table
        self.undivided.follow_table(table)
        mine = table.members.index(self.this) if self.this in table.members else -1
        rows, versions = table.rows, table.versions
        for partition in [p for p in self.incoming if mine not in rows[p]]:
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
        for partition in [p for p, state in self.incoming.items() if versions[p] > state.base_version]:
            self._finalize(self.incoming.pop(partition), table, outcomes)
        for partition in [p for p, replica in self._held().items() if self._is_older_than_loss(replica, p, table)]:
            self._drop(partition)
        if reconfirmed:
            self._end_unknown_rules(table)

    def divide(
        self, held: dict[int, Replica], of: int, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool]
    ) -> None:
        """The table has divided the partitions. `held`: what this member owned of them; copies of them break off."""
        self.undivided.begin_all()
        for partition in sorted(self.incoming):
            self._finalize(self.incoming.pop(partition), table, outcomes)
        for partition in list(self.copies):
            self.drop_copy(partition)
        unfinished = self.undivided.children()
        held = held | self.replicas | unfinished
        self.replicas.clear()
        listed = {
            partition: held[partition]
            for partition in sorted(held)
            if any(
                self.this in table.replicas(child) and not self._is_older_than_loss(held[partition], child, table)
                for child in children_of(partition, table.partition_count, of)
            )
        }
        for partition in [p for p in held if p not in listed and p not in unfinished]:
            self.deferred_free.add(held[partition])
        self.undivided.begin(listed, of, table)

    def _finalize(
        self, state: ActiveMigration, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool]
    ) -> None:
        """The table tells how a migration to this member has ended."""
        step, partition = state.migration, state.partition
        before, after = step.destination_current_index, step.destination_new_index
        version = table.versions[partition]
        # What this member has committed itself is not in the master's list yet.
        by_itself = version == state.base_version + 1 and table.slots(partition)[after:][:1] == (self.this,)
        committed = outcomes.get((partition, state.base_version), by_itself)
        self._out.record(
            events.MigrationFinalized(partition, state.base_version, "destination", before, after, committed, version)
        )

    def _end_former_order(
        self, partition: int, table: PartitionTable, outcomes: Mapping[tuple[int, int], bool], *, reconfirmed: bool
    ) -> None:
        """Let go of a copy that was ordered by a master after which another one has come: it is not going to be committed.

        1. On one side of a cut M orders O to copy a partition in its version 7 to this member. 2. This member goes on with
        N, who found it in version 5, and may never pass 7. What N orders itself may come ahead of N's first table.
        """
        copy, replica = self.copies.get(partition), self.replicas.get(partition)
        held = copy or replica
        if held is None or not self._is_over(held.ordered_by):
            return
        self.drop_copy(partition)
        if replica is not None and self._is_over(replica.ordered_by):
            replica.ordered_for, replica.ordered_by = -1, None
            if reconfirmed:
                self._drop(partition)  # Nor does the rule count of which the new master's table does not know.
        self._finalize(self.incoming.pop(partition), table, outcomes)

    def _is_over(self, ordered_by: MemberId | None) -> bool:
        return ordered_by is not None and self._is_former(ordered_by)

    def refusal_to_commit(self, message: MigrationCommit) -> str | None:
        """Why this member is not what the commit of a migration takes it for; None: it is."""
        replica = self.replicas.get(message.partition)
        if replica is None:
            return "the replica is not complete"
        is_listed = self._table is not None and self.this in self._table.replicas(message.partition)
        if not is_listed and replica.ordered_for != message.base_version:
            return "the replica was copied for another migration"
        moves_ownership = message.migration.destination_new_index == 0
        if (
            replica.epoch != message.epoch
            or replica.seq < message.seq
            or (moves_ownership and replica.seq != message.seq)
        ):
            return f"the replica is at {replica.epoch}:{replica.seq}, the owner's was at {message.epoch}:{message.seq}"
        return None

    def unknown_rules(self) -> list[Rule]:
        """The rules that replicas here follow, where they are newer than the table."""
        table = self._table
        return [
            Rule(partition, replica.epoch, replica.ruler, replica.seq)
            for partition, replica in self._held().items()
            if table is not None and replica.epoch > table.versions[partition]
        ]

    def end(self) -> None:
        """This incarnation is over."""
        self.replicas.clear()
        self.undivided.clear()
        self.copies.clear()
        self.incoming.clear()

    def _end_unknown_rules(self, table: PartitionTable) -> None:
        """Follow nobody whose rule the new master's table does not know, and hold what is here as this member's own.

        1. Master M makes L the owner of a partition and dies when only L has heard of it. 2. L has already asked B, its
        backup, to follow. 3. L dies. The next master never hears of L's rule, and may give another owner the same
        epoch, or a lower one: B must not wait for a rule that will not come.
        """
        for partition, replica in self._held().items():
            if replica.epoch > table.versions[partition]:
                replica.ended = replica.epoch
                replica.begin_rule(table.births[partition], f"none, at {self.this}")

    def _is_older_than_loss(self, replica: Replica, partition: int, table: PartitionTable) -> bool:
        """Whether the partition was lost since: what is here was not in the table, and may miss confirmed writes.

        1. A new master publishes the table that it found, then one in which O begins a lost partition anew, with B as its
        backup. 2. O has both; B, by the table before, follows O and confirms writes. 3. The first one comes to B: it does
        not know O's rule, and so B follows nobody. 4. The second one comes. What B has it has heard of O since the loss.
        """
        birth = table.births[partition]
        begins_here = table.owner(partition) == self.this and table.versions[partition] == birth
        return replica.epoch < birth and (replica.ended < birth or begins_here)

    def _believes(self, sender: MemberId, partition: int, epoch: int) -> bool:
        """Whether the sender may own the partition since that epoch.

        By a table that is older than what the present replica follows it may not: that table's owner is deposed.
        """
        table, replica = self._table, self._find(partition)
        followed = replica.epoch if replica is not None else -1
        if table is None:
            return epoch > followed
        known = table.versions[partition]
        return (followed <= known and table.owner(partition) == sender) or epoch > max(followed, known)

    def _may_hold(self, partition: int, epoch: int) -> bool:
        """Whether the table lists this member, is too old to know the owner's epoch, or may yet list it for its copy."""
        table, replica = self._table, self.replicas.get(partition)
        if table is None or epoch > table.versions[partition] or self.this in table.replicas(partition):
            return True
        return replica is not None and replica.ordered_for >= table.versions[partition]
