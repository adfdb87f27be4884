"""The asyncio map: a dict shared by the cluster, over whatever can carry a call to the owner of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.table import PartitionTable
from phalanx.grid.serialization import from_data, from_key_data, keys_to_data, to_data, to_key_data
from phalanx.maps.async_journal import AsyncJournal, Change
from phalanx.maps.grouping import PARTS_AT_ONCE, OwnerGroups, Part
from phalanx.maps.journals import Position
from phalanx.maps.requests import (
    REGROUP,
    SCAN_PAGE_BYTES,
    as_for_the_whole,
    entries_to_data,
    expect,
    found_values,
    partitions_by_owner,
    raise_error,
    regrouped,
    ttl_to_ms,
)
from phalanx.maps.scanning import ScanPlan
from phalanx.maps.time_limit import TimeLimit
from phalanx.partition.hashing import partition_of
from phalanx.wire.messages import (
    ClearPartitions,
    Contains,
    CountReply,
    DoneReply,
    ErrorReply,
    FlagReply,
    Get,
    GetAll,
    PageReply,
    Put,
    PutAll,
    PutIfAbsent,
    Remove,
    Replace,
    ScanPartition,
    SizeOf,
    ValueReply,
    ValuesReply,
)

REGROUP_PAUSE_S = 0.02


class Caller(Protocol):
    """Carries requests to owners."""

    call_timeout_s: float
    open_from: int
    """No request with a lower number is under way."""

    @property
    def partition_count(self) -> int:
        """How many partitions the cluster has, by the newest table known."""

    def next_id(self) -> int:
        """A number for the next request. Requests are sent in the order of their numbers."""

    def call(self, partition: int, request: Any, *, within_ms: int = 0) -> Awaitable[Any]:
        """Send a request to the owner of the partition; its one reply, an `ErrorReply` included.

        `within_ms`: for less time than any call, if above 0.
        """

    async def table(self) -> PartitionTable:
        """The newest partition table known; waits for the first one. Raises `UnavailableError`."""

    async def refresh(self, within_s: float) -> None:
        """Look for a newer table, for so long at most."""


class AsyncMap:
    """A map of the grid. Keys and values are what `phalanx.grid.serialization` can store.

    Every method raises `UnavailableError` when no owner could be asked in time (nothing was changed), and writes raise
    `IndeterminateWrite` when one was asked and no answer came in time. A write of one key is applied once, however many
    owners had to be asked for it.
    """

    def __init__(self, name: str, caller: Caller) -> None:
        self.name = name
        self._caller = caller
        self._owner_groups = OwnerGroups()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def get(self, key: object, default: Any = None) -> Any:
        """The value of the key, or the default."""
        data = to_key_data(key)
        caller = self._caller
        reply = await caller.call(partition_of(data, caller.partition_count), Get(caller.next_id(), self.name, data))
        value = expect(reply, ValueReply, "get").value
        return default if value is None else from_data(value)

    async def put(self, key: object, value: object, ttl: float | None = None) -> None:
        """Store a value; it lives for `ttl` seconds, or for ever. Returns when all synchronous backups have it."""
        data, caller = to_key_data(key), self._caller
        ttl_ms = ttl_to_ms(ttl) if ttl is not None else 0
        request = Put(caller.next_id(), self.name, data, to_data(value), ttl_ms, 0, caller.open_from)
        reply = await caller.call(partition_of(data, caller.partition_count), request)
        expect(reply, DoneReply, "put")

    async def put_if_absent(self, key: object, value: object, ttl: float | None = None) -> Any:
        """Store a value unless the key has one. Returns the value that was there (nothing changed), or None."""
        data, caller = to_key_data(key), self._caller
        number, ttl_ms = caller.next_id(), ttl_to_ms(ttl)
        request = PutIfAbsent(number, self.name, data, to_data(value), ttl_ms, 0, caller.open_from)
        present = expect(await self._call(data, request), ValueReply, "put_if_absent").value
        return None if present is None else from_data(present)

    async def replace(self, key: object, value: object, ttl: float | None = None) -> bool:
        """Store a value only if the key has one. Whether it had."""
        data, caller = to_key_data(key), self._caller
        number, ttl_ms = caller.next_id(), ttl_to_ms(ttl)
        request = Replace(number, self.name, data, None, to_data(value), ttl_ms, 0, caller.open_from)
        return expect(await self._call(data, request), FlagReply, "replace").flag

    async def compare_and_set(self, key: object, expected: object, value: object, ttl: float | None = None) -> bool:
        """Store a value only if the key has exactly the expected one (compared as stored). Whether it had."""
        data, caller = to_key_data(key), self._caller
        number, ttl_ms = caller.next_id(), ttl_to_ms(ttl)
        request = Replace(number, self.name, data, to_data(expected), to_data(value), ttl_ms, 0, caller.open_from)
        return expect(await self._call(data, request), FlagReply, "compare_and_set").flag

    async def remove(self, key: object) -> Any:
        """Remove the key. Returns the value that was there, or None."""
        data, caller = to_key_data(key), self._caller
        request = Remove(caller.next_id(), self.name, data, 0, caller.open_from)
        present = expect(await self._call(data, request), ValueReply, "remove").value
        return None if present is None else from_data(present)

    async def contains(self, key: object) -> bool:
        """Whether the key has a value."""
        data = to_key_data(key)
        request = Contains(self._caller.next_id(), self.name, data)
        return expect(await self._call(data, request), FlagReply, "contains").flag

    async def get_all(self, keys: Iterable[object]) -> dict[Any, Any]:
        """The values of those of the keys that have one."""
        wanted = list(keys)
        found = await self.get_data(keys_to_data(wanted))
        return found_values(wanted, found)

    async def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]], ttl: float | None = None) -> None:
        """Store many values. On an error some of them may be stored, each of them whole."""
        keys, values = entries_to_data(entries)
        await self.put_data(keys, values, ttl_to_ms(ttl))

    async def size(self) -> int:
        """How many entries there are: the sum over partitions, each counted at its own moment."""
        return sum([reply.count for reply in await self._everywhere(SizeOf, CountReply, "size")])

    async def clear(self) -> None:
        """Remove all entries, partition by partition."""
        await self._everywhere(ClearPartitions, DoneReply, "clear")

    async def items(self) -> AsyncIterator[tuple[Any, Any]]:
        """All entries, streamed. Each that is there throughout comes exactly once, also when an owner dies."""
        async for keys, values in self.scan_data():
            for key, value in zip(keys, values, strict=True):
                yield from_key_data(key), from_data(value)

    async def keys(self) -> AsyncIterator[Any]:
        """All keys, streamed as by `items`."""
        async for keys, _ in self.scan_data():
            for key in keys:
                yield from_key_data(key)

    async def values(self) -> AsyncIterator[Any]:
        """All values, streamed as by `items`."""
        async for _, values in self.scan_data():
            for value in values:
                yield from_data(value)

    # --- serialised entries ----------------------------------------------------------------------------------------

    async def get_data(self, keys: list[bytes]) -> list[bytes | None]:
        """The serialised values of serialised keys, None where there is none."""
        found: list[bytes | None] = [None] * len(keys)

        def request(part: Part) -> Any:
            return GetAll(self._caller.next_id(), self.name, part.keys)

        def take(part: Part, reply: Any) -> Sequence[int]:
            values = expect(reply, ValuesReply, "get_all").values
            if len(values) == len(keys):
                found[:] = values
            else:
                for index, value in zip(part.indexes, values, strict=False):
                    found[index] = value
            return part.indexes[len(values) :]

        await self._in_parts(keys, [], request, take, "get_all")
        return found

    async def put_data(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Store serialised entries."""
        if len(keys) != len(values):
            raise UsageError(f"put_data: {len(keys)} keys and {len(values)} values; give one value for each key")

        def request(part: Part) -> Any:
            return PutAll(self._caller.next_id(), self.name, part.keys, part.values, ttl_ms)

        def take(part: Part, reply: Any) -> Sequence[int]:
            expect(reply, DoneReply, "put_all")
            return ()

        await self._in_parts(keys, values, request, take, "put_all")

    async def scan_data(
        self, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> AsyncIterator[tuple[list[bytes], list[bytes]]]:
        """Pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: how many partitions there were when they were listed; None: as many as there are now.
        """
        count = of or self._caller.partition_count
        plan = ScanPlan(range(count) if partitions is None else partitions, count)
        while True:
            limit = TimeLimit(self._caller.call_timeout_s)
            await self._catch_up(plan, limit)
            position = plan.next(self._caller.partition_count)
            if position is None:
                return
            page = await self._page(*position, limit)
            if page is not None:
                plan.note(page)
                if page.keys:
                    yield page.keys, page.values

    async def _catch_up(self, plan: ScanPlan, limit: TimeLimit) -> None:
        """Wait until the table is known by which the partitions were numbered; the time limit of a call ends that."""
        while plan.knows_more_than(self._caller.partition_count):
            text = f"no member has told of {plan.of} partitions: there are {self._caller.partition_count}"
            refusal, table = ErrorReply(0, ErrorCode.UNAVAILABLE, text), await self._caller.table()
            await self._pause_or_raise(refusal, table, limit, "scan", may_be_done=False)

    async def _page(self, partition: int, of: int, after: bytes, limit: TimeLimit) -> PageReply | None:
        """A page of one partition, from whoever owns it by then: the position means the same everywhere.

        None: the partitions were divided meanwhile, and this one's number means another.
        """
        while of == self._caller.partition_count:
            table = await self._caller.table()
            request = ScanPartition(self._caller.next_id(), self.name, partition, of, after, SCAN_PAGE_BYTES)
            reply = await self._caller.call(partition, request, within_ms=limit.within_ms)
            if not isinstance(reply, ErrorReply) or reply.code not in REGROUP:
                return expect(reply, PageReply, "scan")
            await self._pause_or_raise(reply, table, limit, "scan", may_be_done=False)
        return None

    def journal(self) -> AsyncJournal:
        """What happened to the entries, if the map has a journal (`phalanx map journal NAME --capacity N`)."""
        return AsyncJournal(self.name, self._caller)

    def changes(self, begin: dict[int, Position] | None = None) -> AsyncIterator[Change]:
        """What happens to the entries, as it happens: see `AsyncJournal.changes`."""
        return self.journal().changes(begin)

    # --- how parts are asked ---------------------------------------------------------------------------------------

    def _call(self, key: bytes, request: Any) -> Awaitable[Any]:
        return self._caller.call(partition_of(key, self._caller.partition_count), request)

    async def _in_parts(
        self,
        keys: list[bytes],
        values: list[bytes],
        request: Callable[[Part], Any],
        take: Callable[[Part, Any], Sequence[int]],
        what: str,
    ) -> None:
        """Ask the owners of all keys; what an owner could not answer is grouped anew, within the time of one call."""
        caller = self._caller
        limit = TimeLimit(caller.call_timeout_s)
        table = await caller.table()
        may_be_done = False
        parts = self._owner_groups.split(table, keys, values, None)
        later: list[int] = []
        while parts:
            asked, parts = parts[:PARTS_AT_ONCE], parts[PARTS_AT_ONCE:]
            within_ms = limit.within_ms
            replies: list[Any] = await asyncio.gather(
                *[caller.call(part.partition, request(part), within_ms=within_ms) for part in asked]
            )
            if values:
                replies, may_be_done = as_for_the_whole(replies, may_be_done=may_be_done)
            again: list[int] = []
            refusal = None
            for part, reply in zip(asked, replies, strict=True):
                if isinstance(reply, ErrorReply) and reply.code in REGROUP:
                    again += part.indexes
                    refusal = reply
                else:
                    later += take(part, reply)
            if refusal is None:
                limit.renew()
            else:
                await self._pause_or_raise(refusal, table, limit, what, may_be_done=may_be_done)
            if again or not parts:
                later += again + [index for part in parts for index in part.indexes]
                table = await caller.table()
                parts, later = self._owner_groups.split(table, keys, values, later) if later else [], []

    async def _everywhere(self, kind: type, reply_kind: type, what: str) -> list[Any]:
        """Ask the owners of all partitions; what one could not answer is asked again, within the time of one call."""
        limit = TimeLimit(self._caller.call_timeout_s)
        table = await self._caller.table()
        groups = partitions_by_owner(table)
        replies: list[Any] = []
        may_be_done = False
        while groups:
            of = table.partition_count
            requests = [kind(self._caller.next_id(), self.name, group, of) for group in groups]
            within_ms = limit.within_ms
            calls = [
                self._caller.call(group[0], request, within_ms=within_ms)
                for group, request in zip(groups, requests, strict=True)
            ]
            results: list[Any] = await asyncio.gather(*calls)
            if kind is ClearPartitions:
                results, may_be_done = as_for_the_whole(results, may_be_done=may_be_done)
            again: list[int] = []
            refusal = None
            for group, result in zip(groups, results, strict=True):
                if isinstance(result, ErrorReply) and result.code in REGROUP:
                    again += group
                    refusal = result
                else:
                    replies.append(expect(result, reply_kind, what))
            if refusal is not None:
                await self._pause_or_raise(refusal, table, limit, what, may_be_done=may_be_done)
            table = await self._caller.table()
            groups = regrouped(table, again, of)
        return replies

    async def _pause_or_raise(
        self, reply: ErrorReply, table: PartitionTable, limit: TimeLimit, what: str, *, may_be_done: bool
    ) -> None:
        """Before another try: get a newer table than the one by which the refused was asked. Pauses if there is none."""
        if limit.is_over:
            code = ErrorCode.INDETERMINATE if may_be_done else ErrorCode.UNAVAILABLE
            raise_error(ErrorReply(reply.id, code, reply.text), what)
        caller = self._caller
        if await caller.table() is not table:
            return
        await caller.refresh(limit.left_s)
        if await caller.table() is table:
            await asyncio.sleep(min(REGROUP_PAUSE_S, limit.left_s))
            await caller.refresh(limit.left_s)
