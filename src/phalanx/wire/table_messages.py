"""Messages about the partition table and about migrations (docs/protocol/migrations.md)."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.migration import Migration
from phalanx.common.table import PartitionTable, Slots
from phalanx.common.view import ViewId
from phalanx.wire.message import WireMessage


class CompletedMigration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a migration ended. Published with the table until every member has a table that is as new."""

    partition: int
    base_version: int
    """The partition's version that the migration was ordered for: no two migrations of a partition share it."""
    migration: Migration[MemberId]
    committed: bool


class ActiveMigration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A migration in which a member takes part and whose outcome it does not know."""

    partition: int
    base_version: int
    migration: Migration[MemberId]


class OwnerEpoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The owner that a replica follows, and since which version of the partition; its table may not have it yet."""

    partition: int
    epoch: int
    leader: str
    seq: int


class RowChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of a partition table."""

    partition: int
    version: int
    birth: int
    slots: Slots


# --- the table ------------------------------------------------------------------------------------------------------


class TableUpdate(WireMessage, tag=30, frozen=True):
    """The master publishes its partition table, and how the latest migrations ended."""

    table: PartitionTable
    completed: tuple[CompletedMigration, ...] = ()
    view: ViewId = ViewId()
    """That the table was made for: who has not installed it cannot know whom the table leaves out, and why."""


class TableChanges(WireMessage, tag=52, frozen=True):
    """As `TableUpdate`, for members that have the table of `from_version`: only what has changed since."""

    from_version: int
    version: int
    changes: tuple[RowChange, ...]
    completed: tuple[CompletedMigration, ...]
    view: ViewId = ViewId()


class FetchTable(WireMessage, tag=31, frozen=True):
    """A new master looks for the most recent table before it publishes anything."""

    search_id: int


class FetchedTable(WireMessage, tag=32, frozen=True):
    """The table that this member has, and what it knows of migrations that the table does not tell."""

    search_id: int
    table: PartitionTable
    completed: tuple[CompletedMigration, ...] = ()
    active: tuple[ActiveMigration, ...] = ()
    epochs: tuple[OwnerEpoch, ...] = ()
    """Of replicas that follow an owner whose epoch is newer than the table."""


class TableRequest(WireMessage, tag=33, frozen=True):
    """Somebody wants to use the data: assign the partitions if that has not happened yet."""


class TableAck(WireMessage, tag=34, frozen=True):
    """This version of the table is installed here, and confirmed by the receiver as the master."""

    version: int
    is_behind: bool = False
    """Changes came that this member cannot apply: it needs the whole table."""


# --- migrations -----------------------------------------------------------------------------------------------------


class MigrationOrder(WireMessage, tag=53, frozen=True):
    """The master tells the partition's owner to bring the destination's replica up to date for a migration."""

    partition: int
    base_version: int
    migration: Migration[MemberId]


class MigrationReady(WireMessage, tag=54, frozen=True):
    """The owner tells the master: the destination holds everything that was confirmed, and from now on no write is
    confirmed without it (nor any at all, where the ownership moves). Or, not `done`: the attempt was given up.
    """

    partition: int
    base_version: int
    destination: MemberId
    done: bool
    epoch: int
    seq: int
    """What the destination holds at least; exactly that where the ownership moves."""
    reason: str = ""
    copied_entries: int = 0
    """Entries that were sent to the destination, without the writes meanwhile; 0: it needed no copy."""
    copied_bytes: int = 0
    """The size of their keys and values."""


class MigrationCommit(WireMessage, tag=55, frozen=True):
    """The master tells the destination to commit: the partition's next row (docs/protocol/migrations.md)."""

    partition: int
    base_version: int
    migration: Migration[MemberId]
    row: RowChange
    epoch: int
    seq: int


class MigrationAnswer(WireMessage, tag=56, frozen=True):
    """The destination has committed, or says why it never will."""

    partition: int
    base_version: int
    accepted: bool
    reason: str = ""
