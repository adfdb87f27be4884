"""On the master: which member has which table, and what the next publication contains.

What only the master knows is lost when it dies. So a leaving member can go, and a completed migration is forgotten
(DL-25), only when every member has acknowledged a table that is at least as new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import CompletedMigration, RowChange, TableChanges, TableUpdate

COALESCE_PUBLICATIONS_MS = 10
"""Commits within this time share one publication, if they move no ownership."""


class TablePublication:
    """The master's publications since it began to lead."""

    def __init__(self, interval_ms: Millis, retry_ms: Millis, outbox: Outbox) -> None:
        self._interval_ms = interval_ms
        self._retry_ms = retry_ms
        self._out = outbox
        self.due_at: Millis | None = None
        """When pending changes are published; None: there are none."""
        self._next_at = 0
        """When the table is published even if nothing has changed (DL-04)."""
        self._changed: dict[int, None] = {}
        """Partitions that have changed since the last publication."""
        self._published = -1
        """The last published version."""
        self._published_at = 0
        self.confirmed: dict[MemberId, int] = {}
        """Member to the newest table version that it has acknowledged."""
        self.view = ViewId()
        """The view for which the table is made."""
        self.completed: dict[tuple[int, int], tuple[CompletedMigration, int]] = {}
        """Partition and base version to the outcome of that migration, and the first table version with it."""

    def __repr__(self) -> str:
        return f"TablePublication({self._published}, unpublished={list(self._changed)}, confirmed={self.confirmed})"

    def begin(self, completed: Iterable[CompletedMigration], version: int) -> None:
        """Begin with the outcomes and the table version that the new master's search found."""
        self.completed = {(c.partition, c.base_version): (c, version) for c in completed}
        self._changed.clear()
        self._published = -1

    @property
    def outcomes(self) -> tuple[CompletedMigration, ...]:
        """Return how the latest migrations ended."""
        return tuple(outcome for outcome, _ in self.completed.values())

    @property
    def unpublished(self) -> Collection[int]:
        """Return the partitions whose latest change is not published: their owners could not follow an order yet."""
        return self._changed.keys()

    def note_change(self, partitions: Iterable[int], now: Millis, *, at_once: bool) -> None:
        """Note that rows of the table have changed; `at_once`: publish without a pause."""
        self._changed.update(dict.fromkeys(partitions))
        due_at = now if at_once else now + COALESCE_PUBLICATIONS_MS
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)

    def note_all_changed(self, now: Millis) -> None:
        """Note that more than rows has changed: the next publication sends the whole table."""
        self._published = -1
        self.due_at = now

    def note_completed(self, outcome: CompletedMigration, version: int) -> None:
        """Note the outcome of a migration, which the table of this version contains."""
        self.completed[outcome.partition, outcome.base_version] = outcome, version

    def is_due(self, now: Millis) -> bool:
        return now >= self._next_at or (self.due_at is not None and now >= self.due_at)

    def next_deadline(self) -> Millis:
        return self._next_at if self.due_at is None else min(self._next_at, self.due_at)

    def publish(self, table: PartitionTable, members: Collection[MemberId], now: Millis) -> None:
        """Publish the table: the changes to members that have the previous version, the whole table to others."""
        completed = self.outcomes
        message: TableUpdate | TableChanges
        if now >= self._next_at or self._published < 0:
            message = TableUpdate(table, completed, self.view)
        else:
            rows = tuple(
                RowChange(partition, table.versions[partition], table.births[partition], table.slots(partition))
                for partition in self._changed
            )
            message = TableChanges(self._published, table.version, rows, completed, self.view)
        self.due_at = None
        self._changed.clear()
        self._next_at = now + self._interval_ms
        self._published, self._published_at = table.version, now
        for member in members:
            self._out.send(member, message)

    def tell_all(self, member: MemberId, table: PartitionTable) -> None:
        """Send the whole table to a member that misses something."""
        self._out.send(member, TableUpdate(table, self.outcomes, self.view))

    def on_confirmation(self, member: MemberId, version: int, table: PartitionTable, now: Millis) -> bool:
        """Note which version a member has; repeat a publication that it missed. Return True if the member is new."""
        is_new = self.note_confirmed(member, version)
        # What was published a moment ago is still on its way.
        if version < self._published and (is_new or now >= self._published_at + self._retry_ms):
            self.tell_all(member, table)
        return is_new

    def note_confirmed(self, member: MemberId, version: int) -> bool:
        """Note which version a member has. Return True if it is heard for the first time."""
        is_new = member not in self.confirmed
        self.confirmed[member] = max(version, self.confirmed.get(member, -1))
        return is_new

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Forget the acknowledgements of all other members: they have left."""
        self.confirmed = {m: version for m, version in self.confirmed.items() if m in members}

    def forget_members(self) -> None:
        """Forget all acknowledgements: a new master has heard no member yet."""
        self.keep_only(())

    def evict(self, members: Iterable[MemberId]) -> None:
        """Forget completed migrations that all of the members know."""
        if self.completed:
            known = min((self.confirmed.get(member, -1) for member in members), default=None)
            self.completed = {
                key: (outcome, version)
                for key, (outcome, version) in self.completed.items()
                if known is not None and version > known
            }

    def have(self, members: Iterable[MemberId], version: int) -> bool:
        """Return whether all of the members have acknowledged this table version or a newer one."""
        return all(self.confirmed.get(member, -1) >= version for member in members)

    def is_known_to(self, members: Iterable[MemberId], version: int) -> bool:
        """Return whether all of the members have said that they have this table."""
        return not self._changed and all(self.confirmed.get(member, -1) >= version for member in members)
