"""Carry out what operators ask a member for.

It does itself what concerns this member alone. Only the master can do everything else, when its search for the table is
over. A request that cannot be granted yet is refused with the reason, and the operator asks again.
"""

from __future__ import annotations

from typing import assert_never

from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.ids import Millis, Target
from phalanx.grid.replication.protection import ProtectionGuard
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
    GiveUpHolders,
    HoldClusterVersion,
    RaiseClusterVersion,
    ReplaceContent,
    Replacement,
    Reply,
)


class OperatorRequests:
    """Finds the machine that a request is for, and answers the operator."""

    def __init__(
        self, local: LocalContext, membership: MembershipService, coordinator: PartitionCoordinator, guard: ProtectionGuard
    ) -> None:  # fmt: skip
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
        elif not self._coordinator.decides:
            master = self._membership.master or "a little later"
            refusal = f"only the master changes the partition table: ask {master}"
        elif isinstance(request, ReplaceContent):
            return self._replace_content(request, now)
        else:
            refusal = self._on_master(request, now)
        return ErrorReply(request.id, ErrorCode.NOT_READY, refusal) if refusal else DoneReply(request.id)

    def _on_master(
        self, request: ChangeMap | ChangePartitionCount | AcceptView | AcknowledgeLosses | GiveUpHolders, now: Millis
    ) -> str:  # fmt: skip
        """Carry out what only the master can. Return why it cannot be done now; empty: it is done."""
        match request:
            case GiveUpHolders():
                self._coordinator.give_up(request, now)
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
