"""The blocking map: a `MutableMapping` that all processes of the cluster share."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from typing import Any, TypeVar, overload

from phalanx.client.blocking.packed_rows import put_round, rounds_of
from phalanx.client.blocking.plan_runner import run_plan
from phalanx.client.blocking.sync_map_calls import SyncMapCalls
from phalanx.codec.hashing import partition_of
from phalanx.common.errors import StoredTypeError, UnknownSchema, UsageError
from phalanx.common.words import quoted
from phalanx.grid.serving.judging import judged
from phalanx.maps.mistakes import KnowsOtherClients
from phalanx.maps.requests import expect
from phalanx.maps.types import K, V
from phalanx.maps.updates import KEPT, datas_of
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import MAX_ROWS
from phalanx.wire.messages import Get, PackedReply, ValueReply

T = TypeVar("T")

_NONE: Any = object()


class _Items(ItemsView[K, V]):
    """A view that scans the entries. The standard one looks up each key, which can be removed by then."""

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


class SyncMap(SyncMapCalls[K, V], MutableMapping[K, V], KnowsOtherClients):
    """A map of the grid, a `MutableMapping` that blocks. Keys and values must be of types that `phalanx.codec.values` can store; others raise
    `UsageError`.

    `K` and `V` are the types of its keys and values: any, unless `map(name, key=…, value=…)` names them. A `Duration` is a number of
    seconds, or a `datetime.timedelta`.

    Every method raises `UnavailableError` if no owner could be asked in time: then nothing was changed. Writes raise
    `IndeterminateWrite` if an owner was asked and did not answer in time. A write of one key is applied once, however
    many times it was sent.
    """

    _internal = frozenset({"client", "everywhere", "iter_items", "put_packed", "scan_packed"})

    # --- MutableMapping --------------------------------------------------------------------------------------------

    def __getitem__(self, key: K) -> V:
        value = self._get(key)
        if value is None:
            raise KeyError(key)
        try:
            return self._value_of(value)
        except (StoredTypeError, UnknownSchema):
            return self._restored(key, value)

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

    def items(self) -> ItemsView[K, V]:
        """Return a view of all entries. An entry that is removed during an iteration can come or not."""
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
                except (StoredTypeError, UnknownSchema):
                    found = self._restored(restored, value)
                yield restored, found

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

    def _update_lot(self, keys: list[K], function: str, arguments: list[bytes]) -> list[Any]:
        requests, count = [self._update_request(key, function, arguments) for key in keys], self.client.partition_count
        replies = self.client.call_all([(partition_of(each.key, count), each) for each in requests])
        return [self._result(key, reply, function) for key, reply in zip(keys, replies, strict=True)]

    # --- serialised entries ----------------------------------------------------------------------------------------

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        """Store entries that the caller has packed (`codec.rows`) by partition, of `of` partitions."""
        for some in rounds_of(parts, MAX_ROWS):
            put_round(self.client, self.name, some, of, ttl_ms, lambda partition, of: 0, "put_all")

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
        while (pages := run_plan(scan.next_pages(), self.client)) is not None:
            for page in pages:
                if wanted:
                    page = judged(page, wanted, key_parts, self.decode)
                if page.key_sizes:
                    yield page

    def _get(self, key: K) -> bytes | None:
        data, client = self._key_data(key), self.client
        reply = client.call(partition_of(data, client.partition_count), Get(client.next_id(), self.name, data))
        return expect(reply, ValueReply, "get").value

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
        return run_plan(plan, self.client)
