"""The grid inside a member's own program: calls for partitions that the member owns need no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from phalanx.common.durations import Duration
from phalanx.common.errors import (
    MEMBER_STOPPED,
    ErrorCode,
    StoredTypeError,
    UnavailableError,
    UnknownSchema,
    UsageError,
)
from phalanx.common.ids import Lost, Target
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable
from phalanx.machine.inputs import Call, Input
from phalanx.maps.async_leases import AsyncLocks
from phalanx.maps.async_map import AsyncMap
from phalanx.maps.dict_formats import NO_SETTINGS
from phalanx.maps.requests import OPEN_FROM_EVERY, check_map_name, expect, idle_to_ms, member_stopped, ttl_to_ms
from phalanx.maps.types import UNTYPED, K, MapTypes, V
from phalanx.maps.updates import KEPT
from phalanx.net.forking import FORKED, tell_forks
from phalanx.net.own_loop import OTHER_LOOP
from phalanx.node.local_access import LocalAccess
from phalanx.wire.messages import ChangeLite, DoneReply, ErrorReply, Get, GetTable, Put, Reply, ValueReply

if TYPE_CHECKING:
    from phalanx.node.node import Node
    from phalanx.runtime.settings.config import Config

NOT_RUNNING = "this member is not running"
TABLE_PAUSE_S = 0.01

T = TypeVar("T")


class ReplyReceiver(Protocol):
    """Takes one reply, as a future does, and at once."""

    def done(self) -> bool:
        """Return whether it wants no reply any more."""

    def set_result(self, reply: Reply) -> None:
        """Take the reply."""


class EmbeddedCaller:
    """Turns calls into inputs of the node, and the node's answers into results of futures."""

    def __init__(
        self,
        config: Config,
        feed: Callable[[Input], None],
        now: Callable[[], int],
        fail: Callable[[BaseException], None],
        measure_memory: Callable[[], None],
    ) -> None:
        """`fail`: ends the member after a failure in the middle of a step. `measure_memory`: tells the node what the
        process has in memory.
        """
        self._configured = config.partition_count
        self.call_timeout_s = config.call_timeout_ms / 1000
        self._feed = feed
        self.local = LocalAccess(now, lambda: self._configured, fail=fail, measure_memory=measure_memory)
        """What is done at once where it is here."""
        self.before_output: Callable[[], None] | None = None
        """Called before the program is told of a write that was done here at once; None: nothing is to be done."""
        self._lent: list[LocalAccess] = []
        """Others that do the same."""
        self._last_id = 0
        self.open_from = 0
        """The lowest number of a request that can be under way."""
        self._futures: dict[int, asyncio.Future[Any] | ReplyReceiver] = {}
        """Request id to what waits for its reply; oldest first."""
        self._loop = asyncio.get_running_loop()
        self.locks = AsyncLocks(self)
        """The locks that the member's program holds."""
        self._map_plan: MapPlan | None = None
        """The settings of maps by the table that was asked for them last, also of an earlier incarnation."""
        self._planned: PartitionTable | None = None
        """That table."""
        self._has_ended = False
        """Whether the member has ended for good: no call can succeed any more."""
        self._is_forked = False
        """Whether this is a copy in a forked process: the member is in the parent."""
        tell_forks(self)

    @property
    def node(self) -> Node | None:
        """Return the node of the present incarnation; None: the member is not running."""
        return self.local.node

    def on_forked(self) -> None:
        """Refuse all calls in a forked process: it has no member, only a copy of its data and connections."""
        self._use(None)
        self._is_forked = True

    def check_process(self) -> None:
        """Raise `UsageError` in a forked process."""
        if self._is_forked:
            raise UsageError(f"this member cannot be used here: {FORKED}")

    @property
    def partition_count(self) -> int:
        """Return how many partitions the cluster has, by the installed table."""
        return len(self.node.grid.ownership.owned) if self.node is not None else self._configured

    def lend(self, local: LocalAccess) -> LocalAccess:
        """Let another access follow the incarnations, too, and return it."""
        self._lent.append(local)
        local.node = self.local.node
        return local

    def _use(self, node: Node | None) -> None:
        for local in (self.local, *self._lent):
            local.node = node

    def attach(self, node: Node) -> None:
        """Use the node of a new incarnation. Calls under way end: their outcome is unknown."""
        self._end_calls("this member joins its cluster again")
        self._use(node)

    def detach(self) -> None:
        """End all calls under way, and those that come: the member has ended for good."""
        self._has_ended = True
        self._end_calls(MEMBER_STOPPED)

    def _end_calls(self, text: str) -> None:
        node = self.node
        self._use(None)
        futures, self._futures = self._futures, {}
        for request_id, future in futures.items():
            if node is not None and not future.done():
                future.set_result(ErrorReply(request_id, node.calls.code_without_answer(request_id), text))

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def call(
        self, partition: int, request: Any, *, within_ms: int = 0, to: Target | None = None, lost: Lost = ()
    ) -> asyncio.Future[Any]:
        """Send a request to the owner of the partition, or to exactly the member `to`. The result is the reply."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.local.node is None:
            self.check_process()
            future.set_result(
                ErrorReply(request.id, ErrorCode.UNAVAILABLE, MEMBER_STOPPED if self._has_ended else NOT_RUNNING)
            )
            return future
        if asyncio._get_running_loop() is not self._loop:
            raise UsageError(f"this member cannot be used here: {OTHER_LOOP}")
        futures = self._futures
        if futures and request.id % OPEN_FROM_EVERY == 0:
            self.open_from = next(iter(futures))
        futures[request.id] = future
        self._feed(Call(partition, request, to, within_ms, lost))
        return future

    def ask(self, call: Call, receiver: ReplyReceiver) -> None:
        """Send a request; the receiver gets its reply, perhaps before this returns."""
        request = call.request
        if self.local.node is None:
            receiver.set_result(
                ErrorReply(request.id, ErrorCode.UNAVAILABLE, MEMBER_STOPPED if self._has_ended else NOT_RUNNING)
            )
            return
        futures = self._futures
        if futures and request.id % OPEN_FROM_EVERY == 0:
            self.open_from = next(iter(futures))
        futures[request.id] = receiver
        self._feed(call)

    def answered(self, reply: Reply) -> None:
        future = self._futures.pop(reply.id, None)
        if not self._futures:
            self.open_from = reply.id + 1
        if future is not None and not future.done():
            future.set_result(reply)

    async def change_lite(self, lite: bool) -> str:
        """Make this member lite, or a data member. Return what the change waits for; empty: it is done."""
        if self.node is None:
            self.check_process()
            return NOT_RUNNING
        reply = await self.call(0, ChangeLite(self.next_id(), lite), to=self.node.this)
        return "" if isinstance(reply, DoneReply) else reply.text

    async def table(self) -> PartitionTable:
        deadline = self._loop.time() + self.call_timeout_s
        while True:
            node = self.node
            self.check_process()
            if self._has_ended:
                raise member_stopped()
            if node is not None and node.installed_table.is_assigned:
                return node.installed_table.table
            if node is None or self._loop.time() >= deadline:
                why = node.calls.no_owners if node is not None else ""
                raise UnavailableError(why or "the cluster has not assigned its partitions; is this member running?")
            await self.call(0, GetTable(self.next_id(), True), to=node.this)
            await asyncio.sleep(TABLE_PAUSE_S)

    def map_plan(self) -> MapPlan:
        """Return the settings of maps by the table installed last. Raises `UnavailableError` if none was."""
        node = self.node
        if node is not None and (table := node.installed_table.table) is not self._planned and table.is_assigned:
            self._planned, self._map_plan = table, table.maps
        if self._map_plan is None:
            raise UnavailableError(NO_SETTINGS)
        return self._map_plan

    async def refresh(self, within_s: float) -> None:
        """Do nothing: the master sends each new table to the member."""


class EmbeddedMap(AsyncMap[K, V]):
    """A map in a member's program. Entries that the member owns are accessed directly, where possible."""

    def __init__(self, name: str, caller: EmbeddedCaller, types: MapTypes[K, V] = UNTYPED) -> None:
        super().__init__(check_map_name(name), caller, types)
        self._embedded = caller

    @overload
    async def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    async def get(self, key: K, default: V | T) -> V | T: ...
    async def get(self, key: K, default: Any = None) -> Any:
        # Called as locals: an attribute that is called directly is looked up as a method first.
        to_key_data, from_data = self._key_data, self._value_of
        data = to_key_data(key)
        caller = self._embedded
        found = caller.local.get(self.name, data)
        if isinstance(found, int):
            reply = await caller.call(found, Get(caller.next_id(), self.name, data))
            found = expect(reply, ValueReply, "get").value
        if found is None:
            return default
        try:
            return from_data(found)
        except (StoredTypeError, UnknownSchema):
            return await self._restored(key, found)

    async def _update(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None, max_idle_ms: int | None = KEPT
    ) -> Any:
        if ttl_ms is KEPT and max_idle_ms is KEPT:
            read = self._stored_of
            made = self._embedded.local.update(self.name, self._key_data(key), function, arguments)
            if not isinstance(made, int):
                if self._embedded.before_output is not None:
                    self._embedded.before_output()
                try:
                    return None if made.result is None else read(made.result)
                except UnknownSchema as error:
                    return await self._read_again(error, key, read, made.result)
        return await super()._update(key, function, arguments, ttl_ms, max_idle_ms)

    async def put(
        self,
        key: K,
        value: V,
        ttl: Duration | None = None,
        *,
        max_idle: Duration | None = None,
        fence: int | None = None,
    ) -> None:
        if fence is not None:
            await super().put(key, value, ttl, max_idle=max_idle, fence=fence)
            return
        if self._waits_for_settings:
            await self._wait_for_settings(value)
        to_key_data, to_data = self._key_data, self._value_data
        key_data, value_data = to_key_data(key), to_data(value)
        caller = self._embedded
        local = caller.local
        is_for_ever = ttl is None and max_idle is None
        there = local.put(self.name, key_data, value_data) if is_for_ever else local.partition(key_data)
        if there is None:
            if caller.before_output is not None:
                caller.before_output()
            return
        number, ttl_ms, idle_ms = caller.next_id(), ttl_to_ms(ttl), idle_to_ms(max_idle)
        request = Put(number, self.name, key_data, value_data, ttl_ms, 0, caller.open_from, idle_ms)
        expect(await caller.call(there, request), DoneReply, "put")
