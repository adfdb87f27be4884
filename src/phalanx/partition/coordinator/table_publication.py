"""On the master: who has been told of which table, and what the next publication says.

What only the master knows is lost with it. So everything that gives replicas away waits until the others have the
table: a leaving member is let go, and a completed migration is forgotten (DL-25), only when every member has
acknowledged a table that is as new.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import CompletedMigration, RowChange, TableChanges, TableUpdate

COALESCE_PUBLICATIONS_MS = 10
"""Commits that move no ownership and come within this time share one publication."""


class TablePublication:
    """The master's publications, from the table that it begins with."""

    def __init__(self, interval_ms: Millis, retry_ms: Millis, outbox: Outbox) -> None:
        self._interval_ms = interval_ms
        self._retry_ms = retry_ms
        self._out = outbox
        self.due_at: Millis | None = None
        """When changes that wait are published; None: all are."""
        self._next_at = 0
        """When the table is published although nothing has changed (DL-04)."""
        self._changed: dict[int, None] = {}
        """Partitions that have changed since the last publication."""
        self._published = -1
        """The version that was published last."""
        self._published_at = 0
        self.confirmed: dict[MemberId, int] = {}
        """The newest table that each member has said to have."""
        self.view = ViewId()
        """For which the table is made."""
        self.completed: dict[tuple[int, int], tuple[CompletedMigration, int]] = {}
        """Partition and base version to how that migration ended, and the table's version that told it first."""

    def __repr__(self) -> str:
        return f"TablePublication({self._published}, unpublished={list(self._changed)}, confirmed={self.confirmed})"

    def begin(self, completed: Iterable[CompletedMigration], version: int) -> None:
        """A new master begins with what it has found."""
        self.completed = {(c.partition, c.base_version): (c, version) for c in completed}
        self._changed.clear()
        self._published = -1

    @property
    def outcomes(self) -> tuple[CompletedMigration, ...]:
        """Return how the latest migrations ended."""
        return tuple(outcome for outcome, _ in self.completed.values())

    @property
    def unpublished(self) -> Collection[int]:
        """Partitions whose latest change waits: their owners would not know an order for it yet."""
        return self._changed.keys()

    def note_change(self, partitions: Iterable[int], now: Millis, *, at_once: bool) -> None:
        """Rows of the table have changed."""
        self._changed.update(dict.fromkeys(partitions))
        due_at = now if at_once else now + COALESCE_PUBLICATIONS_MS
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)

    def note_all_changed(self, now: Millis) -> None:
        """More has changed than rows: the next publication says all."""
        self._published = -1
        self.due_at = now

    def note_completed(self, outcome: CompletedMigration, version: int) -> None:
        """A migration has ended, and the table of this version tells so."""
        self.completed[outcome.partition, outcome.base_version] = outcome, version

    def is_due(self, now: Millis) -> bool:
        return now >= self._next_at or (self.due_at is not None and now >= self.due_at)

    def next_deadline(self) -> Millis:
        return self._next_at if self.due_at is None else min(self._next_at, self.due_at)

    def publish(self, table: PartitionTable, members: Collection[MemberId], now: Millis) -> None:
        """Tell the members: the changes to those that had the table before, else all of it."""
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
        """Give the whole table to one that misses something."""
        self._out.send(member, TableUpdate(table, self.outcomes, self.view))

    def on_confirmation(self, member: MemberId, version: int, table: PartitionTable, now: Millis) -> bool:
        """Note which version a member has, and repeat a publication that it missed. True: the member is new here."""
        is_new = self.note_confirmed(member, version)
        # What was published a moment ago is still on its way.
        if version < self._published and (is_new or now >= self._published_at + self._retry_ms):
            self.tell_all(member, table)
        return is_new

    def note_confirmed(self, member: MemberId, version: int) -> bool:
        """A member has said which table it has; True if it has never said anything before."""
        is_new = member not in self.confirmed
        self.confirmed[member] = max(version, self.confirmed.get(member, -1))
        return is_new

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Others have left: what they have said does not count."""
        self.confirmed = {m: version for m, version in self.confirmed.items() if m in members}

    def forget_members(self) -> None:
        """A new master has heard nobody yet."""
        self.keep_only(())

    def evict(self, members: Iterable[MemberId]) -> None:
        """Forget completed migrations that all of the members were told of."""
        if self.completed:
            known = min((self.confirmed.get(member, -1) for member in members), default=None)
            self.completed = {
                key: (outcome, version)
                for key, (outcome, version) in self.completed.items()
                if known is not None and version > known
            }

    def have(self, members: Iterable[MemberId], version: int) -> bool:
        """Whether all of the members have said that they have this table, or a newer one."""
        return all(self.confirmed.get(member, -1) >= version for member in members)

    def is_known_to(self, members: Iterable[MemberId], version: int) -> bool:
        """Whether all of the members have said that they have this table."""
        return not self._changed and all(self.confirmed.get(member, -1) >= version for member in members)
