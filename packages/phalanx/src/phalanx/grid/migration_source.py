"""The owner's part in the migrations of its partitions (docs/protocol/migrations.md).

    COPYING   the destination gets a copy, unless it is a backup already; writes go on, and reach it, too.
    SEALED    the ownership moves: requests for the partition wait here, unanswered, until the outcome is known. That
              takes as long as the last writes need for confirmation, and the messages of the commit.
    REPORTED  the destination has everything, and no write is confirmed without it. The master decides; this owner never
              ends the migration by itself.

An owner that has reported learns the outcome by the table alone: a newer version of the partition, and a row with or
without it. Then the requests that waited for a sealed partition are answered: served here, or told the new owner. So
one owner serves a request, never both, in the order of arrival.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.transitions import TransitionTable
from phalanx.grid.replication.copying import Destination
from phalanx.grid.replication.journal_settings import JournalChanges
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.progress import StreamState
from phalanx.grid.staging.staged_rows import OwnerStaging
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import (
    ActiveMigration,
    MigrationOrder,
    MigrationReady,
    Probe,
)
from phalanx.wire.table_events import MigrationCopied, MigrationFinalized, PartitionSealed

Outcomes = Mapping[tuple[int, int], bool]
"""Partition and the version for which a migration was ordered, to whether it was committed (DL-24)."""


class MigrationStage(enum.StrEnum):
    """The stage of one migration, for the owner."""

    COPYING = "the destination is brought up to date"
    SEALED = "requests for the partition wait"
    REPORTED = "the master decides"


class StageEvent(enum.StrEnum):
    """What changes the stage of a migration."""

    LAGS = "the destination, or with the ownership any backup, has yet to tell what it has"
    SEALS = "all are in step, and the ownership moves"
    HAS_ALL = "the destination has everything that was confirmed"


STAGE_CHANGES = TransitionTable[MigrationStage, StageEvent](
    "the owner's part in a migration",
    {
        (MigrationStage.COPYING, StageEvent.LAGS): MigrationStage.COPYING,
        (MigrationStage.COPYING, StageEvent.SEALS): MigrationStage.SEALED,
        (MigrationStage.COPYING, StageEvent.HAS_ALL): MigrationStage.REPORTED,
        (MigrationStage.SEALED, StageEvent.LAGS): MigrationStage.COPYING,
        (MigrationStage.SEALED, StageEvent.HAS_ALL): MigrationStage.REPORTED,
    },
)
"""Only the partition table ends a migration that was reported."""


class Outgoing(msgspec.Struct, gc=False):
    """One migration of a partition that is owned here, from its order to the table with its outcome."""

    destination: Destination
    began_at: Millis
    stage: MigrationStage = MigrationStage.COPYING
    copied: bool = False
    """Whether the destination has been in sync before."""
    probe: Probe | None = None
    """The new owner's probe, which came before the table that says that it is the owner."""

    @property
    def moves_ownership(self) -> bool:
        return self.destination.migration.destination_new_index == 0

    def transition(self, event: StageEvent) -> None:
        self.stage = STAGE_CHANGES.next(self.stage, event, migration=self)


class OutgoingMigrations:
    """The migrations under way of partitions that this member owns."""

    def __init__(
        self,
        ownership: Ownership,
        staging: OwnerStaging,
        journal_changes: JournalChanges,
        outbox: Outbox,
    ) -> None:
        self._ownership = ownership
        self._staging = staging
        self._journal_changes = journal_changes
        self._out = outbox
        self.active: dict[int, Outgoing] = {}
        self.sealed = ownership.sealed
        self._unconfirmed: set[int] = set()
        """Sealed partitions that this member owns by its own commit, and not yet by the master's table."""

    def __repr__(self) -> str:
        return f"OutgoingMigrations({self.active}, sealed={list(self.sealed)})"

    def states(self) -> list[ActiveMigration]:
        """Return the migrations under way, for a new master."""
        return [
            ActiveMigration(partition, outgoing.destination.base_version, outgoing.destination.migration)
            for partition, outgoing in self.active.items()
        ]

    def on_order(self, owned: OwnedPartition, message: MigrationOrder, ordered_by: MemberId, now: Millis) -> bool:
        """Take an order of the master for the present version of a partition that is owned here. Return whether a copy
        begins by it.

        It is ignored while the row is ahead of the master's table: the order has overtaken that table, and is repeated.
        If it were taken, the table would unseal the partition that the order seals, and two owners would answer.
        """
        if owned.number in self._unconfirmed:
            return False
        outgoing = self.active.get(owned.number)
        migration = message.migration
        begins = outgoing is None
        if outgoing is None:
            member = migration.destination
            if member is None:
                self._report_cleared(owned, message)
                return False
            if member == self._ownership.this:
                return False
            has_folder = member in self._ownership.folders
            destination = Destination(message.base_version, migration, member, ordered_by, has_folder)
            outgoing = self.active[owned.number] = Outgoing(destination, now)
            owned.copy_to(destination, now)
        elif outgoing.destination.migration != migration:
            return (
                False  # The outcome of another migration is not known here yet (DL-28). The master repeats its order.
            )
        elif outgoing.stage is MigrationStage.REPORTED:
            self._report(owned, outgoing, done=True)
        self.advance_migration(owned, now)
        return begins

    def advance_migration(self, owned: OwnedPartition, now: Millis) -> None:
        """Advance the migration of a partition after a change of its streams."""
        outgoing = self.active.get(owned.number)
        if outgoing is None or outgoing.stage is MigrationStage.REPORTED:
            return
        stream = owned.streams.get(outgoing.destination.member)
        if stream is None:
            self._give_up(owned, outgoing, "the copy broke off")
            return
        if stream.state is not StreamState.IN_SYNC:
            self._unseal(owned.number)
            outgoing.transition(StageEvent.LAGS)
            return
        self._note_copied(owned, outgoing, now, is_sent=stream.copied_entries > 0)
        if not outgoing.moves_ownership:
            outgoing.transition(StageEvent.HAS_ALL)
            self._report(owned, outgoing, done=True)
        elif not owned.all_in_sync():
            # Another backup has not answered its probe yet: if sealed now, all callers would wait for that.
            self._unseal(owned.number)
            outgoing.transition(StageEvent.LAGS)
        else:
            if outgoing.stage is MigrationStage.COPYING:
                outgoing.transition(StageEvent.SEALS)
                self._seal(owned, outgoing)
            if owned.is_settled:
                outgoing.transition(StageEvent.HAS_ALL)
                self._report(owned, outgoing, done=True)

    def on_refused(self, owned: OwnedPartition, destination: MemberId, reason: str) -> None:
        """Give up the migration of a partition, because its destination has refused the copy."""
        outgoing = self.active.get(owned.number)
        if outgoing is not None and outgoing.destination.member == destination:
            self._give_up(owned, outgoing, reason)

    def on_table(
        self, owned: OwnedPartition, table: PartitionTable, outcomes: Outcomes, now: Millis, *, reconfirmed: bool
    ) -> None:  # fmt: skip
        """End the migration if the table has its outcome (DL-21). Called before the table is acted upon."""
        outgoing = self.active.get(owned.number)
        if outgoing is None:
            return
        version, destination = table.versions[owned.number], outgoing.destination
        if version <= destination.base_version and not reconfirmed:
            return
        del self.active[owned.number]
        step = destination.migration
        committed = outcomes.get((owned.number, destination.base_version), False)
        if step.source == self._ownership.this:
            before, after = step.source_current_index, step.source_new_index
            self._out.record(
                MigrationFinalized(owned.number, destination.base_version, "source", before, after, committed, version)
            )
        self._unseal(owned.number)
        if outgoing.moves_ownership and not committed:
            # The destination may have committed by itself: then it, and the replicas that it probed, follow another
            # epoch.
            owned.probe_all(now)

    def seal_until_confirmed(self, owned: OwnedPartition) -> None:
        """Seal a partition that this member owns by its own commit, until the master's table says so, too.

        1. The master lets D commit. 2. D commits, serves a write with its backup B, and dies; its answer to the master
        is lost. 3. The master takes the migration back, because D has left: the old owner continues, without the write.
        """
        self._staging.release_partition(owned.number)
        self._unconfirmed.add(owned.number)
        self.sealed[owned.number] = owned
        self._ownership.owned[owned.number] = None

    def unseal_confirmed(self, ahead: Collection[int]) -> None:
        """Unseal the partitions whose rows the master's table has confirmed: all but those in `ahead`."""
        for partition in sorted(self._unconfirmed.difference(ahead)):
            self._unconfirmed.discard(partition)
            self._unseal(partition)

    def release_partition(self, partition: int) -> None:
        """Release the parked requests of a partition that another member owns now; they are told so."""
        self._unconfirmed.discard(partition)
        self._unseal(partition)

    def answer_probe(self, owner: MemberId, probe: Probe) -> bool:
        """Keep the probe of a destination that is the owner already, by a table that is not here yet. Return whether it
        is one.

        1. The master lets D commit: D owns the partition, and the old owner S is its backup. 2. D probes S. 3. Only
        then the master's table reaches S. If the probe were dropped, D's first write would wait until D probes again.
        """
        outgoing = self.active.get(probe.partition)
        if outgoing is None or not outgoing.moves_ownership or outgoing.destination.member != owner:
            return False
        outgoing.probe = probe
        return True

    def take_probe(self, partition: int) -> tuple[MemberId, Probe] | None:
        outgoing = self.active.get(partition)
        if outgoing is None or outgoing.probe is None:
            return None
        return outgoing.destination.member, outgoing.probe

    def end(self) -> None:
        """End all migrations: this incarnation is over."""
        for partition in list(self.sealed):
            self._unseal(partition)
        self.active.clear()
        self._unconfirmed.clear()

    # --- steps -----------------------------------------------------------------------------------------------------

    def _note_copied(self, owned: OwnedPartition, outgoing: Outgoing, now: Millis, *, is_sent: bool) -> None:
        if not outgoing.copied:
            outgoing.copied = True
            destination = outgoing.destination
            entries, took_ms = owned.replica.entry_count() if is_sent else 0, now - outgoing.began_at
            self._out.record(
                MigrationCopied(
                    owned.number, destination.base_version, destination.member, entries, took_ms
                )
            )  # fmt: skip

    def _seal(self, owned: OwnedPartition, outgoing: Outgoing) -> None:
        self._staging.release_partition(owned.number)
        self.sealed[owned.number] = owned
        self._ownership.owned[owned.number] = None
        destination = outgoing.destination
        self._out.record(PartitionSealed(owned.number, destination.base_version, destination.member))

    def _unseal(self, partition: int) -> None:
        owned = self.sealed.pop(partition, None)
        if owned is not None:
            self._ownership.owned[partition] = owned
            self._journal_changes.follow(owned, self._ownership.table_installed_at)
            self._staging.serve_again(owned)

    def _give_up(self, owned: OwnedPartition, outgoing: Outgoing, reason: str) -> None:
        del self.active[owned.number]
        self._unseal(owned.number)
        self._report(owned, outgoing, done=False, reason=reason)

    def _report_cleared(self, owned: OwnedPartition, message: MigrationOrder) -> None:
        """Say that this owner is there, so that another replica can be cleared: every confirmed write is here, too."""
        master = self._ownership.confirmed_by
        if master is not None:
            this, replica = self._ownership.this, owned.replica
            self._out.send(
                master, MigrationReady(owned.number, message.base_version, this, True, replica.epoch, replica.seq)
            )

    def _report(self, owned: OwnedPartition, outgoing: Outgoing, *, done: bool, reason: str = "") -> None:
        master = self._ownership.confirmed_by
        if master is not None:
            destination, epoch = outgoing.destination, owned.replica.epoch
            stream = owned.streams.get(destination.member)
            # The destination has at least what it has acknowledged; more can be on its way.
            seq, entries, size = 0, 0, 0
            if stream is not None:
                seq, entries, size = stream.acked, stream.copied_entries, stream.copied_bytes
            message = MigrationReady(
                owned.number, destination.base_version, destination.member, done, epoch, seq, reason, entries, size
            )  # fmt: skip
            self._out.send(master, message)
