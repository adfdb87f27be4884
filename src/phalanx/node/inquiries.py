"""Answers to what operators and clients ask about a member: its view, its table, what it holds. They change nothing,
except that whoever is about to use the data makes the cluster assign its partitions.
"""

from __future__ import annotations

from typing import assert_never

from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.grid.service import GridService
from phalanx.membership.service import MembershipService
from phalanx.node.history import History
from phalanx.partition.keeper import PartitionKeeper
from phalanx.wire.effects import Outbox
from phalanx.wire.messages import (
    ErrorReply,
    GetHistory,
    GetMapNames,
    GetMembers,
    GetReplicas,
    GetTable,
    HistoryReply,
    Inquiry,
    MembersReply,
    NamesReply,
    ReplicasReply,
    Reply,
    TableReply,
)


class Inquiries:
    """Reads the machines of one member."""

    def __init__(
        self,
        membership: MembershipService,
        keeper: PartitionKeeper,
        grid: GridService,
        history: History,
        outbox: Outbox,
    ) -> None:
        self._membership = membership
        self._keeper = keeper
        self._grid = grid
        self._history = history
        self._out = outbox

    def on_inquiry(self, caller: Target, request: Inquiry, now: Millis) -> None:
        self._out.send(caller, self._answer(request, now))

    def _answer(self, request: Inquiry, now: Millis) -> Reply:
        view = self._membership.view
        if isinstance(request, GetHistory):
            suspected = sorted(self._membership.suspicions.suspected) if view is not None else []
            return HistoryReply(request.id, view, suspected, *self._history.tell(now))
        if view is None:
            return ErrorReply(request.id, ErrorCode.NOT_READY, "this member has not joined a cluster yet")
        match request:
            case GetMembers():
                return MembersReply(request.id, view, sorted(self._membership.suspicions.suspected))
            case GetTable():
                if request.assign:
                    self._keeper.want_table(now)
                return TableReply(request.id, self._keeper.table, view)
            case GetMapNames():
                return NamesReply(request.id, self._map_names())
            case GetReplicas():
                return self._replicas(request.id)
            case _:
                assert_never(request)

    def _map_names(self) -> list[str]:
        owned = [owned.replica for owned in self._grid.all_owned()]
        return sorted({name for replica in owned for name, store in replica.maps.items() if store.entries})

    def _replicas(self, request_id: int) -> ReplicasReply:
        grid = self._grid
        owned = [owned.replica for owned in grid.all_owned()]
        followed = list(grid.followed.replicas.values())
        return ReplicasReply(
            request_id,
            len(owned),
            len(followed),
            sum(replica.entry_count() for replica in owned + followed),
            sum(replica.byte_count() for replica in owned + followed),
            len(grid.unsettled),
            grid.table.backups.depth,
        )
