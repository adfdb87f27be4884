"""The blocking map: a `MutableMapping` that all processes of the cluster share."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from decimal import Decimal
from typing import Any, Protocol, TypeVar, overload

from phalanx.client.packed_rows import put_round, rounds_of
from phalanx.client.plan_driver import PlanClient, apply_step
from phalanx.client.sync_locks import SyncLock, SyncLocks
from phalanx.codec.hashing import partition_of
from phalanx.common.durations import Duration
from phalanx.common.errors import StoredTypeError, UnknownSchema, UsageError
from phalanx.common.map_schema import MapSchema
from phalanx.common.words import quoted
from phalanx.grid.serving.judging import judged
from phalanx.maps.locks import LEASE_S, WAIT_S, fenced_request
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.mistakes import KnowsOtherClients
from phalanx.maps.requests import expect, idle_to_ms, ttl_to_ms
from phalanx.maps.types import UNTYPED, K, MapTypes, V, of_first_key, of_key
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
    update_request,
)
from phalanx.maps.where import conditions_of
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import MAX_ROWS
from phalanx.wire.messages import (
    Contains,
    DoneReply,
    FlagReply,
    Get,
    GetTimeToLive,
    PackedReply,
    Put,
    PutIfAbsent,
    Remove,
    Replace,
    UpdateValue,
    ValueReply,
)

T = TypeVar("T")

_NONE: Any = object()


class _Items(ItemsView[K, V]):
    """A view that scans the entries. The standard one looks up each key, which may be removed by then."""

    _mapping: SyncMap[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.iter_items()


class _Values(ValuesView[V]):
    """A view that scans the values, as `_Items` does."""

    _mapping: SyncMap[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.iter_items())

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)


class MapClient(PlanClient, Protocol):
    """What maps need of a blocking client."""

    @property
    def locks(self) -> SyncLocks:
        """Return the locks that the client holds."""


class SyncMap(KnowsOtherClients, MutableMapping[K, V]):
    """A map of the grid, a `MutableMapping` that blocks. Keys and values must be of types that `phalanx.codec.values` can store; others raise
    `UsageError`.

    `K` and `V` are the types of its keys and values: any, unless `map(name, key=…, value=…)` names them. A `Duration` is a number of
    seconds, or a `datetime.timedelta`.

    Every method raises `UnavailableError` if no owner could be asked in time: then nothing was changed. Writes raise
    `IndeterminateWrite` if an owner was asked and did not answer in time. A write of one key is applied once, however
    many times it was sent.
    """

    _internal = frozenset({"client", "decode", "everywhere", "iter_items", "put_packed", "scan_packed"})

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

    # --- MutableMapping --------------------------------------------------------------------------------------------

    def __getitem__(self, key: K) -> V:
        value = self._get(key)
        if value is None:
            raise KeyError(key)
        try:
            return self._value_of(value)
        except (StoredTypeError, UnknownSchema) as error:
            raise of_key(error, key) from error

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        if self._remove(key) is None:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        """Yield all keys. A key that stays in the map throughout comes exactly once, also when an owner dies."""
        for keys, _ in self.scan_data():
            for key in keys:
                yield self._key_of(key)

    def __len__(self) -> int:
        return self.size()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SyncMap) and (self.name, self.client) == (other.name, other.client))

    def __hash__(self) -> int:
        return hash((self.name, id(self.client)))

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T) -> V | T: ...
    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of the key, or the default if it has none."""
        data, client = self._key_data(key), self.client
        reply = client.call(partition_of(data, client.partition_count), Get(client.next_id(), self.name, data))
        value = expect(reply, ValueReply, "get").value
        try:
            return default if value is None else self._value_of(value)
        except (StoredTypeError, UnknownSchema) as error:
            raise of_key(error, key) from error

    def items(self) -> ItemsView[K, V]:
        """Return a view of all entries. An entry that is removed during an iteration may come or not."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of all values, as `items` does of entries."""
        return _Values(self)

    @overload
    def pop(self, key: K) -> V: ...
    @overload
    def pop(self, key: K, default: V | T) -> V | T: ...
    def pop(self, key: K, default: Any = _NONE) -> Any:
        """Remove the key. Return its value, else the default. Raises `KeyError` if it has neither."""
        present = self._remove(key)
        if present is not None:
            return self._restored(key, present)
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[K, V]:
        """Remove an arbitrary entry, and return it. Raises `KeyError` if the map is empty."""
        for key in self:
            present = self._remove(key)
            if present is not None:
                return key, self._restored(key, present)
        raise KeyError("popitem: the map is empty")

    @overload
    def setdefault(self: SyncMap[K, T | None], key: K, default: None = None) -> T | None: ...
    @overload
    def setdefault(self, key: K, default: V) -> V: ...
    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of the key. If it has none, store the default, and return that."""
        present = self._put_if_absent(key, default, None)
        return default if present is None else self._restored(key, present)

    def iter_items(self) -> Iterator[tuple[K, V]]:
        """Yield all entries, a page per request. An entry that stays in the map throughout comes exactly once."""
        for keys, values in self.scan_data():
            for key, value in zip(keys, values, strict=True):
                restored = self._key_of(key)
                try:
                    found = self._value_of(value)
                except (StoredTypeError, UnknownSchema) as error:
                    raise of_key(error, restored) from error
                yield restored, found

    # --- further operations ----------------------------------------------------------------------------------------

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
            self._result(key, self._write_fenced(data, self._value_data(value), ttl_to_ms(ttl), fence), "put")
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
            before = self._result(key, self._write_fenced(self._key_data(key), None, 0, fence), "remove")
            return None if before is None else self._types.from_plain(before)
        present = self._remove(key)
        return None if present is None else self._restored(key, present)

    def contains(self, key: object) -> bool:
        """Return whether the key has a value."""
        data = self._key_data(key)
        return expect(self._call(data, Contains(self.client.next_id(), self.name, data)), FlagReply, "contains").flag

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
        `KeyError` if `initial` is None and the key has no value, and `UsageError` if the value is no int, float or Decimal, or
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
        """Let the entry live for ever. Return whether there is one."""
        return bool(self._update(key, "touch", [], FOR_EVER, FOR_EVER))

    def time_to_live(self, key: K) -> float | None:
        """Return how many seconds the entry lives from now on; None: for ever. Raises `KeyError` if there is none."""
        data = self._key_data(key)
        request = GetTimeToLive(self.client.next_id(), self.name, data)
        return seconds_left(self._call(data, request), key)

    def lock(
        self, key: K, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S, reentrant: bool = False
    ) -> SyncLock:
        """Return the lock of a key, which need not have a value. One thread at a time holds it.

        `lease`: seconds after which it is free when its holder was not heard of; `wait`: seconds to wait for it (None:
        without end); `reentrant`: whether the thread that holds it may acquire it again. Raises `UsageError`.
        """
        return self.client.locks.lock(self.name, self._types.plain_key(key), lease, wait, reentrant=reentrant)

    def semaphore(self, key: K, permits: int, *, lease: Duration = LEASE_S, wait: Duration | None = WAIT_S) -> SyncLock:
        """Return the semaphore of a key, which at most `permits` threads hold at a time; `lease` and `wait` as in `lock`."""
        return self.client.locks.semaphore(self.name, self._types.plain_key(key), permits, lease, wait)

    # More than a dict's: with two arguments or more the first is a key.
    @overload  # type: ignore[override]
    def update(self, key: K, function: str, /, *arguments: object) -> Any: ...
    @overload
    def update(self, other: Mapping[K, V] | Iterable[tuple[K, V]] = (), /, **entries: V) -> None: ...
    def update(self, /, *arguments: Any, **entries: Any) -> Any:
        """Let a function that the members know by its name change the value; return what the function returns.

        It runs once, at the owner of the key; the entry's time to live stays. Every member has `append` (items; returns
        the length), `extend` (a list; the length), `add_to_set`, `discard` (an item; whether it was changed), `merge` (a
        dict, as JSON merge patch; the dict then), `max`, `min` (a value; the value then). Lists and dicts begin empty.
        Given one mapping, or pairs, as a dict's `update`: stores them with `put_all`. Raises `UsageError`, and changes nothing, if there is no such function, or it refuses value or arguments.
        """
        if len(arguments) < 2:
            other: Any = arguments[0] if arguments else ()
            pairs = ((key, other[key]) for key in other.keys()) if hasattr(other, "keys") else other  # noqa: SIM118 - as a dict does
            both: list[Any] = [*pairs, *entries.items()]
            self.put_all(both)
            return None
        key, function, *given = arguments
        if entries:
            raise UsageError(f"update: {quoted(function)} takes no arguments by name, but got {', '.join(entries)}")
        return self._update(key, function, datas_of(function, tuple(given), self._types.argument_data), KEPT)

    def update_all(self, keys: Iterable[K], function: str, *arguments: object) -> dict[K, Any]:
        """Let a function change the value of each key, as `update` does; return the keys and what it returned for them.

        Each key is changed once, and by itself. After an error some may be changed, and others not. Raises `UsageError`, and
        changes nothing, for keys of which a dict holds one and the grid several, such as 1 and True.
        """
        found: dict[Any, Any] = {}
        datas = datas_of(function, arguments, self._types.argument_data)
        given = list(keys)
        self._types.distinct_keys_data(given)
        for lot in in_lots(given):
            requests = [self._update_request(key, function, datas, KEPT, KEPT) for key in lot]
            count = self.client.partition_count
            replies = self.client.call_all([(partition_of(each.key, count), each) for each in requests])
            found |= ((key, self._result(key, reply, function)) for key, reply in zip(lot, replies, strict=True))
        return found

    def update_where(self, condition: str | Condition | Iterable[Condition], function: str, *arguments: object) -> int:
        """Let a function change the value of every entry that fulfils a condition, where it lives; return how many were
        changed.

        `condition`: a text such as `"price > 10 and city in ('Oslo', 'Rome')"` (`"true"`: every entry), or conditions as
        scans take them. Members call the function in slices of some milliseconds, and go on serving others in between.
        An entry that fulfils the condition all the time is changed once, also when owners change; what is written
        meanwhile is judged as it is at its turn. Raises `UpdateFailed` at the end if the function refused entries: these
        are as they were. Raises `UsageError` for a condition or function that members do not know. After other errors
        some entries may be changed; calling again would change these again. Dividing partitions meanwhile may raise
        `IndeterminateWrite`.
        """
        wanted, datas = conditions_of(condition), datas_of(function, arguments, self._types.argument_data)
        return apply_step(self._plans.update_where(wanted, function, datas, lambda number: number), self.client)

    def get_all(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the entries of those keys that have a value. Raises `UsageError` for keys of which a dict holds one and the grid
        several, such as 1 and True."""
        wanted = list(keys)
        found = self.get_data(self._types.distinct_keys_data(wanted))
        try:
            return self._types.entries_of(wanted, found)
        except (StoredTypeError, UnknownSchema) as error:
            raise of_first_key(error, wanted, found, self._value_of) from error

    def put_all(
        self,
        entries: Mapping[K, V] | Iterable[tuple[K, V]],
        ttl: Duration | None = None,
        *,
        max_idle: Duration | None = None,
    ) -> None:
        """Store entries, which expire after `ttl` seconds (None: never). `max_idle`: as in `put`. After an error some may be
        stored."""
        keys, values = self._types.entries_data(entries)
        self.put_data(keys, values, ttl_to_ms(ttl), idle_to_ms(max_idle))

    def schema(self) -> MapSchema | None:
        """Return the schema of the map's rows, which writes of Spark store (`str` of it is as SQL writes columns), by the newest
        table known. None: the map has none."""
        return self._types.schema()

    def size(self) -> int:
        """Return the number of entries: the sum over all partitions, each counted at its own moment."""
        return apply_step(self._plans.size(), self.client)

    def clear(self) -> None:
        """Remove all entries, partition by partition."""
        apply_step(self._plans.clear(), self.client)

    # --- serialised entries ----------------------------------------------------------------------------------------

    def get_data(self, keys: list[bytes]) -> list[bytes | None]:
        """Return the serialised value of each serialised key (`phalanx.codec.values`); None: the key has no value."""
        return apply_step(self._plans.get_data(keys), self.client)

    def decode(self, data: bytes) -> Any:
        """Return the value of serialised bytes of this map, which `get_data` or a journal gave, as it is stored: without the map's
        types. Schemas of Compact objects are fetched. Raises `CorruptDataError`."""
        return self._stored_of(data)

    def put_data(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0, max_idle_ms: int = 0) -> None:
        """Store serialised entries, which expire after `ttl_ms` (0: never), and when nobody uses them for `max_idle_ms` (0: the
        map's idle time). After an error some may be stored."""
        apply_step(self._plans.put_data(keys, values, ttl_ms, max_idle_ms), self.client)

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        """Store entries that the caller has packed (`codec.rows`) by partition, of `of` partitions."""
        for some in rounds_of(parts, MAX_ROWS):
            put_round(self.client, self.name, some, of, ttl_ms, lambda partition, of: 0, "put_all")

    def scan_data(
        self, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: the partition count to which the partition numbers refer; None: the present one.
        """
        count = of or self.client.partition_count
        scan = self._plans.scan_data(range(count) if partitions is None else partitions, count)
        while (pages := apply_step(scan.next_pages(), self.client)) is not None:
            for page in pages:
                if page.keys:
                    yield page.keys, page.values

    def scan_packed(
        self,
        partitions: Iterable[int] | None = None,
        of: int | None = None,
        key_parts: int = 1,
        conditions: Sequence[Condition] = (),
        *,
        with_ttls: bool = False,
    ) -> Iterator[PackedReply]:
        """Scan like `scan_data`, but yield packed pages, for columns, of the entries that fulfil the conditions.

        `key_parts`: the number of key parts that the conditions assume. `with_ttls`: whether pages also have the
        remaining times to live.
        """
        wanted = tuple(conditions)
        count = of or self.client.partition_count
        listed = range(count) if partitions is None else partitions
        scan = self._plans.scan_packed(listed, count, key_parts, wanted, with_ttls)
        while (pages := apply_step(scan.next_pages(), self.client)) is not None:
            for page in pages:
                if wanted:
                    page = judged(page, wanted, key_parts, self._stored_of)
                if page.key_sizes:
                    yield page

    # --- how members are asked -------------------------------------------------------------------------------------

    def _get(self, key: K) -> bytes | None:
        data, client = self._key_data(key), self.client
        reply = client.call(partition_of(data, client.partition_count), Get(client.next_id(), self.name, data))
        return expect(reply, ValueReply, "get").value

    def _put_if_absent(self, key: K, value: V, ttl: Duration | None, max_idle: Duration | None = None) -> bytes | None:
        data, client = self._key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = PutIfAbsent(number, self.name, data, self._value_data(value), ttl_ms, 0, number, idle_to_ms(max_idle))
        return expect(self._call(data, request), ValueReply, "put_if_absent").value

    def _remove(self, key: K) -> bytes | None:
        data, number = self._key_data(key), self.client.next_id()
        request = Remove(number, self.name, data, 0, number)
        return expect(self._call(data, request), ValueReply, "remove").value

    def _write_fenced(self, key: bytes, value: bytes | None, ttl_ms: int, fence: int) -> Any:
        number = self.client.next_id()
        return self._call(key, fenced_request(number, self.name, key, value, ttl_ms, fence, number))

    def _update(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None, max_idle_ms: int | None = KEPT
    ) -> Any:
        request = self._update_request(key, function, arguments, ttl_ms, max_idle_ms)
        return self._result(key, self._call(request.key, request), function)

    def _result(self, key: K, reply: Any, what: str) -> Any:
        try:
            return result_of(reply, what, self._stored_of)
        except UnknownSchema as error:
            raise of_key(error, key) from error

    def _restored(self, key: K, data: bytes) -> V:
        """Return a value that was in the map before."""
        try:
            return self._value_of(data)
        except (StoredTypeError, UnknownSchema) as error:
            raise of_key(error, key) from error

    def _update_request(
        self, key: K, function: str, arguments: list[bytes], ttl_ms: int | None, max_idle_ms: int | None
    ) -> UpdateValue:
        data, number = self._key_data(key), self.client.next_id()
        return update_request(number, self.name, data, function, arguments, ttl_ms, number, max_idle_ms)

    def _call(self, key: bytes, request: Any) -> Any:
        return self.client.call(partition_of(key, self.client.partition_count), request)

    def everywhere(
        self,
        request: Callable[[list[int], int], Any],
        reply_kind: type[T],
        what: str,
        *,
        is_write: bool,
        most: int | None = None,
    ) -> list[T]:
        """Send requests to the owners of all partitions, and return the replies. Repeat refused ones until the
        deadline.

        `request`: makes a request for some partitions, given the partition count. `most`: partitions in one request.
        """
        plan = self._plans.everywhere(request, reply_kind, what, is_write=is_write, most=most)
        return apply_step(plan, self.client)
