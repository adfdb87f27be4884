"""Calls on many keys, or on a whole map."""

from __future__ import annotations

from typing import Any, Final

from phalanx.codec.hashing import partitions_of
from phalanx.maps.answer_budget import AnswerBudget
from phalanx.maps.call_plans import CallPlan
from phalanx.maps.map_plans import MapPlans
from phalanx.maps.requests import REGROUP, expect, lost_after
from phalanx.wire.limits import MAX_KEYS
from phalanx.wire.messages import DoneReply, ErrorReply, GetAll, PageReply, PutAll, ValuesReply
from phalanx_protocols.hazelcast.answers import count, done, entries, flag, present_entries
from phalanx_protocols.hazelcast.data import data_frames, entry_frames
from phalanx_protocols.hazelcast.fields import Fields
from phalanx_protocols.hazelcast.serving import Connection, Handler
from phalanx_protocols.hazelcast.under_way import READING_PLAN_BYTES


def put_all(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Store entries. A client sends those of one partition in one request."""
    name = fields.map()
    keys, values = fields.entries()
    if not keys:
        return done(kind, number)
    grid = connection.grid
    partition = _only_partition(keys, grid.partition_count)
    if partition is None:
        plan = connection.plans(name).put_data(keys, values, 0)
        return connection.perform(plan, kind, number, _done)

    def take(kind: int, number: int, reply: Any) -> bytes | None:
        if isinstance(reply, ErrorReply) and reply.code in REGROUP:
            # Writing the same entries once more changes nothing.
            plan = connection.plans(name).put_data(keys, values, 0, lost=lost_after((), [reply]))
            return connection.perform(plan, kind, number, _done)
        expect(reply, DoneReply, "put_all")
        return done(kind, number)

    request = PutAll(grid.next_id(), name, keys, values, 0)
    return connection.ask_partition(partition, request, kind, number, take)


def get_all(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer with the entries that there are of some keys, each once. A client asks for those of one partition in one request."""
    name = fields.map()
    keys = list(dict.fromkeys(fields.datas()))
    if not keys:
        return entries(kind, number, [], [])
    grid = connection.grid
    found = grid.local.get_all(name, keys, grid.max_answer_bytes)
    if found is not None:
        if len(found) < len(keys):
            AnswerBudget(grid.max_answer_bytes).take(grid.max_answer_bytes + 1)
        return present_entries(kind, number, keys, found)

    def tell(kind: int, number: int, values: list[bytes | None]) -> bytes:
        return present_entries(kind, number, keys, values)

    def take(kind: int, number: int, reply: Any) -> bytes | None:
        is_refused = isinstance(reply, ErrorReply) and reply.code in REGROUP
        if is_refused or len(values := expect(reply, ValuesReply, "get_all").values) < len(keys):
            plan = connection.plans(name).get_data(keys, lost_after((), [reply]), AnswerBudget(grid.max_answer_bytes))
            return connection.perform(plan, kind, number, tell, READING_PLAN_BYTES)
        return present_entries(kind, number, keys, values)

    partition = _only_partition(keys, grid.partition_count)
    if partition is None:
        plan = connection.plans(name).get_data(keys, budget=AnswerBudget(grid.max_answer_bytes))
        return connection.perform(plan, kind, number, tell, READING_PLAN_BYTES)
    return connection.ask_partition(partition, GetAll(grid.next_id(), name, keys), kind, number, take)


def _only_partition(keys: list[bytes], partition_count: int) -> int | None:
    """Return the partition of all keys; None: they have several, or are too many for one request."""
    if len(keys) > MAX_KEYS:
        return None
    partitions = set(partitions_of(keys, partition_count))
    return partitions.pop() if len(partitions) == 1 else None


def size(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    return connection.perform(connection.plans(fields.map()).size(), kind, number, count)


def is_empty(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    return connection.perform(connection.plans(fields.map()).size(), kind, number, _whether_none)


def clear(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Remove all entries."""
    return connection.perform(connection.plans(fields.map()).clear(), kind, number, _done)


def contains_value(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Look for a value everywhere, page by page."""
    name, wanted = fields.map(), fields.data()
    return connection.perform(_find_value(connection.plans(name), wanted), kind, number, flag, READING_PLAN_BYTES)


def _find_value(plans: MapPlans, wanted: bytes) -> CallPlan[bool]:
    partition_count, filled = yield from plans.filled_partitions()
    scan = plans.scan_data(sorted(filled), partition_count)
    while (pages := (yield from scan.next_pages())) is not None:
        if any(wanted in page.values for page in pages):
            return True
    return False


def key_set(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    return connection.stream(fields.map(), kind, number, _keys_of)


def values(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    return connection.stream(fields.map(), kind, number, _values_of)


def entry_set(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    return connection.stream(fields.map(), kind, number, _entries_of)


def _keys_of(page: PageReply) -> bytes:
    return data_frames(page.keys)


def _values_of(page: PageReply) -> bytes:
    return data_frames(page.values)


def _entries_of(page: PageReply) -> bytes:
    return entry_frames(page.keys, page.values)


def nothing_to_do(connection: Connection, kind: int, number: int, fields: Fields) -> bytes | None:
    """Answer that it is done: what it asks for makes no difference here."""
    return done(kind, number)


def _done(kind: int, number: int, outcome: Any) -> bytes:
    return done(kind, number)


def _whether_none(kind: int, number: int, many: int) -> bytes:
    return flag(kind, number, many == 0)


BULK_CALLS: Final[dict[int, Handler]] = {
    0x010700: contains_value,
    0x010A00: nothing_to_do,  # flush: there is no store behind a map
    0x011F00: clear,  # evictAll
    0x012200: key_set,
    0x012300: get_all,
    0x012400: values,
    0x012500: entry_set,
    0x012900: nothing_to_do,  # addIndex: predicates look at all entries
    0x012A00: size,
    0x012B00: is_empty,
    0x012C00: put_all,
    0x012D00: clear,
}
"""The type of a request to what serves it."""
