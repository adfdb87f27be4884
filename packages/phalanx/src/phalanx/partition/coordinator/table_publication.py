"""On the master: change the table, publish the changes, and know which member has which version.

What only the master knows is lost when it dies. So a leaving member can go, and a completed migration is forgotten
(DL-25), only when every member has acknowledged a table that is at least as new.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.losses import LossBook
from phalanx.common.table import NONE_DORMANT, PartitionTable, Slots
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.partition.coordinator.majority_version import MajorityVersion
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.migration_phases import MigrationOutcome
from phalanx.wire.messages import CompletedMigration, TableAck, TableChanges, TableUpdate
from phalanx.wire.table_messages import change_of

COALESCE_PUBLICATIONS_MS = 10
"""Commits within this time share one publication, if they move no ownership."""


class LostRows(NamedTuple):
    """Of the changes of rows: what nobody serves any more."""

    lost: Collection[int] = ()
    """Partitions that begin empty."""
    dormant: Mapping[int, Slots] = NONE_DORMANT
    """Partitions that wait for their holders, and who these are."""
    losses: LossBook | None = None
    """The book of losses from now on; None: as before."""


NOTHING_LOST = LostRows()


class TablePublication:
    """The master's table, and its publications since it began to lead."""

    def __init__(
        self,
        local: LocalContext,
        installed_table: InstalledTable,
        is_majority: Callable[[Collection[MemberId]], bool | None] = lambda members: None,
    ) -> None:
        """`is_majority`: as `QuorumState.is_majority`."""
        self.this = local.this
        self._interval_ms = local.config.publish_interval_ms
        self._retry_ms = local.config.retry_interval_ms
        self._local = local
        self._out = local.out
        self._installed = installed_table
        self.view: MembersView | None = None
        """The view for which the table is made."""
        self.is_open = False
        """Whether this member can change the table now: it is the master, and its search is over."""
        self.due_at: Millis | None = None
        """When pending changes are published; None: there are none."""
        self._next_at = 0
        """When the table is published even if nothing has changed (DL-04)."""
        self._changed: dict[int, None] = {}
        """Partitions that have changed since the last publication."""
        self._published = -1
        """The last published version."""
        self._published_at = 0
        self._majority = MajorityVersion(local, installed_table, is_majority)
        self.confirmed: dict[MemberId, int] = {}
        """Member to the newest table version that it has acknowledged."""
        self.completed: dict[tuple[int, int], tuple[CompletedMigration, int]] = {}
        """Partition and base version to the outcome of that migration, and the first table version with it."""

    def __repr__(self) -> str:
        return f"TablePublication({self._published}, unpublished={list(self._changed)}, confirmed={self.confirmed})"

    @property
    def table(self) -> PartitionTable:
        """Return the present table."""
        return self._installed.table

    def joined(self) -> MembersView:
        """Return the view, which must exist."""
        invariant(self.view is not None, "this member has joined")
        return self.view  # type: ignore[return-value]  # held by the invariant

    @property
    def others(self) -> tuple[MemberId, ...]:
        """Return the other members of the view."""
        return self.joined().others(self.this)

    def begin(self, completed: Iterable[CompletedMigration]) -> None:
        """Begin to lead with the installed table and these outcomes: the new master's search found both."""
        self.completed = {(c.partition, c.base_version): (c, self.table.version) for c in completed}
        self._changed.clear()
        self._published = -1
        self.is_open = True
        self._majority.begin()

    # --- changes ---------------------------------------------------------------------------------------------------

    def change(self, table: PartitionTable, now: Millis) -> None:
        """Install a table in which more than rows is another: the next publication sends all of it."""
        self._install(table)
        self._note_all_changed(now)

    def change_rows(
        self,
        changes: Mapping[int, Slots],
        now: Millis,
        *,
        at_once: bool,
        increments: Mapping[int, int] | None = None,
        lost: LostRows = NOTHING_LOST,
    ) -> None:
        """Give partitions other replicas. `at_once`: publish without a pause; the rest: as for `PartitionTable.with_changes`."""
        before = self.table
        self._install(
            before.with_changes(
                changes, increments=increments, lost=lost.lost, dormant=lost.dormant, losses=lost.losses
            )
        )
        if self.table.losses is not before.losses:
            self._note_all_changed(now)
        self._changed.update(dict.fromkeys(changes))
        due_at = now if at_once else now + COALESCE_PUBLICATIONS_MS
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)

    def _install(self, table: PartitionTable) -> None:
        invariant(self.is_open, "only the master changes the partition table (DL-04)", publication=self)
        self._installed.install(table, table.version)
        self.review_majority()

    def review_majority(self) -> None:
        """Find out which version the majority has, and tell those that wait for it."""
        if self.is_open and self._majority.review(self.table.version, self.confirmed):
            self._published, self.due_at = -1, 0  # those that waited for nobody must hear that they do

    def _note_all_changed(self, now: Millis) -> None:
        self._published = -1
        self.due_at = now

    def note_completed(self, outcome: MigrationOutcome) -> None:
        """Note the outcome of a migration, which the table contains."""
        underway, is_committed = outcome.underway, outcome.row is not None
        key = underway.partition, underway.base_version
        self.completed[key] = CompletedMigration(*key, underway.migration, is_committed), self.table.version
        self._installed.note_completed(self.outcomes)

    # --- publications ----------------------------------------------------------------------------------------------

    @property
    def outcomes(self) -> tuple[CompletedMigration, ...]:
        """Return how the latest migrations ended."""
        return tuple(outcome for outcome, _ in self.completed.values())

    @property
    def unpublished(self) -> Collection[int]:
        """Return the partitions whose latest change is not published: their owners could not follow an order yet."""
        return self._changed.keys()

    def is_due(self, now: Millis) -> bool:
        return now >= self._next_at or (self.due_at is not None and now >= self.due_at)

    def next_deadline(self) -> Millis:
        return self._next_at if self.due_at is None else min(self._next_at, self.due_at)

    def publish_if_due(self, now: Millis) -> None:
        """Publish the table if that is due."""
        if self.is_due(now):
            self.publish(now)

    def publish(self, now: Millis) -> None:
        """Publish the table: the changes to members that have the previous version, the whole table to others."""
        table = self.table
        message: TableUpdate | TableChanges
        if now >= self._next_at or self._published < 0:
            message = self._whole(now)
        else:
            rows = tuple(change_of(partition, table.row(partition)) for partition in self._changed)
            majority = self._majority.version
            message = TableChanges(self._published, table.version, rows, self.outcomes, self.joined().id, majority)
        self.due_at = None
        self._changed.clear()
        self._next_at = now + self._interval_ms
        self._published, self._published_at = table.version, now
        for member in self.others:
            self._out.send(member, message)

    def tell_all(self, member: MemberId, now: Millis) -> None:
        """Send the whole table to a member that misses something."""
        self._out.send(member, self._whole(now))

    def _whole(self, now: Millis) -> TableUpdate:
        view, clock = self.joined().id, self._local.read_clock(now)
        return TableUpdate(self.table, self.outcomes, view, clock, self._majority.version)

    # --- which member has which version ----------------------------------------------------------------------------

    def on_confirmation(self, member: MemberId, version: int, now: Millis) -> bool:
        """Note which version a member has; repeat a publication that it missed. Return True if the member is new."""
        is_new = self.note_confirmed(member, version)
        # What was published a moment ago is still on its way.
        if version < self._published and (is_new or now >= self._published_at + self._retry_ms):
            self.tell_all(member, now)
        return is_new

    def on_ack(self, member: MemberId, message: TableAck, now: Millis) -> bool:
        """Note which version a member has; send it what it lacks. Return True if the member is new."""
        is_new = self.note_confirmed(member, message.version)
        self._majority.on_ack(member, message)
        if message.is_behind:
            self.tell_all(member, now)
        self._evict()
        return is_new

    def note_confirmed(self, member: MemberId, version: int) -> bool:
        """Note which version a member has. Return True if it is heard for the first time."""
        is_new, before = member not in self.confirmed, self.confirmed.get(member, -1)
        if is_new or version > before:
            self.confirmed[member] = max(version, before)
            self.review_majority()
        return is_new

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Forget the acknowledgements of all other members: they have left."""
        self.confirmed = {m: version for m, version in self.confirmed.items() if m in members}
        self._majority.keep_only(members)

    def forget_members(self) -> None:
        """Forget all acknowledgements: a new master has heard no member yet."""
        self.keep_only(())

    def _evict(self) -> None:
        """Forget completed migrations that all members know."""
        if self.completed:
            known = min((self.confirmed.get(member, -1) for member in self.others), default=None)
            self.completed = {
                key: (outcome, version)
                for key, (outcome, version) in self.completed.items()
                if known is not None and version > known
            }

    def all_have(self, version: int) -> bool:
        """Return whether all other members have acknowledged this table version or a newer one."""
        return all(self.confirmed.get(member, -1) >= version for member in self.others)

    def is_known_to(self, members: Iterable[MemberId]) -> bool:
        """Return whether all of the members have said that they have the present table."""
        return not self._changed and all(self.confirmed.get(member, -1) >= self.table.version for member in members)

    def without_table(self) -> list[MemberId]:
        """Return the members that have not acknowledged the present table."""
        others = self.others if self.is_open and self.table.is_assigned else ()
        return [member for member in others if not self.is_known_to([member])]
