"""The calls of a map that asyncio and blocking programs have alike, for asyncio: a client's, or those of the program of a member.

The blocking ones (`client.blocking.sync_map_calls`) are written from this file by scripts/blocking_api.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar, overload

from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.durations import Duration
from phalanx.common.errors import StoredTypeError, UnknownSchema
from phalanx.common.map_schema import MapSchema
from phalanx.common.public_names import PublicNames
from phalanx.common.words import quoted
from phalanx.maps.async_leases import AsyncLocks
from phalanx.maps.async_locks import AsyncLock
from phalanx.maps.async_plan_runner import Caller, run_plan
from phalanx.maps.compact_schemas import read_again
from phalanx.maps.locks import LEASE_S, WAIT_S, LockTerms, check_permits, fenced_request, lock_terms
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.requests import expect, idle_to_ms, ttl_to_ms
from phalanx.maps.types import UNTYPED, K, MapTypes, V, of_key
from phalanx.maps.updates import (
    FOR_EVER,
    KEPT,
    datas_of,
    in_lots,
    kept_or_ms,
    map_or_ms,
    new_lives_ms,
    numbers_data,
    refuse_both,
    result_of,
    seconds_left,
    sum_of,
)
from phalanx.maps.where import conditions_of
from phalanx.wire.conditions import Condition
from phalanx.wire.messages import (
    Contains,
    DoneReply,
    FlagReply,
    Get,
    GetTimeToLive,
    Put,
    PutIfAbsent,
    Remove,
    Replace,
    UpdateValue,
    ValueReply,
)

T = TypeVar("T")


class MapCaller(Caller, Protocol):
    """What maps need of a client or member."""

    @property
    def locks(self) -> AsyncLocks:
        """Return the locks that the client or member holds."""


class AsyncMapCalls(PublicNames, Generic[K, V]):
    """The calls of a map that take keys and values, and those about all entries."""

    _internal = frozenset({"decode"})

    def __init__(self, name: str, caller: MapCaller, types: MapTypes[K, V] = UNTYPED) -> None:
        self.name = name
        self._caller = caller
        self._types = types
        # Bound here, because the fastest calls take no longer than a few of these look-ups.
        self._key_data, self._value_data = types.key_data, types.value_data
        self._key_of, self._value_of, self._stored_of = types.key_of, types.value_of, types.stored_of
        self._plans = MapPlans(name, caller)
        self._waits_for_settings = types.follows_settings
        """Whether a write perhaps has to wait for the map's settings: no table is known yet."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({quoted(self.name)}{self._types.shown})"

    @overload
    async def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    async def get(self, key: K, default: V | T) -> V | T: ...
    async def get(self, key: K, default: Any = None) -> Any:
        """Return the value of the key, or the default if it has none."""
        data = self._key_data(key)
        caller = self._caller
        reply = await caller.call(partition_of(data, caller.partition_count), Get(caller.next_id(), self.name, data))
        value = expect(reply, ValueReply, "get").value
        if value is None:
            return default
        try:
            return self._value_of(value)
        except (StoredTypeError, UnknownSchema):
            return await self._restored(key, value)

    async def put(
        self,
        key: K,
        value: V,
        ttl: Duration | None = None,
        *,
        max_idle: Duration | None = None,
        fence: int | None = None,
    ) -> None:
        """Store a value, which expires after `ttl` seconds (None: never), and when nobody reads or writes it for `max_idle`
        seconds (None: the map's `max_idle_ms`; never so, if it has none). Synchronous backups have it on return.

        `fence`: the token of a lock that is held (`lock.token`). Raises `StaleToken`, and changes nothing, if a later
        holder of the key's lock has a greater token, or has written the key with one.
        """
        if self._waits_for_settings:
            await self._wait_for_settings(value)
        data, caller = self._key_data(key), self._caller
        if fence is not None:
            refuse_both(max_idle, fence)
            await self._write_fenced(key, data, self._value_data(value), ttl_to_ms(ttl), fence, "put")
            return
        ttl_ms, idle_ms = ttl_to_ms(ttl) if ttl is not None else 0, idle_to_ms(max_idle) if max_idle is not None else 0
        number = caller.next_id()
        request = Put(number, self.name, data, self._value_data(value), ttl_ms, 0, caller.open_from, idle_ms)
        expect(await caller.call(partition_of(data, caller.partition_count), request), DoneReply, "put")

    async def put_if_absent(
        self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None
    ) -> V | None:
        """Store a value unless the key has one. Return the present value (nothing changed), or None (stored). `ttl`,
        `max_idle`: as in `put`."""
        present = await self._put_if_absent(key, value, ttl, max_idle)
        return None if present is None else await self._restored(key, present)

    async def replace(self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None) -> bool:
        """Store a value only if the key has one. Return whether it had. `ttl`, `max_idle`: as in `put`."""
        if self._waits_for_settings:
            await self._wait_for_settings(value)
        data, caller = self._key_data(key), self._caller
        number, ttl_ms = caller.next_id(), ttl_to_ms(ttl)
        request = Replace(
            number, self.name, data, None, self._value_data(value), ttl_ms, 0, caller.open_from, idle_to_ms(max_idle)
        )
        return expect(await self._call(data, request), FlagReply, "replace").flag

    async def compare_and_set(
        self,
        key: K,
        expected: V,
        value: V,
        ttl: Duration | None = None,
        *,
        max_idle: Duration | None = None,
    ) -> bool:
        """Store a value only if the key has the expected one (compared as serialised). Return whether it had. `ttl`,
        `max_idle`: as in `put`."""
        if self._waits_for_settings:
            await self._wait_for_settings(value, expected)
        data, caller = self._key_data(key), self._caller
        number, ttl_ms = caller.next_id(), ttl_to_ms(ttl)
        request = Replace(
            number,
            self.name,
            data,
            self._value_data(expected),
            self._value_data(value),
            ttl_ms,
            0,
            caller.open_from,
            idle_to_ms(max_idle),
        )
        return expect(await self._call(data, request), FlagReply, "compare_and_set").flag

    async def remove(self, key: K, *, fence: int | None = None) -> V | None:
        """Remove the key. Return the value that it had, or None. `fence`: as in `put`."""
        if fence is not None:
            before = await self._write_fenced(key, self._key_data(key), None, 0, fence, "remove")
            return None if before is None else self._types.from_plain(before)
        present = await self._remove(key)
        return None if present is None else await self._restored(key, present)

    async def contains(self, key: object) -> bool:
        """Return whether the key has a value."""
        data = self._key_data(key)
        request = Contains(self._caller.next_id(), self.name, data)
        return expect(await self._call(data, request), FlagReply, "contains").flag

    async def get_and_put(
        self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None
    ) -> V | None:
        """Store a value, which expires after `ttl` seconds (None: never). `max_idle`: as in `put`. Return the value before,
        or None."""
        if self._waits_for_settings:
            await self._wait_for_settings(value)
        lives = ttl_to_ms(ttl), map_or_ms(max_idle)
        before = await self._update(key, "get_and_put", [self._value_data(value)], *lives)
        return None if before is None else self._types.from_plain(before)

    async def get_and_replace(
        self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None
    ) -> V | None:
        """Store a value only if the key has one. Return that, or None (nothing changed). `ttl`, `max_idle`: as in `put`."""
        if self._waits_for_settings:
            await self._wait_for_settings(value)
        lives = ttl_to_ms(ttl), map_or_ms(max_idle)
        before = await self._update(key, "get_and_replace", [self._value_data(value)], *lives)
        return None if before is None else self._types.from_plain(before)

    async def remove_if(self, key: K, expected: V) -> bool:
        """Remove the key only if it has the expected value (compared as serialised). Return whether it had."""
        if self._waits_for_settings:
            await self._wait_for_settings(expected)
        return bool(await self._update(key, "remove_if", [self._value_data(expected)], KEPT))

    async def increment(
        self, key: K, by: float | Decimal = 1, initial: float | Decimal | None = 0, ttl: Duration | None = None
    ) -> V:
        """Add a number to the value, or to `initial` if the key has none, and return the sum, as Python adds them.

        `initial`: None: the key must have a value. `ttl`: seconds that the entry lives from now on; None: as it was. Raises
        `KeyError` if `initial` is None and the key has no value, and `UsageError` if the value is not an int, float or Decimal, or
        cannot be added to `by`; both change nothing.
        """
        numbers = numbers_data(by, initial)
        return self._types.from_plain(sum_of(await self._update(key, "increment", numbers, kept_or_ms(ttl)), key))

    async def touch(self, key: K, ttl: Duration | None = None, *, max_idle: Duration | None = None) -> bool:
        """Let the entry live for `ttl` seconds from now on, and while it is used within every `max_idle` seconds; what is
        not given stays as it was. Return whether there is one."""
        lives_ms, idle_ms = new_lives_ms(ttl, max_idle)
        return bool(await self._update(key, "touch", [], lives_ms, idle_ms))

    async def persist(self, key: K) -> bool:
        """Remove the entry's time to live, so that it never expires. Return whether there is one."""
        return bool(await self._update(key, "touch", [], FOR_EVER, FOR_EVER))

    async def time_to_live(self, key: K) -> float | None:
        """Return how many seconds the entry lives from now on; None: without end. Raises `KeyError` if there is none."""
        data = self._key_data(key)
        request = GetTimeToLive(self._caller.next_id(), self.name, data)
        return seconds_left(await self._call(data, request), key)

    def lock(
        self, key: K, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S, reentrant: bool = False
    ) -> AsyncLock:
        """Return the lock of a key, which need not have a value. One task at a time holds it.

        `lease`: seconds after which it is free when its holder was not heard of; `wait`: seconds to wait for it (None:
        without end); `reentrant`: whether the task that holds it can acquire it again. Raises `UsageError`.
        """
        return AsyncLock(self._lock_terms(key, lease, wait, reentrant=reentrant), self._caller.locks)

    def semaphore(
        self, key: K, permits: int, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S
    ) -> AsyncLock:
        """Return the semaphore of a key, which at most `permits` tasks hold at a time; `lease` and `wait` as in `lock`."""
        return AsyncLock(self._lock_terms(key, lease, wait, permits=check_permits(permits)), self._caller.locks)

    async def update_all(self, keys: Iterable[K], function: str, *arguments: object) -> dict[K, Any]:
        """Let a function change the value of each key, as `update` does; return the keys and what it returned for them.

        Each key is changed once, and by itself. After an error some can be changed, and others not. Raises `UsageError`, and
        changes nothing, for keys of which a dict holds one and the grid several, such as 1 and True.
        """
        found: dict[Any, Any] = {}
        datas = datas_of(function, arguments, self._types.argument_data)
        given = list(keys)
        self._types.distinct_keys_data(given)
        for lot in in_lots(given):
            found |= zip(lot, await self._update_lot(lot, function, datas), strict=True)
        return found

    @abstractmethod
    async def _update_lot(self, keys: list[K], function: str, arguments: list[bytes]) -> list[Any]:
        """Let a function change the value of some keys at a time, and return the results. All have ended before an error is raised."""

    async def update_where(
        self, condition: str | Condition | Iterable[Condition], function: str, *arguments: object
    ) -> int:
        """Let a function change the value of every entry that fulfils a condition, where it lives; return how many were
        changed.

        `condition`: a text such as `"price > 10 and city in ('Oslo', 'Rome')"` (`"true"`: every entry), or conditions as
        scans take them. Members call the function in slices of some milliseconds, and continue serving others in between.
        An entry that fulfils the condition all the time is changed once, also when owners change; what is written
        meanwhile is judged as it is at its turn. Raises `UpdateFailed` at the end if the function refused entries: these
        are as they were. Raises `UsageError` for a condition or function that members do not know. After other errors
        some entries can be changed; calling again would change these again. Dividing partitions meanwhile can raise
        `IndeterminateWrite`.
        """
        wanted, datas = conditions_of(condition), datas_of(function, arguments, self._types.argument_data)
        caller = self._caller
        plan = self._plans.update_where(wanted, function, datas, lambda number: min(caller.open_from, number))
        return await run_plan(plan, caller)

    async def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the entries of those keys that have a value. Raises `UsageError` for keys of which a dict holds one and the grid
        several, such as 1 and True."""
        wanted = list(keys)
        found = await self.get_data(self._types.distinct_keys_data(wanted))
        try:
            return self._types.entries_of(wanted, found)
        except (StoredTypeError, UnknownSchema):
            pass  # the key is named, or the schema is fetched
        restored = {}
        for key, data in zip(wanted, found, strict=True):
            if data is not None:
                restored[key] = await self._restored(key, data)
        return restored

    async def put_all(
        self,
        entries: Mapping[K, V] | Iterable[tuple[K, V]],
        ttl: Duration | None = None,
        *,
        max_idle: Duration | None = None,
    ) -> None:
        """Store entries, which expire after `ttl` seconds (None: never). `max_idle`: as in `put`. After an error some can be
        stored."""
        if self._waits_for_settings:
            await self._caller.table()  # entries are grouped by it anyway
            self._waits_for_settings = False
        keys, values = self._types.entries_data(entries)
        await self.put_data(keys, values, ttl_to_ms(ttl), idle_to_ms(max_idle))

    def schema(self) -> MapSchema | None:
        """Return the schema of the map's rows, which writes of Spark store (`str` of it is as SQL writes columns), by the newest
        table known. None: the map has none."""
        return self._types.schema()

    async def size(self) -> int:
        """Return the number of entries: the sum over all partitions, each counted at its own moment."""
        return await run_plan(self._plans.size(), self._caller)

    async def clear(self) -> None:
        """Remove all entries, partition by partition."""
        await run_plan(self._plans.clear(), self._caller)

    # --- serialised entries ----------------------------------------------------------------------------------------

    async def get_data(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the serialised value of each serialised key (`phalanx.codec.values`); None: the key has no value."""
        return await run_plan(self._plans.get_data(keys), self._caller)

    async def decode(self, data: bytes) -> Any:
        """Return the value of serialised bytes of this map, which `get_data` or a journal gave, as it is stored: without the map's
        types. Schemas of Compact objects are fetched. Raises `CorruptDataError`."""
        read = self._stored_of
        try:
            return read(data)
        except UnknownSchema as error:
            return await run_plan(read_again(self._caller, self.name, error, lambda: read(data)), self._caller)

    async def put_data(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0, max_idle_ms: int = 0) -> None:
        """Store serialised entries, which expire after `ttl_ms` (0: never), and when nobody uses them for `max_idle_ms` (0: the
        map's idle time). After an error some can be stored."""
        await run_plan(self._plans.put_data(keys, values, ttl_ms, max_idle_ms), self._caller)

    async def scan_data(
        self, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> AsyncIterator[tuple[list[bytes], list[bytes]]]:
        """Yield pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: the partition count to which the partition numbers refer; None: the present one.
        """
        count = of or self._caller.partition_count
        scan = self._plans.scan_data(range(count) if partitions is None else partitions, count)
        while (pages := await run_plan(scan.next_pages(), self._caller)) is not None:
            for page in pages:
                if page.keys:
                    yield page.keys, page.values

    # --- how members are asked -------------------------------------------------------------------------------------

    async def _wait_for_settings(self, *values: object) -> None:
        """Wait for the first table, if the map's settings say how one of these values is stored."""
        if not self._types.knows_settings():
            if not any(map(self._types.depends_on_settings, values)):
                return
            await self._caller.table()
        self._waits_for_settings = False

    async def _put_if_absent(
        self, key: K, value: V, ttl: Duration | None, max_idle: Duration | None = None
    ) -> bytes | None:
        if self._waits_for_settings:
            await self._wait_for_settings(value)
        data, caller = self._key_data(key), self._caller
        number, ttl_ms = caller.next_id(), ttl_to_ms(ttl)
        request = PutIfAbsent(
            number, self.name, data, self._value_data(value), ttl_ms, 0, caller.open_from, idle_to_ms(max_idle)
        )
        return expect(await self._call(data, request), ValueReply, "put_if_absent").value

    async def _remove(self, key: K) -> bytes | None:
        data, caller = self._key_data(key), self._caller
        number = caller.next_id()
        request = Remove(number, self.name, data, 0, caller.open_from)
        return expect(await self._call(data, request), ValueReply, "remove").value

    async def _write_fenced(self, key: K, data: bytes, value: bytes | None, ttl_ms: int, fence: int, what: str) -> Any:
        caller = self._caller
        number = caller.next_id()
        request = fenced_request(number, self.name, data, value, ttl_ms, fence, caller.open_from)
        return await self._result(key, await self._call(data, request), what)

    async def _update(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None, max_idle_ms: int | None = KEPT
    ) -> Any:
        request = self._update_request(key, function, arguments, ttl_ms, max_idle_ms)
        return await self._result(key, await self._call(request.key, request), function)

    def _update_request(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None = KEPT, max_idle_ms: int | None = KEPT
    ) -> UpdateValue:
        data, caller = self._key_data(key), self._caller
        number = caller.next_id()
        return UpdateValue(number, self.name, data, function, arguments, ttl_ms, 0, caller.open_from, max_idle_ms)

    async def _result(self, key: K, reply: Any, what: str) -> Any:
        """Return the result in a reply about this key, which can lack schemas."""
        read = self._stored_of
        try:
            return result_of(reply, what, read)
        except UnknownSchema as error:
            return await self._read_again(error, key, lambda again: result_of(again, what, read), reply)

    async def _restored(self, key: K, data: bytes) -> V:
        """Return a value that can lack schemas."""
        try:
            return self._value_of(data)
        except StoredTypeError as error:
            raise of_key(error, key) from error
        except UnknownSchema as error:
            return await self._read_again(error, key, self._value_of, data)

    async def _read_again(self, error: UnknownSchema, key: K, read: Callable[[Any], T], given: Any) -> T:
        """Fetch the schemas that a value of this key lacks, and return what is read of what is given."""
        try:
            return await run_plan(read_again(self._caller, self.name, error, lambda: read(given)), self._caller)
        except (StoredTypeError, UnknownSchema) as failure:
            raise of_key(failure, key) from failure

    def _call(self, key: bytes, request: Any) -> Awaitable[Any]:
        return self._caller.call(partition_of(key, self._caller.partition_count), request)

    def _lock_terms(
        self, key: K, lease: Duration, wait: Duration | None, *, permits: int = 0, reentrant: bool = False
    ) -> LockTerms:
        plain = self._types.plain_key(key)
        return lock_terms(self.name, to_key_data(plain), plain, lease, wait, permits=permits, reentrant=reentrant)
