"""The plans (`call_plans`) of one map: its calls for many keys or for all partitions, and its scans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from phalanx.common.errors import ErrorCode, ProtocolError, UsageError
from phalanx.common.ids import Lost
from phalanx.maps.answer_budget import AnswerBudget
from phalanx.maps.call_plans import FIND_TABLE, BulkCall, CallPlan, Plans, RequestNumbers
from phalanx.maps.grouping import PARTS_AT_ONCE, OwnerGroups, Part, put_at
from phalanx.maps.requests import (
    PACKED_PAGE_BYTES,
    SCAN_PAGE_BYTES,
    expect,
    in_pieces,
    partitions_by_owner,
    regrouped,
)
from phalanx.maps.scanning import Scan, ScanPositions
from phalanx.maps.updates import Tally
from phalanx.wire.conditions import Condition
from phalanx.wire.messages import (
    ClearPartitions,
    CountReply,
    DoneReply,
    ErrorReply,
    GetAll,
    PackedReply,
    PageReply,
    PutAll,
    ScanPacked,
    ScanPartition,
    SizeOf,
    UpdateWhere,
    ValuesReply,
)

T = TypeVar("T")

PACKED_PAGES_AT_ONCE = 16
"""The most pages of a packed scan that are requested at once."""
SOUGHT_PAGES_AT_ONCE = 4
"""The same for a scan with conditions: even a small page can be much work for the member."""


SLICES_AT_ONCE = 8
"""The most slices of an update of many entries that are under way."""


class MapPlans(Plans):
    """Makes the plans of one map. Threads can share it: what it keeps between calls depends only on the table."""

    def __init__(self, name: str, client: RequestNumbers, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the same arguments as `Plans`."""
        super().__init__(name, client, clock)
        self._owner_groups = OwnerGroups()

    def get_data(
        self, keys: list[bytes], lost: Lost = (), budget: AnswerBudget | None = None
    ) -> CallPlan[list[bytes | None]]:
        """Plan to return the serialised value of each serialised key; None: the key has no value. `lost`: as for `BulkCall`.

        `budget`: what the values can have in total; None: there is no limit. Raises `AnswerTooLarge`.
        """
        found: list[bytes | None] = [None] * len(keys)

        def request(part: Part) -> GetAll:
            return GetAll(self._client.next_id(), self._name, part.keys)

        def take(part: Part, reply: Any) -> Sequence[int]:
            values, indexes = expect(reply, ValuesReply, "get_all").values, part.indexes
            if len(values) > len(indexes):
                raise ProtocolError(f"get_all: the member answered {len(indexes)} keys with {len(values)} values")
            if budget is not None:
                budget.take(sum(map(len, filter(None, values))))
            if isinstance(indexes, range):  # side by side: one member owns all
                found[indexes.start : indexes.start + len(values)] = values
            else:
                put_at(found, indexes, values)
            return indexes[len(values) :]

        return self._in_parts(BulkCall("get_all", self.time_limit(), lost=lost), keys, [], request, take, found)

    def put_data(
        self, keys: list[bytes], values: list[bytes], ttl_ms: int, max_idle_ms: int = 0, lost: Lost = ()
    ) -> CallPlan[None]:
        """Plan to store serialised entries. Raises `UsageError` unless there are as many values as keys. `lost`: as for `BulkCall`."""
        if len(keys) != len(values):
            raise UsageError(f"put_data: {len(keys)} keys and {len(values)} values; give one value for each key")

        def request(part: Part) -> PutAll:
            return PutAll(self._client.next_id(), self._name, part.keys, part.values, ttl_ms, max_idle_ms)

        def take(part: Part, reply: Any) -> Sequence[int]:
            expect(reply, DoneReply, "put_all")
            return ()

        call = BulkCall("put_all", self.time_limit(), is_write=True, lost=lost)
        return self._in_parts(call, keys, values, request, take, None)

    def size(self) -> CallPlan[int]:
        """Plan to return the number of entries of all partitions, each counted at its own moment."""

        def request(partitions: list[int], partition_count: int) -> SizeOf:
            return SizeOf(self._client.next_id(), self._name, partitions, partition_count)

        replies = yield from self.everywhere(request, CountReply, "size", is_write=False)
        return sum([reply.count for reply in replies])

    def filled_partitions(self) -> CallPlan[tuple[int, dict[int, int]]]:
        """Plan to return the partition count, and each partition that has entries with how many these are.

        So a scan of a small map asks for few pages. Where an owner cannot tell, or partitions are divided meanwhile, every partition is
        returned, with 1.
        """
        counts: set[int] = set()

        def request(partitions: list[int], partition_count: int) -> SizeOf:
            counts.add(partition_count)
            return SizeOf(self._client.next_id(), self._name, partitions, partition_count, by_partition=True)

        replies = yield from self.everywhere(request, CountReply, "size", is_write=False)
        partition_count = max(counts)
        found = {partition: size for reply in replies for partition, size in reply.by_partition}
        if len(counts) > 1 or sum(found.values()) != sum([reply.count for reply in replies]):
            found = dict.fromkeys(range(partition_count), 1)
        return partition_count, found

    def clear(self) -> CallPlan[None]:
        """Plan to remove the entries of all partitions."""

        def request(partitions: list[int], partition_count: int) -> ClearPartitions:
            return ClearPartitions(self._client.next_id(), self._name, partitions, partition_count)

        yield from self.everywhere(request, DoneReply, "clear", is_write=True)

    def everywhere(
        self,
        request: Callable[[list[int], int], Any],
        reply_kind: type[T],
        what: str,
        *,
        is_write: bool,
        most: int | None = None,
    ) -> CallPlan[list[T]]:
        """Plan to send requests to the owners of all partitions. Refused ones are repeated within the time of one call.

        `request`: makes a request for some partitions, given the partition count. `most`: partitions in one request;
        None: all of one owner.
        """
        call = BulkCall(what, self.time_limit(), is_write=is_write)
        call.table = yield FIND_TABLE
        groups = in_pieces(partitions_by_owner(call.table), most)
        found: list[T] = []

        def take(group: list[int], reply: Any) -> None:
            found.append(expect(reply, reply_kind, what))

        while groups:
            partition_count = call.table.partition_count
            asked, groups = groups[:PARTS_AT_ONCE], groups[PARTS_AT_ONCE:]
            replies = yield call.ask([(group[0], request(group, partition_count)) for group in asked])
            refused, refusal = call.take_replies(asked, replies, take)
            if refusal is not None:
                yield from call.find_newer_table(refusal)
                left = [partition for group in refused + groups for partition in group]
                groups = in_pieces(regrouped(call.table, left, partition_count), most)
        return found

    def update_where(
        self,
        conditions: tuple[Condition, ...],
        function: str,
        arguments: list[bytes],
        open_from: Callable[[int], int],
    ) -> CallPlan[int]:
        """Plan to let a function change all entries that fulfil the conditions. Return how many were changed.

        Each owner does a slice for one request (`grid.requests.update_where`). `open_from`: from the number of a
        request, the lowest one that can still be repeated.
        """
        call = BulkCall("update_where", self.time_limit(), is_write=True)
        call.table = yield FIND_TABLE
        count = call.table.partition_count
        scan, tally = ScanPositions(range(count), count), Tally(function)
        # Conditions and a function can be what ends members: one slice shows it, before all owners have one.
        at_once = 1
        while not scan.is_empty:
            count = call.table.partition_count
            if scan.are_newer_than(count):
                text = f"no member has sent a table of {scan.partition_count} partitions: there are {count}"
                yield from call.find_newer_table(ErrorReply(0, ErrorCode.UNAVAILABLE, text))
                continue
            asked = []
            for partition, partition_count, after_key in scan.next(count, at_once):
                number = self._client.next_id()
                slice_ = UpdateWhere(
                    number, self._name, partition, partition_count, after_key, function, arguments, conditions, 0,
                    open_from(number),
                )  # fmt: skip
                asked.append((partition, slice_))
            replies = tally.count_replies((yield call.ask(asked)))
            refused, refusal = call.take_replies(range(len(asked)), replies, tally.check)
            scan.note([None if place in refused else reply for place, reply in enumerate(replies)])
            at_once = SLICES_AT_ONCE if refusal is None else at_once
            if refusal is not None:
                yield from call.find_newer_table(refusal)
        return tally.total()

    def scan_data(self, partitions: Iterable[int], partition_count: int, most: int = 1) -> Scan[PageReply]:
        """Return a scan of serialised keys and values of these partitions, of `partition_count` in total. `most`: pages requested at once."""

        def request(partition: int, partition_count: int, after: bytes) -> ScanPartition:
            return ScanPartition(self._client.next_id(), self._name, partition, partition_count, after, SCAN_PAGE_BYTES)

        return Scan(request, PageReply, partitions, partition_count, self.time_limit, most)

    def scan_packed(
        self,
        partitions: Iterable[int],
        partition_count: int,
        key_parts: int,
        conditions: tuple[Condition, ...],
        with_ttls: bool,
        page_bytes: int = PACKED_PAGE_BYTES,
    ) -> Scan[PackedReply]:
        """Return a scan of packed pages, for columns, of these partitions, of `partition_count` in total.

        Owners leave out entries that fail the conditions; entries that they cannot judge are included.
        """

        def request(partition: int, partition_count: int, after: bytes) -> ScanPacked:
            return ScanPacked(
                self._client.next_id(), self._name, partition, partition_count, after, page_bytes, key_parts, conditions, with_ttls
            )  # fmt: skip

        most = SOUGHT_PAGES_AT_ONCE if conditions else PACKED_PAGES_AT_ONCE
        return Scan(request, PackedReply, partitions, partition_count, self.time_limit, most)

    def _in_parts(
        self,
        call: BulkCall,
        keys: list[bytes],
        values: list[bytes],
        request: Callable[[Part], Any],
        take: Callable[[Part, Any], Sequence[int]],
        result: T,
    ) -> CallPlan[T]:
        """Plan to send requests to the owners of all keys. Refused keys are grouped again, within the time of one call.

        `take` returns the indexes of the keys that a reply leaves out because it would be too large. `result`: the
        plan's.
        """
        left: list[int] = []

        def take_reply(part: Part, reply: Any) -> None:
            left.extend(take(part, reply))

        call.table = yield FIND_TABLE
        parts = self._owner_groups.split(call.table, keys, values, None)
        while parts:
            asked, parts = parts[:PARTS_AT_ONCE], parts[PARTS_AT_ONCE:]
            replies = yield call.ask([(part.partition, request(part)) for part in asked])
            refused, refusal = call.take_replies(asked, replies, take_reply)
            if refusal is not None:
                yield from call.find_newer_table(refusal)
            elif not parts and left:
                call.table = yield FIND_TABLE
            if refusal is not None or not parts:
                left += [index for part in refused + parts for index in part.indexes]
                parts = self._owner_groups.split(call.table, keys, values, left) if left else []
                left.clear()
        return result
