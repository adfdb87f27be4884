"""The partition table that one member has installed, on the master and on all others.

A table is installed only if it comes from this member's master and is newer. A backup that notices that its owner is
gone does nothing until the master's table says so. Single rows can be ahead of the master's table: those of migrations
to this member that the master ordered it to commit (docs/protocol/migrations.md). The master's table follows when the
answer has arrived. What the master does for the table is decided in `coordinator`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.map_config import differences
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import PartitionTable
from phalanx.common.view import ViewId
from phalanx.machine.facts import (
    IncarnationOver,
    MembershipChanged,
    NewTable,
    RestartWaited,
    RowsDoubted,
    TableConfirmed,
)
from phalanx.machine.local_context import LocalContext
from phalanx.machine.routes import Routes, route, route_untimed
from phalanx.partition.doubtful_rows import DoubtfulRows
from phalanx.partition.recovery.claims import positions_in
from phalanx.wire.messages import (
    ActiveMigration,
    CompletedMigration,
    FetchedTable,
    FetchTable,
    MajorityHasTable,
    MigrationAnswer,
    MigrationCommit,
    MigrationOrder,
    OwnerEpoch,
    RestartAwaited,
    StoredSide,
    TableAck,
    TableChanges,
    TableRequest,
    TableUpdate,
)
from phalanx.wire.table_events import MapSettingsDiffer, TableInstalled

UNASKED = 0
"""Instead of the number of a search, in an answer that nobody has asked for."""


class Replicas(Protocol):
    """The replicas that this member holds according to its table."""

    @property
    def table(self) -> PartitionTable:
        """The table that they follow."""
        ...

    def undecided(self) -> tuple[tuple[ActiveMigration, ...], tuple[OwnerEpoch, ...]]:
        """Return the active migrations and the rules (ownership epochs) of the replicas; possibly no table names them yet."""

    def stored(self) -> StoredSide | None:
        """Return what was read from the folder and no cluster has taken up yet; None: nothing."""

    def on_migration_order(self, sender: MemberId, message: MigrationOrder, now: Millis) -> None:
        """Begin or end a migration as owner, as the master of the installed table orders."""

    def refusal_to_commit(self, message: MigrationCommit) -> str | None:
        """Return why this member, the destination of a migration, cannot commit its replica; None: it can."""


class InstalledTable:
    """The installed partition table, and the master that it came from."""

    def __init__(self, local: LocalContext, replicas: Replicas) -> None:
        self._local = local
        self.this = local.this
        self.known_number: Callable[[], int] = lambda: 0
        """Returns what `StoredSide.known_number` is now; the member sets it."""
        self.table = replicas.table
        self.installed_version = 0
        """The version of the installed table of the master; rows that are ahead of it do not count."""
        self.ahead: frozenset[int] = frozenset()
        """Partitions whose row this member has committed and the installed table of the master does not have yet."""
        self.confirmed_by: MemberId | None = None
        """The master that published the installed table or confirmed it; migrations ordered by another are over."""
        self.completed: tuple[CompletedMigration, ...] = ()
        """How the latest migrations ended, according to the master (DL-26)."""
        self._out = local.out
        self._replicas = replicas
        self._master: MemberId | None = None
        self._view = ViewId()
        self._leads = False
        self.restart_wait: RestartWait | None = None
        """For whom the cluster waits, which was switched off; None: it was not, goes on, or the master has not told yet."""
        self._asked_for_table_at: Millis | None = None
        self._doubtful = DoubtfulRows(self.this)
        self._doubted: frozenset[int] = frozenset()
        """Those of which the other machines were told last."""
        self._ask_at: Millis = 0
        """When to ask the master again whether the majority has the table, while answers are held until then."""
        self._validated: PartitionTable | None = None
        """The table that `validate` has looked at last."""
        self._out.tell(self._confirmed())

    def __repr__(self) -> str:
        return f"InstalledTable(version={self.table.version}, confirmed_by={self.confirmed_by})"

    @property
    def is_assigned(self) -> bool:
        return self.table.is_assigned

    def validate(self) -> None:
        """Raise `InvariantViolation` unless what must hold between any two inputs does."""
        table = self.table
        invariant(
            table.version >= self.installed_version, "no row is older than the master's table", installed_table=self
        )
        if table is self._validated:
            return  # a table never changes
        self._validated = table
        what = "the table's version is the sum of its partitions', its plan's and its losses'"
        invariant(table.version == table.version_of_parts, what)
        for partition, row in enumerate(table.rows):
            held = [index for index in row if index >= 0]
            invariant(len(set(held)) == len(held), "no member holds two replicas of a partition", partition=partition)
            invariant(not row or row[0] >= 0, "a partition that anybody holds has an owner", partition=partition)
        for partition in table.dormant:
            is_empty = partition < len(table.rows) and not table.rows[partition]
            invariant(is_empty, "a dormant partition has no owner", partition=partition)

    def routes(self) -> Routes:
        return (
            route(TableUpdate, self.on_table_update),
            route(TableChanges, self.on_table_changes),
            route_untimed(MajorityHasTable, self.on_majority_has_table),
            route(FetchTable, self.on_fetch_table),
            route_untimed(RestartAwaited, self.on_restart_awaited),
            route(MigrationOrder, self.on_migration_order),
            route(MigrationCommit, self.on_migration_commit),
        )

    # --- master ----------------------------------------------------------------------------------------------------

    def on_membership(self, fact: MembershipChanged, now: Millis) -> None:
        """Note the master and the view: from now on, only tables of this master count.

        A table for a newer view than this one is ignored; the master repeats it.
        """
        if fact.master != self._master:
            self.note_restart_wait(None)
        self._master, self._leads, self._view = fact.master, fact.leads, fact.view.id

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Follow no master any more."""
        self._master, self._leads, self._view = None, False, ViewId()

    # --- for the other machines of this member ---------------------------------------------------------------------

    def _confirmed(self) -> TableConfirmed:
        return TableConfirmed(self.table, self.installed_version, self.ahead, self.confirmed_by, self.completed)

    def _set_ahead(self, partitions: frozenset[int]) -> None:
        if partitions != self.ahead:
            self._doubtful.confirm(self.ahead - partitions, self.table, self.installed_version)
            self._tell_doubted()
            self.ahead = partitions
            self._out.tell(self._confirmed())

    def note_majority(self, version: int | None) -> None:
        """Note which version of the master's table the majority has; None: nobody waits for it."""
        if version != self._doubtful.majority_version and self._local.has_folder:
            self._doubtful.note_majority(version, self.table, self.installed_version)
            self._tell_doubted()

    def _tell_doubted(self) -> None:
        partitions = self._doubtful.partitions
        if partitions != self._doubted:
            self._doubted = partitions
            self._out.tell(RowsDoubted(partitions))

    # --- on the master ---------------------------------------------------------------------------------------------

    def lead(self, completed: tuple[CompletedMigration, ...], table: PartitionTable) -> None:
        """Install the table that this new master's search has found; no row is ahead of it."""
        self.note_restart_wait(None)
        self.confirmed_by, self.completed = self.this, completed
        if table.version > self.table.version:
            self.install(table, table.version)
        self.installed_version, self.ahead = self.table.version, frozenset()
        self._out.tell(self._confirmed())

    def note_completed(self, completed: tuple[CompletedMigration, ...]) -> None:
        """Note how the latest migrations ended; the table was changed accordingly."""
        self.completed = completed
        self._out.tell(self._confirmed())

    # --- tables of the master --------------------------------------------------------------------------------------

    def on_table_update(self, sender: MemberId, message: TableUpdate, now: Millis) -> None:
        """Install the whole table if it comes from this member's master, and acknowledge it."""
        if not self._is_for_this_member(sender, message):
            return
        self._local.observe_clock(message.clock, now)  # who owns partitions by this table gives greater stamps
        self.note_majority(message.majority_version)
        self.completed = message.completed
        if sender != self.confirmed_by:
            self.confirmed_by = sender
            self._out.tell(self._confirmed())
        if message.table.version > self.installed_version:
            # Partitions are divided only when no migration is under way: the master knew every committed row by then.
            is_divided = message.table.partition_count != self.table.partition_count
            is_ahead = self.table.version > self.installed_version and not is_divided
            ahead = self.table.newer_rows(message.table) if is_ahead else {}
            table = message.table.with_rows(ahead) if ahead else message.table
            # The newer row of each partition wins. If the version is the same, this member has that table already.
            self.install(table if table.version > self.table.version else self.table, message.table.version)
            self._keep_ahead(ahead)
        elif not self.table.version and message.table != self.table:
            # Both tables assign nothing, but their map settings can differ. The next changes apply to the table here:
            # with its own settings this member would serve a map that the others protect.
            self.install(message.table, 0)
        self._acknowledge(sender, now)

    def on_table_changes(self, sender: MemberId, message: TableChanges, now: Millis) -> None:
        """Apply the changes since `message.from_version`; if this member's table is older, ask for the whole table."""
        if not self._is_for_this_member(sender, message):
            return
        self.note_majority(message.majority_version)
        is_behind = self.confirmed_by != sender or message.from_version > self.installed_version
        if not is_behind and message.version > self.installed_version:
            versions = self.table.versions
            rows = {
                change.partition: change.row
                for change in message.changes
                if change.version > versions[change.partition]
            }
            self.completed = message.completed
            self.install(self.table.with_rows(rows) if rows else self.table, message.version)
            changed = {change.partition: change.version for change in message.changes}
            self._keep_ahead([p for p in self.ahead if changed.get(p, -1) < versions[p]])
        self._acknowledge(sender, now, is_behind=is_behind)

    def _acknowledge(self, master: MemberId, now: Millis, *, is_behind: bool = False) -> None:
        holds_answers, self._ask_at = bool(self._doubted), now + self._local.config.retry_interval_ms
        self._out.send(master, TableAck(self.installed_version, is_behind, *self.dormant_here(), holds_answers))

    def on_majority_has_table(self, sender: MemberId, message: MajorityHasTable) -> None:
        """Note what the master says that has confirmed the installed table."""
        if sender == self._master == self.confirmed_by and not self._leads:
            self.note_majority(message.version)

    def next_deadline(self) -> Millis | None:
        """Return when to ask again whether the majority has the table: the master's word can be lost."""
        has_word = not self._doubted or self._leads or self._master is None or self._master != self.confirmed_by
        return None if has_word else self._ask_at

    def on_time(self, now: Millis) -> None:
        """Ask the master again, if that is due."""
        deadline = self.next_deadline()
        if deadline is not None and now >= deadline and self._master is not None:
            self._acknowledge(self._master, now)

    def dormant_here(self) -> tuple[tuple[MemberId, ...], tuple[OwnerEpoch, ...], bool]:
        """Return which incarnations have written this member's folder, what it has of dormant partitions, and whether it was written
        without the majority in the end."""
        stored, dormant = self._replicas.stored(), self.table.dormant
        if stored is None or not dormant:
            return (), (), False
        positions = positions_in(stored, self.table.partition_count)
        of_dormant = tuple(positions[each] for each in sorted(dormant) if each in positions)
        return stored.formers, of_dormant, stored.lacks_majority

    def _is_for_this_member(self, sender: MemberId, message: TableUpdate | TableChanges) -> bool:
        is_from_master = sender == self._master and not self._leads
        if is_from_master:
            self.note_restart_wait(None)  # a master that waits publishes nothing
        return is_from_master and message.view.may_be_known_by(self._view)

    def _keep_ahead(self, partitions: Collection[int]) -> None:
        """Keep only these partitions in `ahead`: the master's table has the other rows now."""
        self._set_ahead(self.ahead & frozenset(partitions))

    def on_restart_awaited(self, sender: MemberId, message: RestartAwaited) -> None:
        """Note for whom the master waits: this member can be asked, too."""
        if sender == self._master and not self._leads:
            self.note_restart_wait(message.wait)

    def note_restart_wait(self, wait: RestartWait | None) -> None:
        """Note for whom the cluster waits; None: for nobody any more."""
        if wait != self.restart_wait:
            self.restart_wait = wait
            self._out.tell(RestartWaited(wait))

    def on_fetch_table(self, sender: MemberId, message: FetchTable, now: Millis) -> None:
        """Answer only the master that this member follows: the answer promises to ignore tables of older masters."""
        if sender == self._master:
            self._out.send(sender, self.answer_search(message.search_id, now))

    def answer_search(self, search_id: int, now: Millis) -> FetchedTable:
        """Return what a new master needs from this member to find the most recent table."""
        replicas, stored = self._replicas, self._replicas.stored()
        if stored is not None:
            stored = msgspec.structs.replace(stored, known_number=self.known_number())
        clock = self._local.read_clock(now)
        return FetchedTable(search_id, self.table, self.completed, *replicas.undecided(), stored, clock)

    # --- orders of the master --------------------------------------------------------------------------------------

    def on_migration_order(self, sender: MemberId, message: MigrationOrder, now: Millis) -> None:
        """Pass on the order, if it comes from the master whose table is installed."""
        if sender == self._master == self.confirmed_by:
            self._replicas.on_migration_order(sender, message, now)

    def on_migration_commit(self, sender: MemberId, message: MigrationCommit, now: Millis) -> None:
        """Commit a migration to this member if the table and the replica are in the state that the master expects."""
        refusal = self.refusal_to_commit(sender, message) or self._replicas.refusal_to_commit(message)
        if refusal is None:
            self.commit(message)
        answer = MigrationAnswer(message.partition, message.base_version, refusal is None, refusal or "")
        self._out.send(sender, answer)

    def refusal_to_commit(self, sender: MemberId, message: MigrationCommit) -> str | None:
        """Return why the table does not allow the commit of a migration to this member (DL-27); None: it does."""
        if sender != self._master or sender != self.confirmed_by:
            return "it does not come from the master whose table is installed"
        if message.partition >= self.table.partition_count:
            return "this member has yet to hear of so many partitions"
        version = self.table.versions[message.partition]
        if version == message.row.version and self.table.slots(message.partition) == message.row.slots:
            return None
        if version != message.base_version or message.row.version != message.base_version + 1:
            return f"the partition has version {version} here, not {message.base_version}"
        return None

    def commit(self, message: MigrationCommit) -> None:
        """Install the row of a migration to this member, ahead of the master's table."""
        row = message.row
        if self.table.versions[row.partition] < row.version and not self._leads:
            self.install(self.table.with_rows({row.partition: row.row}), self.installed_version)
            self._set_ahead(self.ahead | {row.partition})

    def ask_for_table(self, now: Millis) -> None:
        """Ask the master for a first assignment, at most once per retry interval, because a caller wants to use the data.

        A member with a folder that no cluster has taken up tells the master so instead: it can have what the others lack.
        """
        if self._master is None or self._leads:
            return
        if self._asked_for_table_at is None or now - self._asked_for_table_at >= self._local.config.retry_interval_ms:
            self._asked_for_table_at = now
            has_stored = self._replicas.stored() is not None
            self._out.send(self._master, self.answer_search(UNASKED, now) if has_stored else TableRequest())

    def install(self, table: PartitionTable, installed_version: int) -> None:
        """Install this table. `installed_version`: the version of the master's table that it is based on."""
        invariant(table.version >= self.table.version, "tables only move on", old=self.table.version, new=table.version)
        changed = table is not self.table
        is_first = changed and not self.table.version and not self._leads
        if is_first and (unlike := differences(self.table.maps, table.maps)):
            self._out.record(MapSettingsDiffer(tuple(unlike)))
        is_confirmed_anew = changed or installed_version != self.installed_version
        if changed:
            self._doubtful.follow(self.table, table, installed_version)
            self._tell_doubted()
        self.table, self.installed_version = table, installed_version
        if is_confirmed_anew:
            self._out.tell(self._confirmed())
        if not changed:
            return
        self._out.tell(NewTable(table))
        if not table.version:
            return
        mine = table.members.index(self.this) if self.this in table.members else -2
        held = [row[0] == mine for row in table.rows if mine in row]
        self._out.record(TableInstalled(table.version, sum(held), len(held) - sum(held)))
