"""Send rows that the caller has packed by partition to their owners: the cheapest write for members."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from phalanx.client.blocking.plan_runner import PlanClient, run_plan
from phalanx.codec.rows import cut_rows, divided_rows, row_count
from phalanx.common.errors import UsageError
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.table import PartitionTable
from phalanx.maps.call_plans import FIND_TABLE, BulkCall, CallPlan
from phalanx.maps.grouping import BATCH_BYTES, BATCH_KEYS, PARTS_AT_ONCE
from phalanx.maps.requests import expect, partitions_by_owner
from phalanx.maps.time_limit import TimeLimit
from phalanx.wire.limits import MAX_ROWS
from phalanx.wire.messages import DoneReply, PackedRows, PutPacked

PageNumber = Callable[[int, int], int]
"""A function of a partition and the partition count that returns the number of the page of rows that is put there."""


def rounds_of(parts: Mapping[int, bytes], most_rows: int) -> Iterator[dict[int, bytes]]:
    """Yield the rows of all partitions in rounds, in their order: of each partition what fits one request."""
    pieces = {partition: cut_rows(rows, BATCH_BYTES, most_rows) for partition, rows in parts.items()}
    while pieces:
        yield {partition: some[0] for partition, some in pieces.items()}
        pieces = {partition: some[1:] for partition, some in pieces.items() if len(some) > 1}


def put_round(
    client: PlanClient,
    name: str,
    parts: Mapping[int, bytes],
    partition_count: int,
    ttl_ms: int,
    number: PageNumber,
    what: str,
) -> list[tuple[int, int]]:
    """Put rows into the map of that name, sorted by partition (of `partition_count` partitions). Retries within the time of one
    call.

    Return pairs of a partition with rows and the partition count then: the partitions can be divided meanwhile.
    """
    limit = TimeLimit(client.call_timeout_s)
    plan = put_plan(name, client.next_id, limit, parts, partition_count, ttl_ms=ttl_ms, number=number, what=what)
    return run_plan(plan, client)


def put_plan(
    map_name: str,
    next_id: Callable[[], int],
    limit: TimeLimit,
    parts: Mapping[int, bytes],
    partition_count: int,
    *,
    ttl_ms: int,
    number: PageNumber,
    what: str,
) -> CallPlan[list[tuple[int, int]]]:
    """Return the plan of `put_round`."""
    call = BulkCall(what, limit, is_write=True)
    left = dict(parts)
    done: list[tuple[int, int]] = []

    def request(group: list[int]) -> PutPacked:
        rows = tuple(PackedRows(each, left[each], number(each, partition_count)) for each in group)
        return PutPacked(next_id(), map_name, rows, partition_count, ttl_ms)

    def take(group: list[int], reply: Any) -> None:
        expect(reply, DoneReply, what)
        done.extend((partition, partition_count) for partition in group)
        for partition in group:
            del left[partition]

    while left:
        call.table = yield FIND_TABLE
        count = call.table.partition_count
        if count != partition_count:
            if count % partition_count:
                raise UsageError(f"rows of {partition_count} partitions cannot be put into a cluster of {count}")
            left, partition_count = divided_rows(left, count), count
        groups = list(_groups(call.table, left, None if is_hidden(map_name) else MAX_ROWS))
        for first in range(0, len(groups), PARTS_AT_ONCE):
            asked = groups[first : first + PARTS_AT_ONCE]
            replies = yield call.ask([(group[0], request(group)) for group in asked])
            _, refusal = call.take_replies(asked, replies, take)
            if refusal is not None:
                yield from call.find_newer_table(refusal)
                break
    return done


def _groups(table: PartitionTable, parts: Mapping[int, bytes], most_rows: int | None) -> Iterator[list[int]]:
    """Yield groups of partitions whose rows fit one request: all of one owner. A partition without owner is alone."""
    for group in partitions_by_owner(table):
        some: list[int] = []
        size = rows = 0
        for partition in group:
            if partition not in parts:
                continue
            more, more_rows = len(parts[partition]), row_count(parts[partition])
            is_full = size + more > BATCH_BYTES or len(some) == BATCH_KEYS
            if some and (is_full or (most_rows is not None and rows + more_rows > most_rows)):
                yield some
                some, size, rows = [], 0, 0
            some.append(partition)
            size, rows = size + more, rows + more_rows
        if some:
            yield some
