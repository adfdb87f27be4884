"""Answers to what operators and clients ask about a member: its view, its table, what it holds. They change nothing,
except that whoever is about to use the data makes the cluster assign its partitions.
"""

from __future__ import annotations

from typing import assert_never

from phalanx.common.clock import COUNTER_BITS
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.common.table import HOLE
from phalanx.common.view import MembersView
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.service import GridService
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route_each
from phalanx.membership.service import MembershipService
from phalanx.node.counting import Counts
from phalanx.node.history import History
from phalanx.partition.coordinator.coordinator import PartitionCoordinator
from phalanx.partition.installed_table import InstalledTable
from phalanx.wire.messages import (
    ErrorReply,
    GetHistory,
    GetLosses,
    GetMapNames,
    GetMembers,
    GetMigrations,
    GetReplicas,
    GetSafety,
    GetTable,
    HistoryReply,
    Inquiry,
    LeavingMember,
    LossesReply,
    MembersReply,
    MigrationsReply,
    MigrationUnderWay,
    Reply,
    SafetyReply,
    TableReply,
)

Told = GetTable | GetMembers | GetHistory | GetSafety | GetMigrations | GetLosses
"""Inquiries that are answered at once."""


class Inquiries:
    """Reads the machines of one member."""

    def __init__(
        self,
        membership: MembershipService,
        installed_table: InstalledTable,
        coordinator: PartitionCoordinator,
        grid: GridService,
        orphaned: OrphanedReplicas,
        history: History,
        outbox: Outbox,
    ) -> None:
        self._membership = membership
        self._installed = installed_table
        self._coordinator = coordinator
        self._grid = grid
        self._orphaned = orphaned
        self._history = history
        self.event_log_problem = ""
        """Why this member's event log cannot be written, as its driver told last; empty: it can."""
        self._out = outbox
        self._counts = Counts(grid, orphaned, outbox)
        self.alarm = self._counts.alarm

    def routes(self) -> Routes:
        return route_each(Inquiry, self.on_inquiry)

    def on_inquiry(self, caller: Target, request: Inquiry, now: Millis) -> None:
        if not isinstance(request, GetReplicas | GetMapNames):
            self._out.send(caller, self._answer(request, now))
        elif self._membership.view is None:
            self._out.send(caller, _not_joined(request))
        else:
            self._counts.begin(caller, request, now)

    @property
    def waiting(self) -> int:
        """How many requests wait for the rest of their answers."""
        return len(self._counts)

    def _answer(self, request: Told, now: Millis) -> Reply:
        view = self._membership.view
        if isinstance(request, GetHistory):
            suspected = sorted(self._membership.suspicions.suspected) if view is not None else []
            partition, history = request.partition, self._history
            told = history.tell(now) if partition < 0 else history.tell_of(partition, now)
            return HistoryReply(request.id, view, suspected, *told)
        if view is None:
            return _not_joined(request)
        match request:
            case GetMembers():
                membership = self._membership
                waits_for = membership.cluster_version.why_not_raised(now) if membership.is_master else ""
                return MembersReply(request.id, view, sorted(membership.suspicions.suspected), waits_for)
            case GetTable():
                if request.assign:
                    self._coordinator.want_table(now)
                footing = self._membership.majority.quorum.footing
                founders = footing.founders if footing is not None else ()
                return TableReply(
                    request.id,
                    self._installed.table,
                    view,
                    tuple(self._membership.gone.former.places(now)),
                    founders,
                    self._membership.state.age_ms(now),
                )
            case GetSafety():
                return self._safety(request.id, view, now)
            case GetLosses():
                now_ms = self._grid.clock.read(now) >> COUNTER_BITS
                return LossesReply(request.id, self._installed.table.losses, view, now_ms)
            case GetMigrations():
                return self._migrations(request.id, now)
            case _:
                assert_never(request)

    def _safety(self, request_id: int, view: MembersView, now: Millis) -> SafetyReply:
        """Answer by the table and by what this member knows itself: nobody else is asked."""
        grid, table = self._grid, self._installed.table
        configured = table.maps.depth + 1
        wanted = min(configured, max(len(view.data_members), 1))
        present = [member in view for member in table.members]
        mine = table.members.index(grid.this) if grid.this in table.members else HOLE - 1
        copies = [sum(present[i] for i in row if i != HOLE) for row in table.rows if mine in row]
        owned = sum(1 for row in table.rows if row and row[0] == mine)
        late = [partition for partition, each in grid.leader.unsettled.items() if each.has_late_backup(now)]
        # Their backups are asked what they have when they are divided.
        late += [partition for partition in grid.split_queue.partitions if len(table.replicas(partition)) > 1]
        migrating = {*grid.outgoing.active, *grid.follower.incoming}
        suspected = sorted(self._membership.suspicions.suspected)
        return SafetyReply(
            request_id, view, suspected, table.version, owned, len(copies) - owned,
            copies.count(1), sum(count < wanted for count in copies), len(late), len(migrating), wanted, configured,
            self._orphaned.partition_count(), self._orphaned.entry_count(),
            grid.memory.used, grid.memory.limit, self.event_log_problem,
        )  # fmt: skip

    def _migrations(self, request_id: int, now: Millis) -> MigrationsReply:
        membership, coordinator = self._membership, self._coordinator
        if not membership.is_master:
            return MigrationsReply(request_id, membership.master, False, [], False, 0, 0, 0, 0, 0, [], [], [])
        migrating = coordinator.migrations
        progress = migrating.progress(now)
        under_way = [
            MigrationUnderWay(each.partition, each.migration, each.owner, each.phase.name.lower(), now - each.began_at)
            for each in migrating.underway.values()
            if not migrating.is_answered(each.partition)
        ]
        kept = tuple(coordinator.kept(now))
        leaving = [LeavingMember(member, replicas) for member, replicas in coordinator.handing_over()]
        return MigrationsReply(
            request_id, membership.master, True, coordinator.searching_for, coordinator.is_at_rest() and not kept,
            progress.planned, progress.arrived, migrating.remaining(), migrating.count.done, coordinator.lacking(),
            coordinator.without_table(), leaving, under_way, kept,
            progress.copied_entries, progress.copied_bytes, progress.took_ms, progress.left_ms,
            coordinator.memory.shortage, coordinator.waits_for(),
        )  # fmt: skip


def _not_joined(request: Inquiry) -> ErrorReply:
    return ErrorReply(request.id, ErrorCode.NOT_READY, "this member has not joined a cluster yet")
