"""The grid as the endpoints of a member with an HTTP port use it: each request of theirs counts as a call of a client.

It counts under the request that a native client would have sent, so the figures of a map are of all its clients. What is done at once
counts as the request that it stands for. Members without the port use `MemberGrid`, which counts nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any

from phalanx.common.ids import Lost, MemberId
from phalanx.endpoints.protocol import NOT_HERE, NotHere
from phalanx.grid.requests.redis_commands import CarriedOut
from phalanx.grid.serving.update_results import Updated
from phalanx.runtime.call_statistics import CallStatistics
from phalanx.runtime.config import Config
from phalanx.runtime.embedded import EmbeddedCaller
from phalanx.runtime.endpoint_grid import MemberGrid
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


class MeasuredGrid(MemberGrid):
    """A member's grid that counts calls."""

    def __init__(
        self,
        caller: EmbeddedCaller,
        config: Config,
        failed: Callable[[str, Exception], None],
        statistics: CallStatistics,
    ) -> None:
        super().__init__(caller, config.max_frame_bytes, config.answer_bytes, failed)
        self._statistics = statistics
        self._plan_caller = MeasuredCaller(caller, self._note_reply)

    def _note(self, name: str, kind: type, began_s: float, count: int = 1) -> None:
        """Count calls that ended well, now, one after the other."""
        self._statistics.find(name, kind).note_many((perf_counter() - began_s) / count, count)

    def _note_reply(self, request: Any, began_s: float, reply: Reply) -> None:
        error = reply.code if isinstance(reply, ErrorReply) else None
        calls = self._statistics.find(getattr(request, "map", ""), type(request))
        calls.note_end(perf_counter() - began_s, error)

    # --- at once -----------------------------------------------------------------------------------------------------

    def get_here(self, name: str, key: bytes) -> bytes | NotHere | None:
        began_s = perf_counter()
        found = super().get_here(name, key)
        if found is not NOT_HERE:
            self._note(name, Get, began_s)
        return found

    def get_all_here(self, name: str, keys: list[bytes]) -> list[bytes | None] | None:
        began_s = perf_counter()
        found = super().get_all_here(name, keys)
        if found is not None:
            self._note(name, GetAll, began_s)
        return found

    def swap_here(self, name: str, key: bytes, value: bytes) -> bytes | NotHere | None:
        began_s = perf_counter()
        before = super().swap_here(name, key, value)
        if before is not NOT_HERE:
            self._note(name, UpdateValue, began_s)
        return before

    def put_here(self, name: str, key: bytes, value: bytes) -> bool:
        began_s = perf_counter()
        is_done = super().put_here(name, key, value)
        if is_done:
            self._note(name, Put, began_s)
        return is_done

    def update_here(self, name: str, key: bytes, function: str, arguments: list[bytes]) -> Updated | None:
        began_s = perf_counter()
        made = super().update_here(name, key, function, arguments)
        if made is not None:
            self._note(name, UpdateValue, began_s)
        return made

    def carry_out_here(
        self, name: str, data: bytes, start: int, most: int, most_bytes: int, nil: bytes
    ) -> CarriedOut | None:
        began_s = perf_counter()
        done = super().carry_out_here(name, data, start, most, most_bytes, nil)
        if done is not None and (total := sum(done[2:5])):
            each_s = (perf_counter() - began_s) / total
            for kind, count in zip((Get, Put, UpdateValue), done[2:5], strict=True):
                if count:
                    self._statistics.find(name, kind).note_many(each_s, count)
        return done

    # --- what is carried out for a machine ---------------------------------------------------------------------------

    def ask(self, partition: int, request: Any, take: Callable[[Reply], None], to: MemberId | None = None) -> None:
        began_s = perf_counter()

        def taken(reply: Reply) -> None:
            self._note_reply(request, began_s, reply)
            take(reply)

        super().ask(partition, request, taken, to)
