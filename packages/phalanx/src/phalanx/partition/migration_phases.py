"""One migration as the master knows it: its phases, and how it ended (docs/protocol/migrations.md).

ORDERED      the partition's owner brings the destination's replica up to date; writes go on, and reach it too.
             Where a replica is only cleared, the owner says that it is there, and that is all
COMMITTING   the destination is told the next row, and installs it; only its answer, or its departure, decides
COMMITTED    the row is in the table, version + 1
ROLLED_BACK  the row stays, version + 2
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import Slots
from phalanx.common.transitions import TransitionTable
from phalanx.wire.messages import MigrationCommit


class MigrationPhase(enum.StrEnum):
    """The phase of one migration, as the master knows it."""

    ORDERED = "the owner brings the destination up to date"
    COMMITTING = "the destination is told to commit"
    COMMITTED = "the row is in the table"
    ROLLED_BACK = "the row stays as it was"


class MigrationEvent(enum.StrEnum):
    """What moves a migration to its next phase."""

    READY = "the owner says that the destination has everything"
    OWNER_IS_THERE = "a replica is to be cleared, and the owner, which has everything, is there"
    GIVEN_UP = "the owner gave it up"
    UNWANTED = "the targets have changed"
    DEPARTED = "the destination has left, or, while only ordered, any holder of the partition"
    ACCEPTED = "the destination has committed"
    REFUSED = "the destination never will"


MIGRATION_CHANGES = TransitionTable[MigrationPhase, MigrationEvent](
    "a migration",
    {
        (MigrationPhase.ORDERED, MigrationEvent.READY): MigrationPhase.COMMITTING,
        (MigrationPhase.ORDERED, MigrationEvent.OWNER_IS_THERE): MigrationPhase.COMMITTED,
        (MigrationPhase.ORDERED, MigrationEvent.GIVEN_UP): MigrationPhase.ROLLED_BACK,
        (MigrationPhase.ORDERED, MigrationEvent.UNWANTED): MigrationPhase.ROLLED_BACK,
        (MigrationPhase.ORDERED, MigrationEvent.DEPARTED): MigrationPhase.ROLLED_BACK,
        (MigrationPhase.COMMITTING, MigrationEvent.ACCEPTED): MigrationPhase.COMMITTED,
        (MigrationPhase.COMMITTING, MigrationEvent.REFUSED): MigrationPhase.ROLLED_BACK,
        (MigrationPhase.COMMITTING, MigrationEvent.DEPARTED): MigrationPhase.ROLLED_BACK,
    },
)
"""A migration in COMMITTING never times out: only the destination's answer or departure ends it."""


class Underway(msgspec.Struct, gc=False):
    """A migration that has begun and has no outcome yet."""

    partition: int
    base_version: int
    migration: Migration[MemberId]
    owner: MemberId
    """The owner of the partition, which sends the data to the destination."""
    began_at: Millis
    sent_at: Millis
    """When the order or the commit was last sent."""
    phase: MigrationPhase = MigrationPhase.ORDERED
    commit: MigrationCommit | None = None
    copied_entries: int = 0
    """Entries that the owner has copied to the destination, as it says."""
    copied_bytes: int = 0

    def transition(self, event: MigrationEvent) -> None:
        self.phase = MIGRATION_CHANGES.next(self.phase, event, migration=self)

    @property
    def destination(self) -> MemberId:
        """The member that has everything afterwards: the destination; where a replica is cleared, the owner itself."""
        return self.owner if self.migration.destination is None else self.migration.destination

    @property
    def clears(self) -> bool:
        """Whether a replica is cleared, and nobody gets one."""
        return self.migration.kind is MigrationKind.CLEAR

    @property
    def lowers(self) -> bool:
        """Whether the partition has one replica fewer afterwards."""
        return self.clears or (self.migration.kind is MigrationKind.SHIFT_UP and self.migration.source is not None)

    @property
    def busy(self) -> tuple[MemberId, ...]:
        """The members for which the migration counts: sender and receiver."""
        return (self.owner,) if self.clears else (self.owner, self.destination)


class MigrationOutcome(NamedTuple):
    """How a migration ended."""

    underway: Underway
    row: Slots | None
    """The partition's new row; None: it was rolled back."""
    reason: str = ""
