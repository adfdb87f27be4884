"""The partition table at one member, and the master's duties for it.

Everywhere: a table is installed only from this member's master and only if it is newer. A backup that notices that
its owner is gone does nothing until the master's table says so.

On the master, in this order: after a change of master, search for the most recent table; take members that left out
of it (backups take over, rows without survivors get a new owner); publish; order copies for what is missing. The first
assignment waits until somebody wants to use the data, so that members started together share it evenly.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.table import PartitionTable, Replicas, unassigned_table
from phalanx.common.view import MembersView
from phalanx.partition.assignment import assign
from phalanx.partition.redundancy import Redundancy
from phalanx.partition.repair import Repair, repair
from phalanx.partition.table_search import TableSearch
from phalanx.wire import events
from phalanx.wire.effects import Outbox
from phalanx.wire.messages import CopyReport, FetchedTable, FetchTable, TableAck, TableRequest, TableUpdate

COALESCE_PUBLICATIONS_MS = 20
"""Commits of copies that come within this time share one publication; a change of owners goes out at once."""


class PartitionKeeper:
    """The installed partition table, and on the master what is being done about it."""

    def __init__(self, this: MemberId, config: NodeConfig, outbox: Outbox) -> None:
        self.this = this
        self.table = unassigned_table(config.partition_count)
        self.confirmed_by: MemberId | None = None
        """The master that published the installed table or confirmed it; copies ordered by another one are over."""
        self._config = config
        self._out = outbox
        self._view: MembersView | None = None
        self._master: MemberId | None = None
        self.has_started = True
        """Set by the node: False while the cluster has never had the members that it is to wait for."""
        self._leads = False
        self._leaving: Collection[MemberId] = ()
        self._search: TableSearch | None = None
        self._searches_made = 0
        self._redundancy = Redundancy(config, outbox)
        self._publish_at: Millis | None = None
        self._unpublished: set[int] = set()
        """Partitions whose latest change waits for the next publication: their owners would not know an order for it."""
        self._next_publication = 0
        self._confirmed: dict[MemberId, int] = {}
        """On the master: the newest table of which a member has said that it has it."""
        self._looked_at: PartitionTable | None = None
        """On the master: the table that was last searched for what is missing, which takes a look at every partition."""
        self._asked_for_table_at: Millis | None = None

    def __repr__(self) -> str:
        copies = list(self._redundancy.copies.values())
        return f"PartitionKeeper(version={self.table.version}, search={self._search}, copies={copies})"

    @property
    def decides(self) -> bool:
        """Whether this member may change the table now: master, and its search is over."""
        return self._leads and self._search is None

    @property
    def is_assigned(self) -> bool:
        return self.table.version > 0

    @property
    def confirmed_version(self) -> int:
        """The version of the installed table; -1 where this member's master has not confirmed it yet."""
        return self.table.version if self.confirmed_by == self._master else -1

    def validate(self) -> None:
        """What must hold between any two inputs."""
        table = self.table
        invariant(table.version == sum(table.versions), "the table's version is the sum of its partitions'")
        for partition, row in enumerate(table.rows):
            invariant(len(set(row)) == len(row), "no member holds two replicas of a partition", partition=partition)

    # --- every member ----------------------------------------------------------------------------------------------

    def on_membership(
        self, view: MembersView, master: MemberId | None, leads: bool, leaving: Collection[MemberId], now: Millis
    ) -> None:
        """The view, the master or the set of leaving members changed."""
        became_master = leads and not self._leads
        self._view, self._master, self._leads, self._leaving = view, master, leads, leaving
        if not leads:
            self._search = None
            self._publish_at = None
            self._redundancy.forget_all()
            return
        if became_master:
            self._confirmed.clear()
        else:
            members = frozenset(view.members)
            self._confirmed = {m: version for m, version in self._confirmed.items() if m in members}
        if became_master:
            self._redundancy.forget_all()
            self._start_search(view, now)
        elif self._search is not None:
            self._search.on_view(view)
        self._end_search_if_over(now)
        if self.decides:
            self._repair(now)
            self._order_missing(now)

    def on_table_update(self, sender: MemberId, message: TableUpdate) -> None:
        if sender != self._master or self._leads:
            return
        self.confirmed_by = sender
        if message.table.version > self.table.version:
            self._install(message.table)
        self._out.send(sender, TableAck(self.table.version))

    def on_fetch_table(self, sender: MemberId, message: FetchTable) -> None:
        """Only the master that this member follows is told: the answer promises to take no older master's table."""
        if sender == self._master:
            self._out.send(sender, FetchedTable(message.search_id, self.table))

    def want_table(self, now: Millis) -> None:
        """Somebody wants to use the data and there is no assignment yet."""
        if self.is_assigned or self._master is None:
            return
        if self._leads:
            self._assign_first(now)
        elif self._asked_for_table_at is None or now - self._asked_for_table_at >= self._config.retry_interval_ms:
            self._asked_for_table_at = now
            self._out.send(self._master, TableRequest())

    # --- the master ------------------------------------------------------------------------------------------------

    def on_table_request(self, sender: MemberId, now: Millis) -> None:
        if self.decides:
            self._assign_first(now)
            self._out.send(sender, TableUpdate(self.table))

    def on_fetched_table(self, sender: MemberId, message: FetchedTable, now: Millis) -> None:
        if self._search is not None:
            self._search.on_answer(sender, message)
            self._confirmed[sender] = message.table.version
            self._end_search_if_over(now)
            if self.decides:
                self._repair(now)
                self._order_missing(now)

    def on_copy_report(self, sender: MemberId, message: CopyReport, now: Millis) -> None:
        if not self.decides:
            return
        replicas = self._redundancy.on_report(sender, message, self.table, now)
        if replicas is not None:
            self._change({message.partition: replicas}, now, COALESCE_PUBLICATIONS_MS)
        self._order_missing(now)

    def on_confirmation(self, sender: MemberId, table_version: int, now: Millis) -> None:
        """A member that missed a table gets the present one; one that speaks for the first time can be given replicas."""
        if self.decides:
            is_new = sender not in self._confirmed
            self._confirmed[sender] = max(table_version, self._confirmed.get(sender, -1))
            if table_version < self.table.version:
                self._out.send(sender, TableUpdate(self.table))
            if is_new:
                self._order_missing(now)

    def on_table_ack(self, sender: MemberId, message: TableAck, now: Millis) -> None:
        """A member has the table; what only this master knows would be lost with it."""
        if self.decides:
            self._confirmed[sender] = max(message.version, self._confirmed.get(sender, -1))
            if self._redundancy.degraded_since is not None and self._is_known_to_all():
                self._order_missing(now)

    def may_leave(self) -> list[MemberId]:
        """Leaving members whose replicas all have enough others, as all that stay know: nothing is lost when they go."""
        view = self._joined()
        if not self.decides or not self._is_known_to_all():
            return []
        leaving = set(self._leaving)
        return [m for m in self._leaving if not self._redundancy.still_needed(m, self.table, view, leaving)]

    def replicas_to_hand_over(self, member: MemberId) -> int:
        return self._redundancy.still_needed(member, self.table, self._joined(), set(self._leaving) | {member})

    def end(self) -> None:
        """This incarnation is over: it follows nobody and decides nothing."""
        self._master = None
        self._leads = False
        self._search = None
        self._publish_at = None
        self._redundancy.forget_all()

    def next_deadline(self) -> Millis | None:
        if not self._leads:
            return None
        if self._search is not None:
            return self._search.next_deadline()
        deadline = self._next_publication
        for other in (self._publish_at, self._redundancy.next_deadline()):
            if other is not None and other < deadline:
                deadline = other
        return deadline

    def on_time(self, now: Millis) -> None:
        if self._search is not None:
            self._search.ask(now)
        if not self.decides:
            return
        if (self._publish_at is not None and now >= self._publish_at) or now >= self._next_publication:
            self._publish(now)
        if self._redundancy.is_busy or self._looked_at is not self.table:
            self._order_missing(now)

    def _start_search(self, view: MembersView, now: Millis) -> None:
        self._searches_made += 1
        own, retry_ms = self.table, self._config.retry_interval_ms
        self._search = TableSearch(self._searches_made, self.this, own, view, retry_ms, self._out)
        if self._search.waiting_for:
            self._out.record(events.TableSearchStarted(tuple(self._search.waiting_for)))
        self._search.ask(now)

    def _end_search_if_over(self, now: Millis) -> None:
        if self._search is None or not self._search.is_over():
            return
        found_at, table = self._search.result()
        self._search = None
        self._out.record(events.TableSearchEnded(found_at, table.version))
        self.confirmed_by = self.this
        if table.version > self.table.version:
            self._install(table)
        self._publish(now)

    def _assign_first(self, now: Millis) -> None:
        if self.is_assigned or not self.decides or not self.has_started:
            return
        members = [member for member in self._joined().members if member not in self._leaving]
        if not members:
            return
        rows = assign([()] * self.table.partition_count, members, self._config.backup_count)
        self._change(dict(enumerate(rows)), now, 0)
        self._out.record(events.PartitionsAssigned(self.table.version, len(rows), tuple(members)))

    def _repair(self, now: Millis) -> None:
        """Take members that left out of the table, and end the copies in which they took part."""
        view = self._joined()
        unsettled = self._redundancy.ended_by_departure(self.table, view)
        before = self.table
        result = repair(before, view.members)
        gone = tuple(member for member in before.members if member not in view)
        changes: dict[int, Replicas] = {p: result.table.replicas(p) for p in result.changed if p not in result.lost}
        changes |= self._owners_for_lost(result)
        if changes:
            self._change(changes, now, 0, lost=result.lost)
            promoted, lost = tuple(result.promoted), tuple(result.lost)
            rule = "DL-05 DL-09"
            self._out.record(events.PartitionsRepaired(self.table.version, promoted, lost, gone, rule))
        # The owner of such a partition treats the destination as a backup until the table passes the copy's version.
        still_open = {p: self.table.replicas(p) for p in unsettled if p not in changes}
        if still_open:
            self._change(still_open, now, 0, increment=2)

    def _owners_for_lost(self, result: Repair) -> dict[int, Replicas]:
        """New, empty replicas for partitions that nobody survived with, balanced with all others."""
        if not result.lost:
            return {}
        members = [m for m in self._joined().members if m not in self._leaving] or list(self._joined().members)
        table = result.table
        rows = assign([table.replicas(p) for p in range(table.partition_count)], members, self._config.backup_count)
        return {partition: rows[partition] for partition in result.lost}

    def _change(
        self,
        changes: dict[int, Replicas],
        now: Millis,
        delay_ms: Millis,
        *,
        increment: int = 1,
        lost: Collection[int] = (),
    ) -> None:
        invariant(self.decides, "only the master changes the partition table (DL-04)", keeper=self)
        self._install(self.table.with_changes(changes, increment=increment, lost=lost))
        if delay_ms:
            self._unpublished.update(changes)
            self._publish_at = min(self._publish_at or now + delay_ms, now + delay_ms)
        else:
            self._publish(now)

    def _is_known_to_all(self) -> bool:
        """Whether every other member that stays has the present table: whoever is the next master will find it."""
        if self._publish_at is not None:
            return False
        staying = (m for m in self._joined().others(self.this) if m not in self._leaving)
        return not self.is_assigned or all(self._confirmed.get(m, -1) >= self.table.version for m in staying)

    def _order_missing(self, now: Millis) -> None:
        table, view = self.table, self._joined()
        # A member that was admitted a moment ago takes no copy before it has joined. Its first heartbeat tells that.
        ready = {self.this, *self._confirmed}
        missing = self._redundancy.order_missing(table, view, self._leaving, ready, self._unpublished, now)
        self._looked_at = table
        self._redundancy.note(missing, table, self._is_known_to_all(), now)

    def _publish(self, now: Millis) -> None:
        self._publish_at = None
        self._unpublished.clear()
        self._next_publication = now + self._config.publish_interval_ms
        update = TableUpdate(self.table)
        for member in self._joined().others(self.this):
            self._out.send(member, update)

    def _install(self, table: PartitionTable) -> None:
        invariant(table.version > self.table.version, "tables only move on", old=self.table.version, new=table.version)
        self.table = table
        mine = table.members.index(self.this) if self.this in table.members else -1
        owned = sum(1 for row in table.rows if row and row[0] == mine)
        held = sum(1 for row in table.rows if mine in row)
        self._out.record(events.TableInstalled(table.version, owned, held - owned))

    def _joined(self) -> MembersView:
        invariant(self._view is not None, "this member has joined")
        return self._view  # type: ignore[return-value]  # held by the invariant
