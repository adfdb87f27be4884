"""Answer what operators and clients ask about a member: its view, its table, its history.

They change nothing, except that a request that is about to use the data makes the cluster assign its partitions.
"""

from __future__ import annotations

from typing import assert_never

from phalanx.common.clock import COUNTER_BITS
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route, route_each
from phalanx.membership.service import MembershipService
from phalanx.node.history import History
from phalanx.partition.coordinator.coordinator import PartitionCoordinator
from phalanx.partition.installed_table import InstalledTable
from phalanx.wire.messages import (
    ErrorReply,
    GetHistory,
    GetLosses,
    GetMembers,
    GetMigrations,
    GetTable,
    HistoryReply,
    Inquiry,
    LeavingMember,
    LossesReply,
    MembersReply,
    MigrationsReply,
    MigrationUnderWay,
    Reply,
    TableReply,
)

ClusterInquiry = GetTable | GetMembers | GetMigrations | GetLosses
"""What is asked about the cluster, and answered at once by a member that has joined it."""


def not_joined(request: Inquiry) -> ErrorReply:
    """Return the answer of a member that is in no cluster yet."""
    return ErrorReply(request.id, ErrorCode.NOT_READY, "this member has not joined a cluster yet")


class Inquiries:
    """Reads what a member knows of its cluster."""

    def __init__(
        self,
        local: LocalContext,
        membership: MembershipService,
        installed_table: InstalledTable,
        coordinator: PartitionCoordinator,
    ) -> None:
        self._local = local
        self._membership = membership
        self._installed = installed_table
        self._coordinator = coordinator

    def routes(self) -> Routes:
        return route_each(ClusterInquiry, self.on_inquiry)

    def on_inquiry(self, caller: Target, request: ClusterInquiry, now: Millis) -> None:
        self._local.out.send(caller, self._answer(request, now))

    def _answer(self, request: ClusterInquiry, now: Millis) -> Reply:
        membership = self._membership
        view = membership.view
        if view is None:
            return not_joined(request)
        restart_wait = self._installed.restart_wait
        match request:
            case GetMembers():
                waits_for = membership.cluster_version.why_not_raised(now) if membership.is_master else ""
                suspected, away = sorted(membership.suspicions.suspected), membership.gone.departures.kept
                return MembersReply(request.id, view, suspected, waits_for, restart_wait, away)
            case GetTable():
                if request.assign:
                    self._coordinator.want_table(now)
                footing = membership.majority.quorum.footing
                founders = footing.founders if footing is not None else ()
                return TableReply(
                    request.id,
                    self._installed.table,
                    view,
                    tuple(membership.gone.former.places(now)),
                    founders,
                    membership.state.age_ms(now),
                    restart_wait,
                )
            case GetLosses():
                now_ms = self._local.read_clock(now) >> COUNTER_BITS
                return LossesReply(request.id, self._installed.table.losses, view, now_ms)
            case GetMigrations():
                return self._migrations(request.id, now)
            case _:
                assert_never(request)

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
        kept = tuple(coordinator.losses.kept(now))
        leaving = [LeavingMember(member, replicas) for member, replicas in coordinator.draining.handing_over()]
        return MigrationsReply(
            request_id, membership.master, True, coordinator.searching_for, coordinator.is_at_rest() and not kept,
            progress.planned, progress.arrived, migrating.remaining(), migrating.count.done, coordinator.redundancy.lacking(),
            coordinator.publication.without_table(), leaving, under_way, kept,
            progress.copied_entries, progress.copied_bytes, progress.took_ms, progress.left_ms,
            coordinator.memory.shortage, coordinator.draining.waits_for(),
        )  # fmt: skip


class HistoryInquiries:
    """Answers what has happened, also before the member has joined a cluster."""

    def __init__(self, history: History, membership: MembershipService, outbox: Outbox) -> None:
        self._history, self._membership, self._out = history, membership, outbox

    def routes(self) -> Routes:
        return (route(GetHistory, self.on_inquiry),)

    def on_inquiry(self, caller: Target, request: GetHistory, now: Millis) -> None:
        view = self._membership.view
        suspected = sorted(self._membership.suspicions.suspected) if view is not None else []
        partition, history = request.partition, self._history
        decisions = history.tell(now) if partition < 0 else history.tell_of(partition, now)
        self._out.send(caller, HistoryReply(request.id, view, suspected, *decisions))
