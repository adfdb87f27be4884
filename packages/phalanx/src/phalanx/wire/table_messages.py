"""Messages about the partition table and about migrations (docs/protocol/migrations.md)."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.lineage import Lineage
from phalanx.common.migration import Migration
from phalanx.common.quorum import VoterHistory
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import PartitionTable, Slots, TableRow
from phalanx.common.view import ViewId
from phalanx.wire.message import WireMessage


class CompletedMigration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of a migration. The master publishes it with the table until every member has a table that new."""

    partition: int
    base_version: int
    """The partition's version for which the migration was ordered: no two migrations of a partition share it."""
    migration: Migration[MemberId]
    committed: bool


class ActiveMigration(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A migration in which a member takes part and whose outcome it does not know yet."""

    partition: int
    base_version: int
    """As in `CompletedMigration`."""
    migration: Migration[MemberId]


class OwnerEpoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The owner that a replica follows. The epoch can be newer than the member's table."""

    partition: int
    epoch: int
    """The owner's epoch: the version of the partition when it became the owner."""
    leader: str
    """The owner."""
    seq: int
    """The sequence number of the last write that the replica has applied."""
    lineage: Lineage = ()
    """Under which owners its writes were made, where that is asked for."""


class RowChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One row of a partition table: its version, its birth (`common.table`) and its replicas."""

    partition: int
    version: int
    birth: int
    slots: Slots
    dormant: Slots = ()

    @property
    def row(self) -> TableRow:
        """Return what the table says of this partition from now on."""
        return TableRow(self.slots, self.version, self.birth, self.dormant)


def change_of(partition: int, row: TableRow) -> RowChange:
    """Return the change that gives a partition this row."""
    return RowChange(partition, row.version, row.birth, row.slots, row.dormant)


# --- the table ------------------------------------------------------------------------------------------------------


class TableUpdate(WireMessage, tag=30, frozen=True):
    """The master publishes its partition table and the outcomes of the latest migrations."""

    table: PartitionTable
    completed: tuple[CompletedMigration, ...] = ()
    view: ViewId = ViewId()
    """The view for which the table was made: without it a member cannot know why the table lacks members."""
    clock: int = 0
    """As in `Heartbeat`: an owner that goes on in a cluster that was switched off gives no stamp below it."""
    majority_version: int | None = None
    """The version that the majority has; None: nobody waits for it."""


class TableChanges(WireMessage, tag=52, frozen=True):
    """As `TableUpdate`, but only the rows changed since `from_version`, for members that have that table."""

    from_version: int
    version: int
    changes: tuple[RowChange, ...]
    completed: tuple[CompletedMigration, ...]
    view: ViewId = ViewId()
    majority_version: int | None = None
    """As in `TableUpdate`."""


class MajorityHasTable(WireMessage, tag=180, frozen=True):
    """The master tells a member that holds answers until then which version of its table the majority has."""

    version: int | None
    """None: nobody waits for it any more."""


class FetchTable(WireMessage, tag=31, frozen=True):
    """A new master asks for the receiver's table: it publishes nothing before it knows the most recent one."""

    search_id: int


class StoredSide(msgspec.Struct, frozen=True, array_like=True):
    """What a process has read from its folder and no cluster has taken up yet."""

    formers: tuple[MemberId, ...]
    """The incarnations that have written it, since one of them had a table, and those of the process until one has; the latest last."""
    history: VoterHistory
    """For whom the process votes, and what it knows of stable views."""
    table: PartitionTable | None
    """The table that they had installed; None: none with owners."""
    positions: tuple[OwnerEpoch, ...]
    """The owner that each complete replica follows, and the last write that it has."""
    start: int = 0
    """How often a process has started with the folder: that of the present one; 0: unknown."""
    seen_ms: Millis = 0
    """When it was written last, by the clock of the grid, since 1970; after a power cut up to 20 s later: no
    stamp that was given is greater."""
    had_table: bool = False
    """Whether any incarnation that has written the folder had a table with owners: without one it was given no partition."""
    lacks_majority: bool = False
    """Whether the incarnation that had the table was, in the end, on a side without the majority."""
    incarnations: tuple[MemberId, ...] = ()
    """The latest incarnations that had a view and the folder: also such of which it tells nothing any more."""
    awaited: tuple[MemberId, ...] = ()
    """Members that were awaited, because their folders have what they held (DU-59)."""
    known_number: int = 0
    """The number of the latest view that the process knows, and that is or can be stable: perhaps it began after this was read."""
    disk_failed: bool = False
    """Whether the disk failed on which it is: so it can lack what its member acknowledged, and promised, since (DU-60)."""

    @property
    def root(self) -> MemberId:
        """Return who founded the cluster of this data; empty: there is none."""
        return self.history.footing.root if self.table is not None else MemberId("")


class FetchedTable(WireMessage, tag=32, frozen=True):
    """The table of this member, and what it knows about migrations and owners that the table does not contain."""

    search_id: int
    table: PartitionTable
    completed: tuple[CompletedMigration, ...] = ()
    active: tuple[ActiveMigration, ...] = ()
    epochs: tuple[OwnerEpoch, ...] = ()
    """The owners that this member's replicas follow, where the epoch is newer than the table."""
    stored: StoredSide | None = None
    """None: the process has read nothing, or its cluster has taken it up."""
    clock: int = 0
    """As in `TableUpdate`: what was stamped by this table is not above it."""


class RestartAwaited(WireMessage, tag=179, frozen=True):
    """The master of a cluster that was switched off tells the other members for whom it waits, as long as it does."""

    wait: RestartWait


class TableRequest(WireMessage, tag=33, frozen=True):
    """Ask the master to assign the partitions, if that has not happened yet: a caller wants to use the data."""


class TableAck(WireMessage, tag=34, frozen=True):
    """The sender has installed this version of the table, which the receiver has confirmed as the master."""

    version: int
    is_behind: bool = False
    """The sender got changes that it cannot apply: it needs the whole table."""
    formers: tuple[MemberId, ...] = ()
    """The incarnations that have written the sender's folder, as in `StoredSide`."""
    positions: tuple[OwnerEpoch, ...] = ()
    """Of partitions that are dormant in this version: what the sender has read of them from its folder."""
    lacks_majority: bool = False
    """As in `StoredSide`."""
    holds_answers: bool = False
    """Whether the sender holds answers until it hears that the majority has a version (`MajorityHasTable`)."""


# --- migrations -----------------------------------------------------------------------------------------------------


class MigrationOrder(WireMessage, tag=53, frozen=True):
    """The master tells the partition's owner to bring the destination's replica up to date for a migration.

    Without a destination a replica is to be cleared, and the owner only says that it is there.
    """

    partition: int
    base_version: int
    migration: Migration[MemberId]


class MigrationReady(WireMessage, tag=54, frozen=True):
    """The owner tells the master that the destination holds all acknowledged writes (`done`), or that it gave up.

    From then on no write is acknowledged without the destination. If the ownership moves, no write is acknowledged at
    all. Where a replica is only cleared, the destination is the owner itself.
    """

    partition: int
    base_version: int
    destination: MemberId
    done: bool
    epoch: int
    seq: int
    """The last write that the destination holds at least; exactly the last one if the ownership moves."""
    reason: str = ""
    """Why the owner gave up."""
    copied_entries: int = 0
    """Entries that were sent to the destination, without the writes meanwhile; 0: it needed no copy."""
    copied_bytes: int = 0
    """The size of their keys and values."""


class MigrationCommit(WireMessage, tag=55, frozen=True):
    """The master tells the destination to commit the migration (docs/protocol/migrations.md)."""

    partition: int
    base_version: int
    migration: Migration[MemberId]
    row: RowChange
    """The partition's row after the migration."""
    epoch: int
    seq: int


class MigrationAnswer(WireMessage, tag=56, frozen=True):
    """The destination has committed, or says why it never will."""

    partition: int
    base_version: int
    accepted: bool
    reason: str = ""
