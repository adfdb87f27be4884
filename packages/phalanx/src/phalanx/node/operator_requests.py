"""Carry out what operators ask a member for.

It does itself what concerns this member alone. Only the master can do everything else, when its search for the table is
over. A request that cannot be granted yet is refused with the reason, and the operator asks again.
"""

from __future__ import annotations

from typing import assert_never

from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.ids import Address, Millis, Target, address_of
from phalanx.common.words import counted
from phalanx.grid.replication.protection import ProtectionGuard
from phalanx.machine.facts import LeaveAsked
from phalanx.machine.local_context import LocalContext
from phalanx.machine.routes import Routes, route_each
from phalanx.membership.service import MembershipService
from phalanx.partition.coordinator.coordinator import PartitionCoordinator
from phalanx.wire.messages import (
    AcceptView,
    AcknowledgeLosses,
    Administration,
    ChangeLite,
    ChangeMap,
    ChangePartitionCount,
    CountReply,
    DoneReply,
    ErrorReply,
    FlagReply,
    ForgetMember,
    GiveUpHolders,
    HoldClusterVersion,
    LeaveCluster,
    RaiseClusterVersion,
    ReplaceContent,
    Replacement,
    Reply,
    StopCluster,
)
from phalanx.wire.view_events import MemberForgotten


class OperatorRequests:
    """Finds the machine that a request is for, and answers the operator."""

    def __init__(
        self,
        local: LocalContext,
        membership: MembershipService,
        coordinator: PartitionCoordinator,
        guard: ProtectionGuard,
    ) -> None:
        self._membership = membership
        self._coordinator = coordinator
        self._guard = guard
        self._local = local
        self._out = local.out

    def routes(self) -> Routes:
        return route_each(Administration, self.on_request)

    def on_request(self, caller: Target, request: Administration, now: Millis) -> None:
        try:
            self._out.send(caller, self._answer(request, now))
        except UsageError as error:
            self._out.send(caller, ErrorReply(request.id, ErrorCode.INVALID, str(error)))

    def _answer(self, request: Administration, now: Millis) -> Reply:
        """Carry out a request. Raise `UsageError` for what can never be granted."""
        if isinstance(request, ChangeLite):
            refusal = self._membership.want_lite(request.lite, now)
        elif isinstance(request, RaiseClusterVersion):
            refusal = self._membership.cluster_version.raise_to(request.to, now)
        elif isinstance(request, HoldClusterVersion):
            refusal = self._membership.cluster_version.hold(request.holds, now)
        elif isinstance(request, AcceptView) and self._coordinator.restarting.wait is not None:
            refusal = self._membership.publisher.accept_view(request.view_version, now)
            if not refusal:
                self._coordinator.accept_restart(now)
        elif isinstance(request, LeaveCluster):
            refusal = self._leave_cluster()
        elif isinstance(request, StopCluster) and self._membership.is_master:
            self._coordinator.check_stop()
            self._membership.leave_requests.stop_all(now)
            refusal = ""
        elif not self._coordinator.decides or isinstance(request, StopCluster):
            master = self._membership.master or "a little later"
            does = "stops the cluster" if isinstance(request, StopCluster) else "changes the partition table"
            refusal = f"only the master {does}: ask {master}"
        elif isinstance(request, ReplaceContent):
            return self._replace_content(request, now)
        else:
            refusal = self._on_master(request, now)
        return ErrorReply(request.id, ErrorCode.NOT_READY, refusal) if refusal else DoneReply(request.id)

    def _on_master(
        self, request: ChangeMap | ChangePartitionCount | AcceptView | AcknowledgeLosses | GiveUpHolders | ForgetMember,
        now: Millis,
    ) -> str:  # fmt: skip
        """Carry out what only the master can. Return why it cannot be done now; empty: it is done."""
        match request:
            case GiveUpHolders():
                self._coordinator.give_up(request, now)
                return ""
            case ForgetMember():
                self._forget(Address(request.address), now)
                return ""
            case AcknowledgeLosses():
                return self._coordinator.acknowledge_losses(request.ids, request.by, now)
            case AcceptView():
                return self._membership.publisher.accept_view(request.view_version, now)
            case ChangePartitionCount():
                return self._coordinator.change_partition_count(request.partition_count, now)
            case ChangeMap():
                return self._coordinator.change_map(request.map, request.change, now, request.schema_before)
            case _:
                assert_never(request)

    def _leave_cluster(self) -> str:
        view, this = self._membership.view, self._local.this
        if view is None:
            return "this member is in no cluster now"
        if view.data_members == (this,) and self._membership.table_news.has_data:
            raise UsageError("no other member holds data: start one first, or stop this one, which keeps its folder")
        self._out.tell(LeaveAsked())
        return ""

    def _forget(self, address: Address, now: Millis) -> None:
        """Wait no more for a member that was at an address. Raises `UsageError` if none is awaited, or partitions wait for it."""
        dormant = self._membership.table_news.waiting_for(address)
        if dormant:
            waits = counted(dormant, "partition waits", "partitions wait")
            raise UsageError(f"{waits} for {address}: give it up there first, with phalanx partitions --give-up")
        departures = self._membership.gone.departures
        awaited = ", ".join(sorted({address_of(each.member) for each in departures.kept})) or "nobody"
        gone = departures.forget(address, now)
        if not gone:
            raise UsageError(f"no member of {address} is awaited: the cluster awaits {awaited}")
        for member in gone:
            self._out.record(MemberForgotten(member))
        self._membership.publisher.publish()

    def _replace_content(self, request: ReplaceContent, now: Millis) -> Reply:
        """Prepare another content for a map, or decide on it, for a job. A protected map can refuse that like any write."""
        is_write = request.wish is not Replacement.ABORT
        if is_write and (why := self._guard.why_refused(request.map, is_write=True, now=now)):
            return ErrorReply(request.id, ErrorCode.NOT_ENOUGH_MEMBERS, why)
        replacement = self._coordinator.replacement
        if refusal := replacement.ask(request, self._local.stamp(now), now):
            return ErrorReply(request.id, ErrorCode.NOT_READY, refusal)
        if request.wish is Replacement.BEGIN:
            return CountReply(request.id, replacement.begun(request.map, request.job))
        return FlagReply(request.id, replacement.was_decided(request.map, request.job))
