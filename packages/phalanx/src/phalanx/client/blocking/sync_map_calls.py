"""The calls of a blocking map that are those of the asyncio one.

Written by scripts/blocking_api.py from maps/async_map_calls.py: change that, and run the script.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar, overload

from phalanx.client.blocking.plan_runner import PlanClient, run_plan
from phalanx.client.blocking.sync_leases import SyncLocks
from phalanx.client.blocking.sync_locks import SyncLock
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.durations import Duration
from phalanx.common.errors import StoredTypeError, UnknownSchema
from phalanx.common.map_schema import MapSchema
from phalanx.common.public_names import PublicNames
from phalanx.common.words import quoted
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


class MapClient(PlanClient, Protocol):
    """What maps need of a client or member."""

    @property
    def locks(self) -> SyncLocks:
        """Return the locks that the client or member holds."""


class SyncMapCalls(PublicNames, Generic[K, V]):
    """The calls of a map that take keys and values, and those about all entries."""

    _internal = frozenset({"decode"})

    def __init__(self, name: str, client: MapClient, types: MapTypes[K, V] = UNTYPED) -> None:
        self.name = name
        self.client = client
        self._types = types
        # Bound here, because the fastest calls take no longer than a few of these look-ups.
        self._key_data, self._value_data = types.key_data, types.value_data
        self._key_of, self._value_of, self._stored_of = types.key_of, types.value_of, types.stored_of
        self._plans = MapPlans(name, client)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({quoted(self.name)}{self._types.shown})"

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of the key, or the default if it has none."""
        data = self._key_data(key)
        client = self.client
        reply = client.call(partition_of(data, client.partition_count), Get(client.next_id(), self.name, data))
        value = expect(reply, ValueReply, "get").value
        if value is None:
            return default
        try:
            return self._value_of(value)
        except (StoredTypeError, UnknownSchema):
            return self._restored(key, value)

    def put(
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
        data, client = self._key_data(key), self.client
        if fence is not None:
            refuse_both(max_idle, fence)
            self._write_fenced(key, data, self._value_data(value), ttl_to_ms(ttl), fence, "put")
            return
        ttl_ms, idle_ms = ttl_to_ms(ttl) if ttl is not None else 0, idle_to_ms(max_idle) if max_idle is not None else 0
        number = client.next_id()
        request = Put(number, self.name, data, self._value_data(value), ttl_ms, 0, number, idle_ms)
        expect(client.call(partition_of(data, client.partition_count), request), DoneReply, "put")

    def put_if_absent(
        self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None
    ) -> V | None:
        """Store a value unless the key has one. Return the present value (nothing changed), or None (stored). `ttl`,
        `max_idle`: as in `put`."""
        present = self._put_if_absent(key, value, ttl, max_idle)
        return None if present is None else self._restored(key, present)

    def replace(self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None) -> bool:
        """Store a value only if the key has one. Return whether it had. `ttl`, `max_idle`: as in `put`."""
        data, client = self._key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = Replace(
            number, self.name, data, None, self._value_data(value), ttl_ms, 0, number, idle_to_ms(max_idle)
        )
        return expect(self._call(data, request), FlagReply, "replace").flag

    def compare_and_set(
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
        data, client = self._key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = Replace(
            number,
            self.name,
            data,
            self._value_data(expected),
            self._value_data(value),
            ttl_ms,
            0,
            number,
            idle_to_ms(max_idle),
        )
        return expect(self._call(data, request), FlagReply, "compare_and_set").flag

    def remove(self, key: K, *, fence: int | None = None) -> V | None:
        """Remove the key. Return the value that it had, or None. `fence`: as in `put`."""
        if fence is not None:
            before = self._write_fenced(key, self._key_data(key), None, 0, fence, "remove")
            return None if before is None else self._types.from_plain(before)
        present = self._remove(key)
        return None if present is None else self._restored(key, present)

    def contains(self, key: object) -> bool:
        """Return whether the key has a value."""
        data = self._key_data(key)
        request = Contains(self.client.next_id(), self.name, data)
        return expect(self._call(data, request), FlagReply, "contains").flag

    def get_and_put(
        self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None
    ) -> V | None:
        """Store a value, which expires after `ttl` seconds (None: never). `max_idle`: as in `put`. Return the value before,
        or None."""
        lives = ttl_to_ms(ttl), map_or_ms(max_idle)
        before = self._update(key, "get_and_put", [self._value_data(value)], *lives)
        return None if before is None else self._types.from_plain(before)

    def get_and_replace(
        self, key: K, value: V, ttl: Duration | None = None, *, max_idle: Duration | None = None
    ) -> V | None:
        """Store a value only if the key has one. Return that, or None (nothing changed). `ttl`, `max_idle`: as in `put`."""
        lives = ttl_to_ms(ttl), map_or_ms(max_idle)
        before = self._update(key, "get_and_replace", [self._value_data(value)], *lives)
        return None if before is None else self._types.from_plain(before)

    def remove_if(self, key: K, expected: V) -> bool:
        """Remove the key only if it has the expected value (compared as serialised). Return whether it had."""
        return bool(self._update(key, "remove_if", [self._value_data(expected)], KEPT))

    def increment(
        self, key: K, by: float | Decimal = 1, initial: float | Decimal | None = 0, ttl: Duration | None = None
    ) -> V:
        """Add a number to the value, or to `initial` if the key has none, and return the sum, as Python adds them.

        `initial`: None: the key must have a value. `ttl`: seconds that the entry lives from now on; None: as it was. Raises
        `KeyError` if `initial` is None and the key has no value, and `UsageError` if the value is not an int, float or Decimal, or
        cannot be added to `by`; both change nothing.
        """
        numbers = numbers_data(by, initial)
        return self._types.from_plain(sum_of(self._update(key, "increment", numbers, kept_or_ms(ttl)), key))

    def touch(self, key: K, ttl: Duration | None = None, *, max_idle: Duration | None = None) -> bool:
        """Let the entry live for `ttl` seconds from now on, and while it is used within every `max_idle` seconds; what is
        not given stays as it was. Return whether there is one."""
        lives_ms, idle_ms = new_lives_ms(ttl, max_idle)
        return bool(self._update(key, "touch", [], lives_ms, idle_ms))

    def persist(self, key: K) -> bool:
        """Remove the entry's time to live, so that it never expires. Return whether there is one."""
        return bool(self._update(key, "touch", [], FOR_EVER, FOR_EVER))

    def time_to_live(self, key: K) -> float | None:
        """Return how many seconds the entry lives from now on; None: without end. Raises `KeyError` if there is none."""
        data = self._key_data(key)
        request = GetTimeToLive(self.client.next_id(), self.name, data)
        return seconds_left(self._call(data, request), key)

    def lock(
        self, key: K, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S, reentrant: bool = False
    ) -> SyncLock:
        """Return the lock of a key, which need not have a value. One thread at a time holds it.

        `lease`: seconds after which it is free when its holder was not heard of; `wait`: seconds to wait for it (None:
        without end); `reentrant`: whether the thread that holds it can acquire it again. Raises `UsageError`.
        """
        return SyncLock(self._lock_terms(key, lease, wait, reentrant=reentrant), self.client.locks)

    def semaphore(self, key: K, permits: int, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S) -> SyncLock:
        """Return the semaphore of a key, which at most `permits` threads hold at a time; `lease` and `wait` as in `lock`."""
        return SyncLock(self._lock_terms(key, lease, wait, permits=check_permits(permits)), self.client.locks)

    def update_all(self, keys: Iterable[K], function: str, *arguments: object) -> dict[K, Any]:
        """Let a function change the value of each key, as `update` does; return the keys and what it returned for them.

        Each key is changed once, and by itself. After an error some can be changed, and others not. Raises `UsageError`, and
        changes nothing, for keys of which a dict holds one and the grid several, such as 1 and True.
        """
        found: dict[Any, Any] = {}
        datas = datas_of(function, arguments, self._types.argument_data)
        given = list(keys)
        self._types.distinct_keys_data(given)
        for lot in in_lots(given):
            found |= zip(lot, self._update_lot(lot, function, datas), strict=True)
        return found

    @abstractmethod
    def _update_lot(self, keys: list[K], function: str, arguments: list[bytes]) -> list[Any]:
        """Let a function change the value of some keys at a time, and return the results. All have ended before an error is raised."""

    def update_where(self, condition: str | Condition | Iterable[Condition], function: str, *arguments: object) -> int:
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
        client = self.client
        plan = self._plans.update_where(wanted, function, datas, lambda number: number)
        return run_plan(plan, client)

    def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the entries of those keys that have a value. Raises `UsageError` for keys of which a dict holds one and the grid
        several, such as 1 and True."""
        wanted = list(keys)
        found = self.get_data(self._types.distinct_keys_data(wanted))
        try:
            return self._types.entries_of(wanted, found)
        except (StoredTypeError, UnknownSchema):
            pass  # the key is named, or the schema is fetched
        restored = {}
        for key, data in zip(wanted, found, strict=True):
            if data is not None:
                restored[key] = self._restored(key, data)
        return restored

    def put_all(
        self,
        entries: Mapping[K, V] | Iterable[tuple[K, V]],
        ttl: Duration | None = None,
        *,
        max_idle: Duration | None = None,
    ) -> None:
        """Store entries, which expire after `ttl` seconds (None: never). `max_idle`: as in `put`. After an error some can be
        stored."""
        keys, values = self._types.entries_data(entries)
        self.put_data(keys, values, ttl_to_ms(ttl), idle_to_ms(max_idle))

    def schema(self) -> MapSchema | None:
        """Return the schema of the map's rows, which writes of Spark store (`str` of it is as SQL writes columns), by the newest
        table known. None: the map has none."""
        return self._types.schema()

    def size(self) -> int:
        """Return the number of entries: the sum over all partitions, each counted at its own moment."""
        return run_plan(self._plans.size(), self.client)

    def clear(self) -> None:
        """Remove all entries, partition by partition."""
        run_plan(self._plans.clear(), self.client)

    # --- serialised entries ----------------------------------------------------------------------------------------

    def get_data(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the serialised value of each serialised key (`phalanx.codec.values`); None: the key has no value."""
        return run_plan(self._plans.get_data(keys), self.client)

    def decode(self, data: bytes) -> Any:
        """Return the value of serialised bytes of this map, which `get_data` or a journal gave, as it is stored: without the map's
        types. Schemas of Compact objects are fetched. Raises `CorruptDataError`."""
        read = self._stored_of
        try:
            return read(data)
        except UnknownSchema as error:
            return run_plan(read_again(self.client, self.name, error, lambda: read(data)), self.client)

    def put_data(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0, max_idle_ms: int = 0) -> None:
        """Store serialised entries, which expire after `ttl_ms` (0: never), and when nobody uses them for `max_idle_ms` (0: the
        map's idle time). After an error some can be stored."""
        run_plan(self._plans.put_data(keys, values, ttl_ms, max_idle_ms), self.client)

    def scan_data(
        self, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: the partition count to which the partition numbers refer; None: the present one.
        """
        count = of or self.client.partition_count
        scan = self._plans.scan_data(range(count) if partitions is None else partitions, count)
        while (pages := run_plan(scan.next_pages(), self.client)) is not None:
            for page in pages:
                if page.keys:
                    yield page.keys, page.values

    # --- how members are asked -------------------------------------------------------------------------------------

    def _put_if_absent(self, key: K, value: V, ttl: Duration | None, max_idle: Duration | None = None) -> bytes | None:
        data, client = self._key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = PutIfAbsent(number, self.name, data, self._value_data(value), ttl_ms, 0, number, idle_to_ms(max_idle))
        return expect(self._call(data, request), ValueReply, "put_if_absent").value

    def _remove(self, key: K) -> bytes | None:
        data, client = self._key_data(key), self.client
        number = client.next_id()
        request = Remove(number, self.name, data, 0, number)
        return expect(self._call(data, request), ValueReply, "remove").value

    def _write_fenced(self, key: K, data: bytes, value: bytes | None, ttl_ms: int, fence: int, what: str) -> Any:
        client = self.client
        number = client.next_id()
        request = fenced_request(number, self.name, data, value, ttl_ms, fence, number)
        return self._result(key, self._call(data, request), what)

    def _update(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None, max_idle_ms: int | None = KEPT
    ) -> Any:
        request = self._update_request(key, function, arguments, ttl_ms, max_idle_ms)
        return self._result(key, self._call(request.key, request), function)

    def _update_request(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None = KEPT, max_idle_ms: int | None = KEPT
    ) -> UpdateValue:
        data, client = self._key_data(key), self.client
        number = client.next_id()
        return UpdateValue(number, self.name, data, function, arguments, ttl_ms, 0, number, max_idle_ms)

    def _result(self, key: K, reply: Any, what: str) -> Any:
        """Return the result in a reply about this key, which can lack schemas."""
        read = self._stored_of
        try:
            return result_of(reply, what, read)
        except UnknownSchema as error:
            return self._read_again(error, key, lambda again: result_of(again, what, read), reply)

    def _restored(self, key: K, data: bytes) -> V:
        """Return a value that can lack schemas."""
        try:
            return self._value_of(data)
        except StoredTypeError as error:
            raise of_key(error, key) from error
        except UnknownSchema as error:
            return self._read_again(error, key, self._value_of, data)

    def _read_again(self, error: UnknownSchema, key: K, read: Callable[[Any], T], given: Any) -> T:
        """Fetch the schemas that a value of this key lacks, and return what is read of what is given."""
        try:
            return run_plan(read_again(self.client, self.name, error, lambda: read(given)), self.client)
        except (StoredTypeError, UnknownSchema) as failure:
            raise of_key(failure, key) from failure

    def _call(self, key: bytes, request: Any) -> Any:
        return self.client.call(partition_of(key, self.client.partition_count), request)

    def _lock_terms(
        self, key: K, lease: Duration, wait: Duration | None, *, permits: int = 0, reentrant: bool = False
    ) -> LockTerms:
        plain = self._types.plain_key(key)
        return lock_terms(self.name, to_key_data(plain), plain, lease, wait, permits=permits, reentrant=reentrant)
