"""The handlers of requests for one key, at the owner of its partition. (`bulk` has those for many keys.)

Reads answer from the owner's replica. Writes are evaluated there, applied, numbered, and sent to the backups as their
result (these keys have these values now; these are removed), so a backup never evaluates anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.codec.hashing import TYPE_ID_BYTES, partition_of
from phalanx.codec.values import to_data
from phalanx.common.ids import Millis, Target
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.expired import end_before_write, set_entry
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.requests.locks import LOCK_OPERATIONS, is_fenced_off
from phalanx.grid.serving.admission import (
    begins_too_many,
    fits_one,
    fits_update,
    fits_value,
    is_hidden_from_users,
    is_refused,
)
from phalanx.grid.serving.idempotency import answer_if_duplicate, answer_unchanged, applied_as
from phalanx.grid.serving.memory_admission import lacks_memory
from phalanx.grid.serving.update_results import Effect, UpdateRefused
from phalanx.grid.serving.updates import apply_function
from phalanx.wire.messages import (
    Contains,
    CountReply,
    DoneReply,
    FlagReply,
    Get,
    GetTimeToLive,
    KeyRequest,
    OutcomeValue,
    Put,
    PutIfAbsent,
    Remove,
    Replace,
    ReplicatePut,
    ReplicateRemove,
    Reply,
    UpdateValue,
    ValueReply,
    WriteFenced,
)
from phalanx.wire.requests import MAP_IDLE, LifeRule

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

FALSE = to_data(False)
UNSET_VALUE = bytes(TYPE_ID_BYTES)
"""In the place of a value, where the size of a removal is checked."""


def on_key_request(grid: GridService, caller: Target, request: KeyRequest, now: Millis) -> None:
    """Serve a request for one key if this member owns the key's partition."""
    grid.traffic.last_at = now
    partition = partition_of(request.key, len(grid.owned))
    owned = grid.owned[partition]
    if owned is None:
        grid.refuse(caller, request, partition)
    elif not (
        (guard := grid.guard).is_watchful
        and guard.watches(request.map)
        and is_refused(grid, owned, caller, request, now)
    ):
        _KEY_OPERATIONS[type(request)](grid, owned, caller, request, now)


def _get(grid: GridService, owned: OwnedPartition, caller: Target, request: Get, now: Millis) -> None:
    store = owned.replica.maps.get(request.map)
    value = store.get(request.key, now) if store is not None else None
    if grid.rules.counts_reads and value is not None and store is not None:
        grid.note_read(store, request.map, request.key, now)
    if store is not None and store.idle and value is not None:
        store.touch(request.key, now)
    grid.out.send(caller, ValueReply(request.id, value))


def _contains(grid: GridService, owned: OwnedPartition, caller: Target, request: Contains, now: Millis) -> None:
    store = owned.replica.maps.get(request.map)
    grid.out.send(caller, FlagReply(request.id, store is not None and store.get(request.key, now) is not None))


def _put(grid: GridService, owned: OwnedPartition, caller: Target, request: Put, now: Millis) -> None:
    if not fits_one(grid, caller, request) or (
        len(owned.replica.maps) >= grid.rules.max_maps and begins_too_many(grid, owned, caller, request)
    ):
        return
    number = request.op or request.id
    size = len(request.key) + len(request.value) + WRITTEN_BYTES
    if (
        owned.is_plain
        and not (request.ttl_ms or request.max_idle_ms or grid.rules.any_idle)
        and size <= grid.memory.room
        and owned.replica.deduplication.note_next(caller, number, request.open_from, None, now)
    ):
        store, stored = owned.replica.maps.get(request.map), grid.clock.stamped(request.value, now)
        if store is not None and not store.observers:  # as `set_entry`, which costs two calls more
            grid.memory.room -= size
            grid.commit_plain(owned, store, request.key, stored, None, now)
        else:
            set_entry(grid, owned, request.map, request.key, stored, None, now)
        grid.out.send(caller, DoneReply(request.id))
        if grid.evictor.is_on:
            grid.evictor.after_write(owned, request.map, 1, now)
    elif not answer_if_duplicate(grid, owned, caller, request, now):
        _store(grid, owned, caller, request, DoneReply(request.id), None, now)


def _put_if_absent(grid: GridService, owned: OwnedPartition, caller: Target, request: PutIfAbsent, now: Millis) -> None:
    if (
        not fits_one(grid, caller, request)
        or answer_if_duplicate(grid, owned, caller, request, now)
        or begins_too_many(grid, owned, caller, request)
    ):
        return
    store = owned.replica.maps.get(request.map)
    present = store.get(request.key, now) if store is not None else None
    if present is not None:
        answer_unchanged(grid, owned, caller, request, ValueReply(request.id, present), present, now)
    else:
        _store(grid, owned, caller, request, ValueReply(request.id, None), None, now)


def _replace(grid: GridService, owned: OwnedPartition, caller: Target, request: Replace, now: Millis) -> None:
    if not fits_one(grid, caller, request) or answer_if_duplicate(grid, owned, caller, request, now):
        return
    store = owned.replica.maps.get(request.map)
    present = store.get(request.key, now) if store is not None else None
    if present is None or (request.expected is not None and request.expected != present):
        answer_unchanged(grid, owned, caller, request, FlagReply(request.id, False), False, now)
    else:
        _store(grid, owned, caller, request, FlagReply(request.id, True), True, now)


def _remove(grid: GridService, owned: OwnedPartition, caller: Target, request: Remove, now: Millis) -> None:
    if is_hidden_from_users(grid, caller, request) or answer_if_duplicate(grid, owned, caller, request, now):
        return
    replica = owned.replica
    if replica.journals:
        end_before_write(grid, owned, request.map, (request.key,), now)
    store = replica.maps.get(request.map)
    if store is None or request.key not in store.entries:
        answer_unchanged(grid, owned, caller, request, ValueReply(request.id, None), None, now)
        return
    present = store.get(request.key, now)
    _drop(grid, owned, caller, request, ValueReply(request.id, present), present, now)


def _write_fenced(grid: GridService, owned: OwnedPartition, caller: Target, request: WriteFenced, now: Millis) -> None:
    put = Put(request.id, request.map, request.key, request.value or UNSET_VALUE, request.ttl_ms)
    if (
        not fits_one(grid, caller, put)
        or answer_if_duplicate(grid, owned, caller, request, now)
        or begins_too_many(grid, owned, caller, request)
    ):
        return
    if request.value is not None and lacks_memory(
        grid, grid.evictor, owned, caller, request.id, request.map, request.key, request.value, now
    ):
        return
    if is_fenced_off(grid, owned, caller, request, now):
        return
    store = owned.replica.maps.get(request.map)
    if request.value is not None:
        reply, idle_ms = ValueReply(request.id, None), grid.max_idle_of(request.map)
        _store_value(grid, owned, caller, request, request.value, request.ttl_ms, idle_ms, reply, None, now)
    elif store is None or request.key not in store.entries:
        answer_unchanged(grid, owned, caller, request, ValueReply(request.id, None), None, now)
    else:
        present = store.get(request.key, now)
        _drop(grid, owned, caller, request, ValueReply(request.id, present), present, now)


def _drop(
    grid: GridService,
    owned: OwnedPartition,
    caller: Target,
    request: Remove | UpdateValue | WriteFenced,
    reply: Reply,
    outcome: OutcomeValue,
    now: Millis,
) -> None:
    applied = applied_as(grid, owned, caller, request, outcome)
    stamps = [grid.clock.stamp(now)]
    grid.write(owned, ReplicateRemove, caller, reply, now, request.map, [request.key], stamps, applied)


def _update(grid: GridService, owned: OwnedPartition, caller: Target, request: UpdateValue, now: Millis) -> None:
    if not fits_update(grid, caller, request) or answer_if_duplicate(grid, owned, caller, request, now):
        return
    store = owned.replica.maps.get(request.map)
    present = store.get(request.key, now) if store is not None else None
    if request.life and not _lives_as(request, store if present is not None else None, now):
        answer_unchanged(grid, owned, caller, request, ValueReply(request.id, FALSE), FALSE, now)
        return
    try:
        is_json = grid.has_json_dicts(request.map)
        then, result = apply_function(grid.functions, request.function, present, request.arguments, json_dicts=is_json)
    except UpdateRefused as refusal:
        grid.failed_requests.refuse(caller, request, refusal, now)
        return
    reply = ValueReply(request.id, result)
    if then is Effect.UNCHANGED:
        if store is not None and store.idle and present is not None:
            store.touch(request.key, now)
        answer_unchanged(grid, owned, caller, request, reply, result, now)
    elif then is Effect.REMOVED:
        _drop(grid, owned, caller, request, reply, result, now)
    elif fits_value(grid, caller, request.id, len(then)) and not begins_too_many(grid, owned, caller, request):
        kept = store if present is not None else None
        if request.ttl_ms is not None:
            ttl_ms = request.ttl_ms
        else:
            ttl_ms = kept.ttl_ms(request.key, now) if kept is not None else 0
        if request.max_idle_ms is None and kept is not None:
            idle_ms = kept.max_idle_ms(request.key)
        elif request.max_idle_ms is None or request.max_idle_ms == MAP_IDLE:
            idle_ms = grid.max_idle_of(request.map)
        else:
            idle_ms = request.max_idle_ms
        _store_value(grid, owned, caller, request, then, ttl_ms, idle_ms, reply, result, now)


def _lives_as(request: UpdateValue, store: MapStore | None, now: Millis) -> bool:
    """Return whether the present time to live of the key is as the request asks. `store`: None, if there is no value."""
    present_ms, rule = store.ttl_ms(request.key, now) if store is not None else 0, request.life
    if not present_ms:
        return rule in (LifeRule.NONE, LifeRule.LONGER)
    if rule in (LifeRule.NONE, LifeRule.SOME):
        return rule is LifeRule.SOME
    wanted_ms = request.ttl_ms or 0
    return wanted_ms > present_ms if rule is LifeRule.SHORTER else wanted_ms < present_ms


def _get_time_to_live(
    grid: GridService, owned: OwnedPartition, caller: Target, request: GetTimeToLive, now: Millis
) -> None:
    store = owned.replica.maps.get(request.map)
    is_there = store is not None and store.get(request.key, now) is not None
    grid.out.send(caller, CountReply(request.id, store.remaining_ms(request.key, now) if store and is_there else -1))


def _store(
    grid: GridService,
    owned: OwnedPartition,
    caller: Target,
    request: Put | PutIfAbsent | Replace,
    reply: Reply,
    outcome: OutcomeValue,
    now: Millis,
) -> None:
    idle_ms = request.max_idle_ms or grid.max_idle_of(request.map)
    _store_value(grid, owned, caller, request, request.value, request.ttl_ms, idle_ms, reply, outcome, now)


def _store_value(
    grid: GridService,
    owned: OwnedPartition,
    caller: Target,
    request: Put | PutIfAbsent | Replace | UpdateValue | WriteFenced,
    value: bytes,
    ttl_ms: Millis,
    max_idle_ms: Millis,
    reply: Reply,
    outcome: OutcomeValue,
    now: Millis,
) -> None:
    if lacks_memory(grid, grid.evictor, owned, caller, request.id, request.map, request.key, value, now):
        return
    applied = applied_as(grid, owned, caller, request, outcome)
    stored = grid.clock.stamped(value, now)
    if owned.is_plain and not (ttl_ms or max_idle_ms):
        set_entry(grid, owned, request.map, request.key, stored, applied, now)
        grid.out.send(caller, reply)
    else:
        if owned.replica.journals:
            end_before_write(grid, owned, request.map, (request.key,), now)
        name, key = request.map, request.key
        grid.write(
            owned, ReplicatePut, caller, reply, now, name, [key], [stored], ttl_ms, applied, max_idle_ms=max_idle_ms
        )
    if grid.evictor.is_on:
        grid.evictor.after_write(owned, request.map, 1, now)


_KEY_OPERATIONS: dict[type, Callable[[GridService, OwnedPartition, Target, Any, Millis], None]] = {
    Get: _get,
    Contains: _contains,
    Put: _put,
    PutIfAbsent: _put_if_absent,
    Replace: _replace,
    Remove: _remove,
    UpdateValue: _update,
    GetTimeToLive: _get_time_to_live,
    WriteFenced: _write_fenced,
    **LOCK_OPERATIONS,
}
