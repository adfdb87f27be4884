"""The blocking map: a `MutableMapping` that all processes of the cluster share."""

from __future__ import annotations

import time
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar

from phalanx.client.packed_rows import put_round, rounds_of
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.table import PartitionTable
from phalanx.grid.judging import judged
from phalanx.grid.serialization import from_data, from_key_data, keys_to_data, to_data, to_key_data
from phalanx.maps.grouping import PARTS_AT_ONCE, OwnerGroups, Part
from phalanx.maps.requests import (
    PACKED_PAGE_BYTES,
    REGROUP,
    SCAN_PAGE_BYTES,
    as_for_the_whole,
    entries_to_data,
    expect,
    found_values,
    in_pieces,
    partitions_by_owner,
    raise_error,
    regrouped,
    ttl_to_ms,
)
from phalanx.maps.scanning import ScanPlan
from phalanx.maps.time_limit import TimeLimit
from phalanx.partition.hashing import partition_of
from phalanx.wire.conditions import Condition
from phalanx.wire.limits import MAX_ROWS
from phalanx.wire.messages import (
    ClearPartitions,
    Contains,
    CountReply,
    DoneReply,
    ErrorReply,
    FlagReply,
    Get,
    GetAll,
    PackedReply,
    PageReply,
    Put,
    PutAll,
    PutIfAbsent,
    Remove,
    Replace,
    ScanPacked,
    ScanPartition,
    SizeOf,
    ValueReply,
    ValuesReply,
)

if TYPE_CHECKING:
    from phalanx.client.sync import Client

REGROUP_PAUSE_S = 0.02

AT_ONCE_BYTES = 8 * 1024 * 1024
PACKED_PAGES_AT_ONCE = 16
"""Pages of a packed scan that are asked for at once: so many, and about so many bytes, by what the pages before had."""
SOUGHT_PAGES_AT_ONCE = 4
"""Of a scan with conditions: small pages may be much work for the member."""

R = TypeVar("R", PageReply, PackedReply)


_NONE: Any = object()


def _page_bytes(page: PageReply | PackedReply) -> int:
    return len(page.key_data) + len(page.value_data) if isinstance(page, PackedReply) else 0


T = TypeVar("T")


class _Items(ItemsView[Any, Any]):
    """Does not look up each key that was there a moment ago, as others do: it may be removed by now."""

    _mapping: SyncMap

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.iter_items()


class _Values(ValuesView[Any]):
    """As `_Items`."""

    _mapping: SyncMap

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping.iter_items())

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)


class SyncMap(MutableMapping[Any, Any]):
    """A map of the grid. Keys and values are what `phalanx.grid.serialization` can store.

    Every method raises `UnavailableError` when no owner could be asked in time (nothing was changed), and writes raise
    `IndeterminateWrite` when one was asked and no answer came in time. A write of one key is applied once, however many
    owners had to be asked for it.
    """

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client
        self._owner_groups = OwnerGroups()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # --- MutableMapping --------------------------------------------------------------------------------------------

    def __getitem__(self, key: object) -> Any:
        value = self._get(key)
        if value is None:
            raise KeyError(key)
        return from_data(value)

    def __setitem__(self, key: object, value: object) -> None:
        self.put(key, value)

    def __delitem__(self, key: object) -> None:
        if self._remove(key) is None:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        """All keys, streamed. Each that is there throughout comes exactly once, also when an owner dies."""
        for keys, _ in self.scan_data():
            for key in keys:
                yield from_key_data(key)

    def __len__(self) -> int:
        return self.size()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SyncMap) and (self.name, self.client) == (other.name, other.client))

    def __hash__(self) -> int:
        return hash((self.name, id(self.client)))

    def get(self, key: object, default: Any = None) -> Any:
        """The value of the key, or the default."""
        data, client = to_key_data(key), self.client
        reply = client.call(partition_of(data, client.partition_count), Get(client.next_id(), self.name, data))
        value = expect(reply, ValueReply, "get").value
        return default if value is None else from_data(value)

    def items(self) -> ItemsView[Any, Any]:
        """A view of all entries; iterated, they come with their keys: what is removed meanwhile comes or does not."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """A view of all values; as `items`."""
        return _Values(self)

    def pop(self, key: object, default: Any = _NONE) -> Any:
        """Remove the key. Returns the value that was removed; if there was none, the default. Raises `KeyError` without."""
        present = self._remove(key)
        if present is not None:
            return from_data(present)
        if default is _NONE:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Remove some entry, and return it. Raises `KeyError` if there is none."""
        for key in self:
            present = self._remove(key)
            if present is not None:
                return key, from_data(present)
        raise KeyError("popitem: the map is empty")

    def setdefault(self, key: object, default: Any = None) -> Any:
        """The value of the key; if it has none, it gets the default."""
        present = self._put_if_absent(key, default, None)
        return default if present is None else from_data(present)

    def iter_items(self) -> Iterator[tuple[Any, Any]]:
        """All entries, streamed, with one request a page."""
        for keys, values in self.scan_data():
            for key, value in zip(keys, values, strict=True):
                yield from_key_data(key), from_data(value)

    # --- further operations ----------------------------------------------------------------------------------------

    def put(self, key: object, value: object, ttl: float | None = None) -> None:
        """Store a value; it lives for `ttl` seconds, or for ever. Returns when all synchronous backups have it."""
        data, client = to_key_data(key), self.client
        ttl_ms = ttl_to_ms(ttl) if ttl is not None else 0
        number = client.next_id()
        request = Put(number, self.name, data, to_data(value), ttl_ms, 0, number)
        expect(client.call(partition_of(data, client.partition_count), request), DoneReply, "put")

    def put_if_absent(self, key: object, value: object, ttl: float | None = None) -> Any:
        """Store a value unless the key has one. Returns the value that was there (nothing changed), or None."""
        present = self._put_if_absent(key, value, ttl)
        return None if present is None else from_data(present)

    def replace(self, key: object, value: object, ttl: float | None = None) -> bool:
        """Store a value only if the key has one. Whether it had."""
        data, client = to_key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = Replace(number, self.name, data, None, to_data(value), ttl_ms, 0, number)
        return expect(self._call(data, request), FlagReply, "replace").flag

    def compare_and_set(self, key: object, expected: object, value: object, ttl: float | None = None) -> bool:
        """Store a value only if the key has exactly the expected one (compared as stored). Whether it had."""
        data, client = to_key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = Replace(number, self.name, data, to_data(expected), to_data(value), ttl_ms, 0, number)
        return expect(self._call(data, request), FlagReply, "compare_and_set").flag

    def remove(self, key: object) -> Any:
        """Remove the key. Returns the value that was there, or None."""
        present = self._remove(key)
        return None if present is None else from_data(present)

    def contains(self, key: object) -> bool:
        """Whether the key has a value."""
        data = to_key_data(key)
        return expect(self._call(data, Contains(self.client.next_id(), self.name, data)), FlagReply, "contains").flag

    def get_all(self, keys: Iterable[object]) -> dict[Any, Any]:
        """The values of those of the keys that have one."""
        wanted = list(keys)
        found = self.get_data(keys_to_data(wanted))
        return found_values(wanted, found)

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]], ttl: float | None = None) -> None:
        """Store many values. On an error some of them may be stored, each of them whole."""
        keys, values = entries_to_data(entries)
        self.put_data(keys, values, ttl_to_ms(ttl))

    def size(self) -> int:
        """How many entries there are: the sum over partitions, each counted at its own moment."""
        return sum([reply.count for reply in self._everywhere(SizeOf, CountReply, "size")])

    def clear(self) -> None:
        """Remove all entries, partition by partition."""
        self._everywhere(ClearPartitions, DoneReply, "clear")

    # --- serialised entries ----------------------------------------------------------------------------------------

    def get_data(self, keys: list[bytes]) -> list[bytes | None]:
        """The serialised values of serialised keys, None where there is none."""
        found: list[bytes | None] = [None] * len(keys)

        def request(part: Part) -> Any:
            return GetAll(self.client.next_id(), self.name, part.keys)

        def take(part: Part, reply: Any) -> Sequence[int]:
            values = expect(reply, ValuesReply, "get_all").values
            if len(values) == len(keys):
                found[:] = values
            else:
                for index, value in zip(part.indexes, values, strict=False):
                    found[index] = value
            return part.indexes[len(values) :]

        self._in_parts(keys, [], request, take, "get_all")
        return found

    def put_data(self, keys: list[bytes], values: list[bytes], ttl_ms: int = 0) -> None:
        """Store serialised entries."""
        if len(keys) != len(values):
            raise UsageError(f"put_data: {len(keys)} keys and {len(values)} values; give one value for each key")

        def request(part: Part) -> Any:
            return PutAll(self.client.next_id(), self.name, part.keys, part.values, ttl_ms)

        def take(part: Part, reply: Any) -> Sequence[int]:
            expect(reply, DoneReply, "put_all")
            return ()

        self._in_parts(keys, values, request, take, "put_all")

    def put_packed(self, parts: Mapping[int, bytes], of: int, ttl_ms: int = 0) -> None:
        """Store serialised entries that are packed already (`grid.rows`), by their partitions among `of`."""
        for some in rounds_of(parts, MAX_ROWS):
            put_round(self, some, of, ttl_ms, lambda partition, of: 0, "put_all")

    def scan_data(
        self, partitions: Iterable[int] | None = None, of: int | None = None
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Pages of serialised keys and values of some partitions, or all; each entry exactly once.

        `of`: how many partitions there were when they were listed; None: as many as there are now.
        """

        def request(partition: int, of: int, after: bytes) -> Any:
            return ScanPartition(self.client.next_id(), self.name, partition, of, after, SCAN_PAGE_BYTES)

        for page in self._pages(request, PageReply, partitions, of):
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
        """As `scan_data`, for programs that take entries as columns: pages of those that fulfil the conditions.

        `key_parts`: of how many parts the keys are, to those who wrote the conditions. `with_ttls`: say also how long
        each still lives.
        """
        wanted = tuple(conditions)

        def request(partition: int, of: int, after: bytes) -> Any:
            return ScanPacked(
                self.client.next_id(), self.name, partition, of, after, PACKED_PAGE_BYTES, key_parts, wanted, with_ttls
            )

        most = PACKED_PAGES_AT_ONCE if not wanted else SOUGHT_PAGES_AT_ONCE
        for page in self._pages(request, PackedReply, partitions, of, most):
            if wanted:
                page = judged(page, wanted, key_parts)
            if page.key_sizes:
                yield page

    def _pages(
        self,
        request: Callable[[int, int, bytes], Any],
        kind: type[R],
        partitions: Iterable[int] | None,
        of: int | None,
        most: int = 1,
    ) -> Iterator[R]:
        """The answers to these requests for one page each; pages of so many partitions at most are asked for at once."""
        count = of or self.client.partition_count
        plan = ScanPlan(range(count) if partitions is None else partitions, count)
        at_once = 1
        while True:
            limit = TimeLimit(self.client.call_timeout_s)
            self._catch_up(plan, limit)
            positions = plan.next_some(self.client.partition_count, at_once)
            if not positions:
                return
            pages = self._some_pages(request, kind, positions, limit)
            plan.note_some(pages)
            came = [page for page in pages if page is not None]
            yield from came
            if most > 1 and came:
                size = sum(_page_bytes(page) for page in came) // len(came)
                at_once = min(max(AT_ONCE_BYTES // (size + 1), 1), most)

    def _catch_up(self, plan: ScanPlan, limit: TimeLimit) -> None:
        """Wait until the table is known by which the partitions were numbered; the time limit of a call ends that."""
        while plan.knows_more_than(self.client.partition_count):
            text = f"no member has told of {plan.of} partitions: there are {self.client.partition_count}"
            refusal, table = ErrorReply(0, ErrorCode.UNAVAILABLE, text), self.client.partition_table()
            self.pause_or_raise(refusal, table, limit, "scan", may_be_done=False)

    # --- how parts are asked ---------------------------------------------------------------------------------------

    def _get(self, key: object) -> bytes | None:
        data, client = to_key_data(key), self.client
        reply = client.call(partition_of(data, client.partition_count), Get(client.next_id(), self.name, data))
        return expect(reply, ValueReply, "get").value

    def _put_if_absent(self, key: object, value: object, ttl: float | None) -> bytes | None:
        data, client = to_key_data(key), self.client
        number, ttl_ms = client.next_id(), ttl_to_ms(ttl)
        request = PutIfAbsent(number, self.name, data, to_data(value), ttl_ms, 0, number)
        return expect(self._call(data, request), ValueReply, "put_if_absent").value

    def _remove(self, key: object) -> bytes | None:
        data, number = to_key_data(key), self.client.next_id()
        request = Remove(number, self.name, data, 0, number)
        return expect(self._call(data, request), ValueReply, "remove").value

    def _call(self, key: bytes, request: Any) -> Any:
        return self.client.call(partition_of(key, self.client.partition_count), request)

    def _some_pages(
        self,
        request: Callable[[int, int, bytes], Any],
        kind: type[R],
        positions: Sequence[tuple[int, int, bytes]],
        limit: TimeLimit,
    ) -> Sequence[R | None]:
        """Pages from whoever owns their partitions by then: a position means the same everywhere.

        None: not this time; its owner changed, or the partitions were divided and this one's number means another.
        """
        while positions[0][1] == self.client.partition_count:
            table = self.client.partition_table()
            asked = [(position[0], request(*position)) for position in positions]
            replies = self.client.call_all(asked, limit.within_ms)
            refused = [isinstance(reply, ErrorReply) and reply.code in REGROUP for reply in replies]
            if not all(refused):
                return [None if no else expect(reply, kind, "scan") for no, reply in zip(refused, replies, strict=True)]
            self.pause_or_raise(replies[0], table, limit, "scan", may_be_done=False)
        return [None] * len(positions)

    def _in_parts(
        self,
        keys: list[bytes],
        values: list[bytes],
        request: Callable[[Part], Any],
        take: Callable[[Part, Any], Sequence[int]],
        what: str,
    ) -> None:
        """Ask the owners of all keys; what an owner could not answer is grouped anew, within the time of one call."""
        client = self.client
        limit = TimeLimit(client.call_timeout_s)
        table = client.partition_table()
        may_be_done = False
        parts = self._owner_groups.split(table, keys, values, None)
        later: list[int] = []
        while parts:
            asked, parts = parts[:PARTS_AT_ONCE], parts[PARTS_AT_ONCE:]
            replies = client.call_all([(part.partition, request(part)) for part in asked], limit.within_ms)
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
                self.pause_or_raise(refusal, table, limit, what, may_be_done=may_be_done)
            if again or not parts:
                later += again + [index for part in parts for index in part.indexes]
                table = client.partition_table()
                parts, later = self._owner_groups.split(table, keys, values, later) if later else [], []

    def _everywhere(self, kind: type, reply_kind: type, what: str) -> list[Any]:
        """Ask the owners of all partitions."""

        def request(group: list[int], of: int) -> Any:
            return kind(self.client.next_id(), self.name, group, of)

        return self.everywhere(request, reply_kind, what, is_write=kind is ClearPartitions)

    def everywhere(
        self,
        request: Callable[[list[int], int], Any],
        reply_kind: type[T],
        what: str,
        *,
        is_write: bool,
        most: int | None = None,
    ) -> list[T]:
        """Ask the owners of all partitions; what one could not answer is asked again until the deadline.

        `request`: for some partitions of so many. `most`: of them in one request, of which then only some are under way.
        """
        limit = TimeLimit(self.client.call_timeout_s)
        table = self.client.partition_table()
        groups = in_pieces(partitions_by_owner(table), most)
        replies: list[T] = []
        may_be_done = False
        while groups:
            of = table.partition_count
            asked, groups = groups[:PARTS_AT_ONCE], groups[PARTS_AT_ONCE:]
            results = self.client.call_all([(group[0], request(group, of)) for group in asked], limit.within_ms)
            if is_write:
                results, may_be_done = as_for_the_whole(results, may_be_done=may_be_done)
            again: list[int] = []
            refusal = None
            for group, reply in zip(asked, results, strict=True):
                if isinstance(reply, ErrorReply) and reply.code in REGROUP:
                    again += group
                    refusal = reply
                else:
                    replies.append(expect(reply, reply_kind, what))
            if refusal is None:
                limit.renew()
                continue
            self.pause_or_raise(refusal, table, limit, what, may_be_done=may_be_done)
            table = self.client.partition_table()
            left = again + [partition for group in groups for partition in group]
            groups = in_pieces(regrouped(table, left, of), most)
        return replies

    def pause_or_raise(
        self, reply: ErrorReply, table: PartitionTable, limit: TimeLimit, what: str, *, may_be_done: bool
    ) -> None:
        """Before another try: get a newer table than the one by which the refused was asked. Pauses if there is none."""
        if limit.is_over:
            code = ErrorCode.INDETERMINATE if may_be_done else ErrorCode.UNAVAILABLE
            raise_error(ErrorReply(reply.id, code, reply.text), what)
        if self.client.partition_table() is not table or self.client.refresh(limit.left_s) is not table:
            return
        time.sleep(min(REGROUP_PAUSE_S, limit.left_s))
        self.client.refresh(limit.left_s)
