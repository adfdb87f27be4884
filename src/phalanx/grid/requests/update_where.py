"""Let a function change the entries of a map that fulfil conditions: one slice of one partition for each request.

A caller goes through all partitions, slice after slice, in scan order (`maps.map_plans`). Why slices, and not a request
for each key that a scan has found: keys and values need not travel, and one write carries some hundred changes. Why not
one request for a partition: a member does nothing else while it calls functions.

What is promised:

* An entry that fulfils the conditions all the time is changed once. Scan order depends on keys alone, so a slice begins
  where the one before it ended, at whatever owner.
* None is changed twice. A slice is an operation: what became of it is recorded with its changes, in one write
  (`ReplicateUpdates`), so a replica has all of it or nothing. Who asks again gets the recorded answer (`idempotency`).
* The condition is evaluated, and the function called, in the turn that changes the entry. So entries that are written
  meanwhile are judged by what they are at their turn. A new entry behind the present slice is met, one before it is not.
* An entry that the function refuses is left as it was; the others go on, and the caller is told at the end.

A slice ends after so many entries, bytes or calls that it takes some milliseconds. A program's own function may take
any time: of these fewer are called in one slice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from phalanx.codec.bounds import MAX_EDITED_BYTES
from phalanx.codec.values import MSGPACK_PREFIX
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import Millis, Target
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.serving.admission import fits_slice, has_same_partition_count, is_hidden_from_users, is_refused
from phalanx.grid.serving.conditions import Wanted, wanted_by
from phalanx.grid.serving.idempotency import answer_if_duplicate, answer_unchanged, applied_as, outcome_of_slice
from phalanx.grid.serving.memory_admission import lack_memory
from phalanx.grid.serving.packing import EXAMINED_AT_MOST, examined_at_most
from phalanx.grid.serving.update_results import Effect, EvaluationRefused, UpdateRefused
from phalanx.grid.serving.updates import BUILT_IN, apply_function, check_call
from phalanx.wire.messages import ReplicateUpdates, UpdatedReply, UpdateWhere

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

CALLS_AT_ONCE: Final = 256
"""Calls of a function that every member has, in one slice: about two milliseconds."""
OWN_CALLS_AT_ONCE: Final = 32
"""Calls of a program's own function in one slice."""
CHANGED_BYTES: Final = 256 * 1024
"""A slice ends when it has read, or made, so many bytes of values for functions, with the arguments of each call: these are decoded
and encoded."""
JSON_WEIGHT: Final = 4
"""In a map of JSON a byte counts as so many: it is read into Python, and written anew."""
EXAMINED_BYTES: Final = 1024 * 1024
"""A slice ends when conditions were evaluated on so many bytes."""
TOO_LONG_TO_JUDGE: Final = f"the dict or list has more than {MAX_EDITED_BYTES:,} bytes: conditions are evaluated where it lives on up to so many"
REASON_CHARACTERS: Final = 500
"""The most characters that a caller is told of why an entry was refused."""


class Slice(NamedTuple):
    """What a function makes of a slice, before anything is changed."""

    keys: list[bytes]
    values: list[bytes]
    """The values of these keys then, without stamps."""
    ttls: list[Millis]
    """Their remaining times to live; 0: for ever."""
    idles: list[Millis]
    """How long they may be idle; 0: for ever."""
    removed: list[bytes]
    failed: list[tuple[bytes, str]]
    """The keys that the function refused, and why."""
    after_key: bytes
    """The last key that was examined; empty: the partition is done."""


def on_update_where(grid: GridService, caller: Target, request: UpdateWhere, now: Millis) -> None:
    """Serve a request for one slice if this member owns its partition."""
    if (
        is_hidden_from_users(grid, caller, request)
        or not fits_slice(grid, caller, request)
        or not has_same_partition_count(grid, caller, request.id, request.of)
    ):
        return
    if not 0 <= request.partition < request.of:
        text = f"there is no partition {request.partition}: this cluster has {request.of}"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
        return
    owned = grid.owned[request.partition]
    if owned is None:
        grid.refuse(caller, request, request.partition)
        return
    if grid.guard.watches(request.map) and is_refused(grid, owned, caller, request, now):
        return
    if answer_if_duplicate(grid, owned, caller, request, now):
        return
    try:
        check_call(grid.functions, request.function, request.arguments)
        wanted = wanted_by(request.conditions, 1, surely=True) if request.conditions else None
    except EvaluationRefused as refusal:
        grid.failed_requests.refuse(caller, request, refusal, now)
        return
    store = owned.replica.maps.get(request.map)
    if store is None:
        answer_unchanged(grid, owned, caller, request, UpdatedReply(request.id, 0, False), None, now)
        return
    made = _make_slice(grid, store, request, wanted, now)
    if made is None:
        grid.scans.hold(caller, request, request.partition, store, now)
    else:
        grid.scans.note(store, now)
        _commit(grid, owned, caller, request, made, now)


def _make_slice(
    grid: GridService, store: MapStore, request: UpdateWhere, wanted: Wanted | None, now: Millis
) -> Slice | None:
    """Call the function for the entries of the slice. None: the keys of the map are not sorted yet."""
    order = store.ordered()
    if order is None:
        return None
    calls_left = CALLS_AT_ONCE if request.function in BUILT_IN else OWN_CALLS_AT_ONCE
    left = examined_at_most(len(request.conditions)) // 2
    bytes_left = EXAMINED_BYTES * left // (EXAMINED_AT_MOST // 2)
    changed_left, room = CHANGED_BYTES, grid.config.max_bulk_bytes
    made = Slice([], [], [], [], [], [], b"")
    given, weight = sum(map(len, request.arguments)), JSON_WEIGHT if grid.has_json_dicts(request.map) else 1
    last = request.after_key
    for key in order.behind(request.after_key):
        if not (left > 0 and calls_left > 0 and bytes_left > 0 and changed_left > 0):
            return made._replace(after_key=last)
        left -= 1
        stored = store.entries.get(key)
        if stored is not None and not (store.expires_at and store.is_over(key, now)):
            bytes_left -= len(key) + len(stored)
            if wanted is not None and len(stored) > MAX_EDITED_BYTES and stored.startswith(MSGPACK_PREFIX, STAMP_BYTES):
                made.failed.append((key, TOO_LONG_TO_JUDGE))
            elif wanted is None or wanted(key, stored):
                calls_left -= 1
                then = _call(grid, request, key, stored[STAMP_BYTES:], made, now)
                size = len(key) + (len(then) if isinstance(then, bytes) else 0)
                changed_left -= weight * (given + len(stored) + size)
                if then is not Effect.UNCHANGED:
                    if size > room and (made.keys or made.removed):
                        # All that a slice changes is one message. What has no room there begins the next slice, for
                        # which the function is called again.
                        return made._replace(after_key=last)
                    room -= size
                    if isinstance(then, bytes):
                        made.keys.append(key)
                        made.values.append(then)
                        made.ttls.append(store.ttl_ms(key, now))
                        made.idles.append(store.max_idle_ms(key))
                    else:
                        made.removed.append(key)
        last = key
    return made


def _call(
    grid: GridService, request: UpdateWhere, key: bytes, value: bytes, made: Slice, now: Millis
) -> bytes | Effect:
    """Return what the function makes of a value; what it refuses stays unchanged, and is noted."""
    limit, is_json = grid.config.max_value_bytes, grid.has_json_dicts(request.map)
    try:
        then, _ = apply_function(grid.functions, request.function, value, request.arguments, json_dicts=is_json)
    except UpdateRefused as refusal:
        grid.failed_requests.note(type(request).__name__, refusal, now)
        made.failed.append((key, str(refusal)))
        return Effect.UNCHANGED
    if isinstance(then, bytes) and len(then) > limit:
        made.failed.append((key, f"a value of {len(then)} bytes is over the limit of {limit} bytes (max_value_bytes)"))
        return Effect.UNCHANGED
    return then


def _commit(
    grid: GridService, owned: OwnedPartition, caller: Target, request: UpdateWhere, made: Slice, now: Millis
) -> None:
    """Change the entries in one write, and answer the caller when the backups have it."""
    failed_key, reason = made.failed[0] if made.failed else (b"", "")
    reply = UpdatedReply(
        request.id,
        len(made.keys) + len(made.removed),
        bool(made.after_key),
        made.after_key,
        len(made.failed),
        failed_key,
        reason[:REASON_CHARACTERS],
    )
    outcome = outcome_of_slice(reply)
    if not reply.changed:
        answer_unchanged(grid, owned, caller, request, reply, outcome, now)
        return
    size = sum(map(len, made.keys)) + sum(map(len, made.values)) + WRITTEN_BYTES * len(made.keys)
    if size > grid.memory.room:
        entries = ((owned, key, len(value)) for key, value in zip(made.keys, made.values, strict=True))
        if lack_memory(grid, grid.evictor, caller, request.id, request.map, entries, now):
            return
    applied = applied_as(grid, owned, caller, request, outcome)
    stamp = grid.clock.stamp(now)
    prefix = stamp.to_bytes(STAMP_BYTES, "big")
    grid.write(
        owned,
        ReplicateUpdates,
        caller,
        reply,
        now,
        request.map,
        made.keys,
        [prefix + value for value in made.values],
        made.ttls if any(made.ttls) else [],
        made.removed,
        stamp,
        applied,
        tuple(made.idles) if any(made.idles) else (),
    )
    if grid.evictor.is_on:
        grid.evictor.after_write(owned, request.map, len(made.keys), now)
