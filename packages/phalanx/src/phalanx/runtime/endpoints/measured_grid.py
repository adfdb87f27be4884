"""The grid as the endpoints of a member with an HTTP port use it: each request of theirs counts as a call of a client.

It counts under the request that a native client would have sent, so the figures of a map are of all its clients. What is done at once
counts as the request that it stands for. Members without the port use `MemberGrid`, which counts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from phalanx.common.ids import Lost, MemberId, Millis
from phalanx.grid.replication.leader import CarriedOut, CommandBytes
from phalanx.node.local_access import LocalAccess
from phalanx.runtime.connections.call_statistics import CallStatistics
from phalanx.runtime.endpoints.endpoint_grid import MemberGrid
from phalanx.runtime.local.embedded import EmbeddedCaller
from phalanx.runtime.settings.config import Config
from phalanx.wire.messages import ErrorReply, Get, GetAll, Put, Reply, UpdateValue


def grid_for_endpoints(
    caller: EmbeddedCaller,
    config: Config,
    failed: Callable[[str, Exception], None],
    statistics: CallStatistics | None,
) -> MemberGrid:
    """Return the grid for a member's endpoints, which counts calls if there are statistics."""
    if statistics is None:
        return MemberGrid(caller, config.max_frame_bytes, config.answer_bytes, failed)
    return MeasuredGrid(caller, config, failed, statistics)


class MeasuredCaller:
    """Sends the requests of plans as the member's caller does, and counts them."""

    open_from = 0
    """Plans of endpoints take it from `MemberGrid`."""

    def __init__(self, caller: EmbeddedCaller, note: Callable[[Any, float, Any], None]) -> None:
        self._caller, self._note = caller, note
        self.call_timeout_s = caller.call_timeout_s
        self.next_id = caller.next_id
        self.table: Callable[[], Any] = caller.table
        self.refresh = caller.refresh

    @property
    def partition_count(self) -> int:
        return self._caller.partition_count

    def call(self, partition: int, request: Any, *, within_ms: int = 0, lost: Lost = ()) -> asyncio.Future[Any]:
        began_s = perf_counter()
        future = self._caller.call(partition, request, within_ms=within_ms, lost=lost)
        future.add_done_callback(lambda done: None if done.cancelled() else self._note(request, began_s, done.result()))
        return future


P = ParamSpec("P")
T = TypeVar("T")


def _counted(do: Callable[P, T], kind: type) -> Callable[P, T]:
    """Return a method of `CountedAccess` that counts as a request of this type, if it was done here."""

    def counted(*arguments: P.args, **named: P.kwargs) -> T:
        began_s = perf_counter()
        found = do(*arguments, **named)
        if not isinstance(found, int) and (kind is not GetAll or found is not None):
            local: Any = arguments[0]
            local.statistics.find(arguments[1], kind).note_many(perf_counter() - began_s, 1)
        return found

    return counted


class CountedAccess(LocalAccess):
    """A member's local access that counts what it does."""

    def __init__(self, like: LocalAccess, statistics: CallStatistics) -> None:
        super().__init__(
            like.now, like.count_partitions, fail=like.fail, measure_memory=like.measure_memory, holds_answers=True
        )
        self.statistics = statistics

    get = _counted(LocalAccess.get, Get)
    get_all = _counted(LocalAccess.get_all, GetAll)
    put = _counted(LocalAccess.put, Put)
    swap = _counted(LocalAccess.swap, UpdateValue)
    update = _counted(LocalAccess.update, UpdateValue)

    def carry_out(self, name: str, commands: CommandBytes, now: Millis) -> CarriedOut | None:
        began_s = perf_counter()
        done = super().carry_out(name, commands, now)
        if done is not None and (total := sum(done[2:5])):
            each_s = (perf_counter() - began_s) / total
            for kind, count in zip((Get, Put, UpdateValue), done[2:5], strict=True):
                if count:
                    self.statistics.find(name, kind).note_many(each_s, count)
        return done


class MeasuredGrid(MemberGrid):
    """A member's grid that counts calls."""

    def __init__(
        self,
        caller: EmbeddedCaller,
        config: Config,
        failed: Callable[[str, Exception], None],
        statistics: CallStatistics,
    ) -> None:
        local = CountedAccess(caller.local, statistics)
        super().__init__(caller, config.max_frame_bytes, config.answer_bytes, failed, local)
        self._statistics = statistics
        self._plan_caller = MeasuredCaller(caller, self._note_reply)

    def _note_reply(self, request: Any, began_s: float, reply: Reply) -> None:
        error = reply.code if isinstance(reply, ErrorReply) else None
        calls = self._statistics.find(getattr(request, "map", ""), type(request))
        calls.note_end(perf_counter() - began_s, error)

    # --- what is carried out for a machine ---------------------------------------------------------------------------

    def ask(self, partition: int, request: Any, take: Callable[[Reply], None], to: MemberId | None = None) -> None:
        began_s = perf_counter()

        def taken(reply: Reply) -> None:
            self._note_reply(request, began_s, reply)
            take(reply)

        super().ask(partition, request, taken, to)
