"""Checks before a request is served: ownership of its partitions, protection of the map, limits of what is written.

If a check fails, the caller is told why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.codec.hashing import TYPE_ID_BYTES
from phalanx.codec.rows import NOTHING, Extent, extent_of
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HIDDEN, MAX_HIDDEN_LENGTH, HiddenKind, is_hidden, is_staged, job_of, kind_of
from phalanx.common.ids import MAX_TTL_MS, Millis, Target
from phalanx.common.invariant import known
from phalanx.common.map_settings import MAX_MAP_NAME_LENGTH
from phalanx.grid.replica.staged_steps import REMOVES
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.serving.idempotency import was_noted
from phalanx.wire.limits import MAX_ATTEMPTS
from phalanx.wire.messages import (
    OPERATIONS,
    WRITES,
    BulkRequest,
    KeyRequest,
    Put,
    PutAll,
    PutIfAbsent,
    PutPacked,
    Replace,
    UpdateValue,
    UpdateWhere,
)
from phalanx.wire.requests import MAP_IDLE

MAX_REPEATED = 1_000
"""A request may name so many partitions even if there are fewer, so that it names some of them twice."""
REMEMBERED = 4
"""How many times `max_maps` a partition may remember removals of, at most."""
OVERHEAD_BYTES = 10
"""The most bytes of one entry in a message besides its key and value."""


def is_refused(
    leader: Leader, owned: OwnedPartition, caller: Target, request: KeyRequest | UpdateWhere, now: Millis
) -> bool:
    """Whether the map's protection refuses the request; then the caller is told."""
    is_write = isinstance(request, WRITES)
    why = leader.guard.why_refused(request.map, is_write=is_write, now=now)
    if not why:
        return False
    if isinstance(request, OPERATIONS) and was_noted(owned, caller, request):
        # An earlier try was applied, and the caller may not know. This side must not say what became of it.
        leader.fail(caller, request.id, ErrorCode.INDETERMINATE, f"an earlier try was applied or is over: {why}")
    else:
        leader.fail(caller, request.id, ErrorCode.NOT_ENOUGH_MEMBERS, why)
    return True


def owned_at(leader: Leader, partition: int) -> OwnedPartition:
    return known(leader.owned[partition], "ownership was checked for the whole request", partition=partition)


def owned_of(
    leader: Leader, caller: Target, request: BulkRequest, partitions: list[int], now: Millis
) -> list[OwnedPartition] | None:
    """Return the owned partitions of these numbers. None, and the caller is told: another member owns one of them, or
    the map's protection refuses the request.
    """
    owned_by_number = leader.owned
    found = [owned_by_number[partition] for partition in partitions]
    if not all(found):
        leader.refuse(caller, request, partitions[found.index(None)])
        return None
    if leader.guard.watches(request.map) and _is_bulk_refused(leader, caller, request, now):
        return None
    return found  # type: ignore[return-value]  # none of them is None


def has_same_partition_count(leader: Leader, caller: Target, request_id: int, of: int) -> bool:
    """Whether the caller's partition count `of` is that of this member: one of them may not know of a split yet. If
    not, the caller is told.
    """
    if of == len(leader.owned):
        return True
    text = f"there are {len(leader.owned)} partitions here, and {of} where the request comes from"
    leader.fail(caller, request_id, ErrorCode.NOT_OWNER, text)
    return False


def owns_all(
    leader: Leader,
    caller: Target,
    request: BulkRequest,
    partitions: Sequence[int] | dict[int, Any],
    of: int,
    now: Millis,
) -> bool:
    if not has_same_partition_count(leader, caller, request.id, of):
        return False
    if len(partitions) > max(of, MAX_REPEATED):
        text = f"{len(partitions)} partitions are named: this cluster has {of}, name each of them once"
        leader.fail(caller, request.id, ErrorCode.INVALID, text)
        return False
    for partition in partitions:
        if not 0 <= partition < of:
            text = f"there is no partition {partition}: this cluster has {of}"
            leader.fail(caller, request.id, ErrorCode.INVALID, text)
            return False
        if leader.owned[partition] is None:
            leader.refuse(caller, request, partition)
            return False
    return not (leader.guard.watches(request.map) and _is_bulk_refused(leader, caller, request, now))


def _is_bulk_refused(leader: Leader, caller: Target, request: BulkRequest, now: Millis) -> bool:
    why = leader.guard.why_refused(request.map, is_write=isinstance(request, WRITES), now=now)
    if why:
        leader.fail(caller, request.id, ErrorCode.NOT_ENOUGH_MEMBERS, why)
    return bool(why)


def fits_one(leader: Leader, caller: Target, request: Put | PutIfAbsent | Replace) -> bool:
    """Check a request for one key like `fits`, but faster where all limits are kept."""
    config = leader.config
    if (
        TYPE_ID_BYTES <= len(request.key) <= config.max_key_bytes
        and TYPE_ID_BYTES <= len(request.value) <= config.max_value_bytes
        and 0 < len(request.map) <= MAX_MAP_NAME_LENGTH
        and 0 <= request.ttl_ms <= MAX_TTL_MS
        and 0 <= request.max_idle_ms <= MAX_TTL_MS
        and request.map[0] != HIDDEN
    ):
        return True
    return fits(leader, caller, request, extent_of([len(request.key)]), extent_of([len(request.value)]))


def fits_update(leader: Leader, caller: Target, request: UpdateValue) -> bool:
    """Check an update like `fits`, but faster where all limits are kept."""
    config, ttl_ms = leader.config, request.ttl_ms
    if (
        TYPE_ID_BYTES <= len(request.key) <= config.max_key_bytes
        and 0 < len(request.map) <= MAX_MAP_NAME_LENGTH
        and (ttl_ms is None or 0 <= ttl_ms <= MAX_TTL_MS)
        and (request.max_idle_ms is None or MAP_IDLE <= request.max_idle_ms <= MAX_TTL_MS)
        and request.map[0] != HIDDEN
    ):
        for argument in request.arguments:
            if not TYPE_ID_BYTES <= len(argument) <= config.max_value_bytes:
                break
        else:
            return True
    extents = extent_of([len(request.key)]), extent_of(list(map(len, request.arguments)))
    return fits(leader, caller, request, *extents)


def fits_slice(leader: Leader, caller: Target, request: UpdateWhere) -> bool:
    """Check an update of many entries like `fits`: the name of its map, and its arguments."""
    return fits(leader, caller, request, NOTHING, extent_of(list(map(len, request.arguments))))


def begins_too_many(leader: Leader, owned: OwnedPartition, caller: Target, request: KeyRequest | BulkRequest) -> bool:
    """Whether a write would create one map too many in a partition; then the caller is told.

    Some turns of the member visit all maps, and each map costs memory even with one entry. Hidden maps of jobs count,
    too, but have a higher limit: they go when they are applied. Maps whose entries were all removed count only when there are
    many: they go with their tombstones.
    """
    maps = owned.replica.maps
    if len(maps) < leader.config.max_maps or request.map in maps:
        return False
    limit = leader.config.max_maps + (MAX_ATTEMPTS if is_staged(request.map) else 0)
    if len(maps) < limit:
        return False
    filled = sum(1 for store in maps.values() if store.entries)
    if filled < limit and len(maps) < REMEMBERED * limit:
        return False
    text = f"partition {owned.number} has entries of {filled} maps, and {request.map!r} would be one more than {limit}"
    if filled < limit:
        text = f"{text} with entries, or than {REMEMBERED * limit} with those whose entries were removed lately"
    advice = "put what belongs together into one map, clear maps that are not needed, or raise max_maps of the members"
    leader.fail(caller, request.id, ErrorCode.INVALID, f"{text}: {advice}")
    return True


def any_begins_too_many(
    leader: Leader, owned_ones: Sequence[OwnedPartition], caller: Target, request: BulkRequest
) -> bool:
    """Check each of the partitions like `begins_too_many`, but all at once where none has many maps."""
    if max([len(owned.replica.maps) for owned in owned_ones], default=0) < leader.config.max_maps:
        return False
    return any(begins_too_many(leader, owned, caller, request) for owned in dict.fromkeys(owned_ones))


def is_hidden_from_users(leader: Leader, caller: Target, request: KeyRequest | BulkRequest) -> bool:
    """Whether a write names a hidden map, which only the steps of its job change; then the caller is told."""
    if is_hidden(request.map):
        text = f"{request.map!r} is the name of a hidden map: none can write there"
        leader.fail(caller, request.id, ErrorCode.INVALID, text)
        return True
    return False


def fits_value(leader: Leader, caller: Target, request_id: int, size: int) -> bool:
    """Whether a value of so many bytes may be stored; if not, the caller is told."""
    limit = leader.config.max_value_bytes
    if size > limit:
        text = f"a value of {size} bytes is over the limit of {limit} bytes (max_value_bytes of the members)"
        leader.fail(caller, request_id, ErrorCode.TOO_LARGE, text)
    return size <= limit


def fits(
    leader: Leader,
    caller: Target,
    request: Put | PutIfAbsent | Replace | UpdateValue | UpdateWhere | PutAll | PutPacked,
    keys: Extent,
    values: Extent,
) -> bool:
    """Whether the names and sizes of a write are within the limits; if not, the caller is told.

    It is checked before any change: what is stored must be readable, and fit a frame to the backups.
    """
    config, request_id = leader.config, request.id
    ttl_ms = 0 if isinstance(request, UpdateWhere) else request.ttl_ms or 0
    is_staged = is_hidden(request.map)
    longest_name = MAX_MAP_NAME_LENGTH + (MAX_HIDDEN_LENGTH if is_staged else 0)
    is_attempt = type(request) is PutPacked and kind_of(request.map) is HiddenKind.ATTEMPT and bool(job_of(request.map))
    if not is_attempt and is_hidden_from_users(leader, caller, request):
        return False
    for what, limit, extent in (("key", config.max_key_bytes, keys), ("value", config.max_value_bytes, values)):
        if extent.largest > limit:
            text = f"a {what} of {extent.largest} bytes is over the limit of {limit} bytes (max_{what}_bytes of the members)"
            leader.fail(caller, request_id, ErrorCode.TOO_LARGE, text)
            return False
        if extent.many and extent.smallest < TYPE_ID_BYTES:
            text = f"a {what} of {extent.smallest} bytes is none: each begins with the {TYPE_ID_BYTES} bytes of its type id"
            leader.fail(caller, request_id, ErrorCode.INVALID, text)
            return False
    total = keys.total + values.total
    if keys.many > 1 and total + OVERHEAD_BYTES * keys.many > config.max_bulk_bytes:
        text = f"{keys.many} entries of {total} bytes are over the limit of one request: send fewer entries at a time"
        leader.fail(caller, request_id, ErrorCode.TOO_LARGE, text)
        return False
    if not 0 < len(request.map) <= longest_name:
        text = f"a text of {len(request.map)} characters cannot name a map: give 1 to {MAX_MAP_NAME_LENGTH}"
        leader.fail(caller, request_id, ErrorCode.INVALID, text)
        return False
    if not (REMOVES if is_staged else 0) <= ttl_ms <= MAX_TTL_MS:
        text = f"ttl_ms is {ttl_ms}: give 0 (for ever) to {MAX_TTL_MS} (ten years)"
        leader.fail(caller, request_id, ErrorCode.INVALID, text)
        return False
    idle_ms = getattr(request, "max_idle_ms", 0) or 0
    if not (MAP_IDLE if isinstance(request, UpdateValue) else 0) <= idle_ms <= MAX_TTL_MS:
        text = f"max_idle_ms is {idle_ms}: give 0 (for ever) to {MAX_TTL_MS} (ten years)"
        leader.fail(caller, request_id, ErrorCode.INVALID, text)
        return False
    return True
