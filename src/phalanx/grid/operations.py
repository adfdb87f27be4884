"""What each request does at the owner of its partition, one function each.

Reads answer from the owner's replica. Writes are evaluated there, applied, numbered, and go to the backups as what
they did (these keys have these values now; these are gone), so a backup never evaluates anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden import HIDDEN, MAX_HIDDEN_LENGTH, Kind, Step, is_hidden, job_of, kind_of, target_of
from phalanx.common.ids import MAX_TTL_MS, Millis, Target
from phalanx.common.invariant import invariant
from phalanx.common.map_settings import MAX_MAP_NAME_LENGTH
from phalanx.grid.conditions import BadCondition, wanted_by
from phalanx.grid.ending import end_before_write
from phalanx.grid.once import answer_unchanged, noted, was_applied, was_noted
from phalanx.grid.packing import NOTHING, packed_page
from phalanx.grid.replication import OwnedPartition, PendingWrite
from phalanx.grid.staging import on_change, take_pages
from phalanx.grid.steps import REMOVES, header_of
from phalanx.grid.store import Replica
from phalanx.partition.hashing import partition_of, partitions_of
from phalanx.wire.messages import (
    OPERATIONS,
    WRITES,
    BulkRequest,
    ChangeStaged,
    ClearPartitions,
    Contains,
    CountReply,
    DoneReply,
    FlagReply,
    Get,
    GetAll,
    KeyRequest,
    OutcomeValue,
    PackedReply,
    PageReply,
    Put,
    PutAll,
    PutIfAbsent,
    ReadJournal,
    Remove,
    Replace,
    ReplicateClear,
    ReplicatePut,
    ReplicateRemove,
    Reply,
    ScanPacked,
    ScanPartition,
    SizeOf,
    ValueReply,
    ValuesReply,
)

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

TYPE_ID_BYTES = 4
"""What every serialised key and value begins with."""
OVERHEAD_BYTES = 10
"""Of one entry in a message, at most."""
REPLY_BYTES = 8 * 1024 * 1024
"""A reply with many values ends here; the caller asks for the rest."""


def on_key_request(grid: GridService, caller: Target, request: KeyRequest, now: Millis) -> None:
    """A request for one key: serve it if this member owns the key's partition."""
    partition = partition_of(request.key, len(grid.owned))
    owned = grid.owned[partition]
    if owned is None:
        grid.refuse(caller, request, partition)
    elif not (
        (guard := grid.guard).is_watchful
        and guard.watches(request.map)
        and _is_refused(grid, owned, caller, request, now)
    ):
        _KEY_OPERATIONS[type(request)](grid, owned, caller, request, now)


def _is_refused(grid: GridService, owned: OwnedPartition, caller: Target, request: KeyRequest, now: Millis) -> bool:
    """Whether the map may not be used here now; then the caller is told."""
    is_write = isinstance(request, OPERATIONS)
    why = grid.guard.why_refused(request.map, is_write=is_write, now=now)
    if not why:
        return False
    if isinstance(request, OPERATIONS) and was_noted(owned, caller, request):
        # An earlier try was applied, and perhaps nobody was told so: what became of it is not for this side to say.
        grid.fail(caller, request.id, ErrorCode.INDETERMINATE, f"an earlier try was applied or is over: {why}")
    else:
        grid.fail(caller, request.id, ErrorCode.NOT_ENOUGH_MEMBERS, why)
    return True


def on_bulk_request(grid: GridService, caller: Target, request: BulkRequest, now: Millis) -> None:
    """A request for many keys or partitions: all of them must be owned here, or nothing is done."""
    _BULK_OPERATIONS[type(request)](grid, caller, request, now)


# --- one key --------------------------------------------------------------------------------------------------------


def _get(grid: GridService, owned: OwnedPartition, caller: Target, request: Get, now: Millis) -> None:
    store = owned.replica.maps.get(request.map)
    value = store.get(request.key, now) if store is not None else None
    if grid.counts_reads and value is not None:
        grid.note_read(owned, request.map, request.key, now)
    grid.out.send(caller, ValueReply(request.id, value))


def _contains(grid: GridService, owned: OwnedPartition, caller: Target, request: Contains, now: Millis) -> None:
    store = owned.replica.maps.get(request.map)
    grid.out.send(caller, FlagReply(request.id, store is not None and store.get(request.key, now) is not None))


def _put(grid: GridService, owned: OwnedPartition, caller: Target, request: Put, now: Millis) -> None:
    if not _fits_one(grid, caller, request):
        return
    number = request.op or request.id
    if (
        not owned.streams
        and not request.ttl_ms
        and owned.replica.outcomes.note_next(caller, number, request.open_from, None, now)
    ):
        owned.put_unshared(request.map, request.key, grid.clock.stamped(request.value, now), now)
        grid.out.send(caller, DoneReply(request.id))
    elif not was_applied(grid, owned, caller, request):
        _store(grid, owned, caller, request, DoneReply(request.id), None, now)


def _put_if_absent(grid: GridService, owned: OwnedPartition, caller: Target, request: PutIfAbsent, now: Millis) -> None:
    if not _fits_one(grid, caller, request) or was_applied(grid, owned, caller, request):
        return
    store = owned.replica.maps.get(request.map)
    present = store.get(request.key, now) if store is not None else None
    if present is not None:
        answer_unchanged(grid, owned, caller, request, ValueReply(request.id, present), present, now)
    else:
        _store(grid, owned, caller, request, ValueReply(request.id, None), None, now)


def _replace(grid: GridService, owned: OwnedPartition, caller: Target, request: Replace, now: Millis) -> None:
    if not _fits_one(grid, caller, request) or was_applied(grid, owned, caller, request):
        return
    store = owned.replica.maps.get(request.map)
    present = store.get(request.key, now) if store is not None else None
    if present is None or (request.expected is not None and request.expected != present):
        answer_unchanged(grid, owned, caller, request, FlagReply(request.id, False), False, now)
    else:
        _store(grid, owned, caller, request, FlagReply(request.id, True), True, now)


def _remove(grid: GridService, owned: OwnedPartition, caller: Target, request: Remove, now: Millis) -> None:
    if _is_kept_from_users(grid, caller, request) or was_applied(grid, owned, caller, request):
        return
    replica = owned.replica
    if replica.journals:
        end_before_write(grid, owned, request.map, (request.key,), now)
    store = replica.maps.get(request.map)
    if store is None or request.key not in store.entries:
        answer_unchanged(grid, owned, caller, request, ValueReply(request.id, None), None, now)
        return
    present = store.get(request.key, now)
    keys, stamps = [request.key], [grid.clock.stamp(now)]
    replica.remove(request.map, keys, stamps)
    replica.seq += 1
    applied = noted(grid, owned, caller, request, present, now)
    message = ReplicateRemove(owned.number, replica.epoch, replica.seq, request.map, keys, stamps, applied)
    grid.write(owned, message, caller, ValueReply(request.id, present))


def _store(
    grid: GridService,
    owned: OwnedPartition,
    caller: Target,
    request: Put | PutIfAbsent | Replace,
    reply: Reply,
    outcome: OutcomeValue,
    now: Millis,
) -> None:
    applied = noted(grid, owned, caller, request, outcome, now)
    ttl_ms = request.ttl_ms
    stored = grid.clock.stamped(request.value, now)
    if not ttl_ms and not owned.streams:
        owned.put_unshared(request.map, request.key, stored, now)
        grid.out.send(caller, reply)
        return
    replica = owned.replica
    if replica.journals:
        end_before_write(grid, owned, request.map, (request.key,), now)
    replica.map(request.map).put(request.key, stored, ttl_ms, now)
    if ttl_ms:
        grid.note_expiry(owned)
    replica.seq += 1
    message = ReplicatePut(
        owned.number, replica.epoch, replica.seq, request.map, [request.key], [stored], ttl_ms, applied
    )  # fmt: skip
    grid.write(owned, message, caller, reply)


# --- many keys ------------------------------------------------------------------------------------------------------


def _get_all(grid: GridService, caller: Target, request: GetAll, now: Millis) -> None:
    keys, name = request.keys, request.map
    owned_ones = _owned_of(grid, caller, request, partitions_of(keys, len(grid.owned)), now)
    if owned_ones is None:
        return
    values = [
        None
        if (store := owned.replica.maps.get(name)) is None
        else store.get(key, now)
        if store.expires_at
        else stored[STAMP_BYTES:]
        if (stored := store.entries.get(key)) is not None
        else None
        for key, owned in zip(keys, owned_ones, strict=True)
    ]
    values = _as_many_as_fit(values)
    if grid.counts_reads:
        for key, owned, value in zip(keys, owned_ones, values, strict=False):
            if value is not None:
                grid.note_read(owned, name, key, now)
    grid.out.send(caller, ValuesReply(request.id, values))


def _as_many_as_fit(values: list[bytes | None]) -> list[bytes | None]:
    """The first values, as many as one reply may hold; at least one."""
    if sum(map(len, filter(None, values))) <= REPLY_BYTES:
        return values
    size = 0
    for number, value in enumerate(values):
        size += len(value) if value is not None else 0
        if size > REPLY_BYTES and number:
            return values[:number]
    return values


def _put_all(grid: GridService, caller: Target, request: PutAll, now: Millis) -> None:
    if len(request.keys) != len(request.values):
        text = f"{len(request.keys)} keys and {len(request.values)} values: send one value for each key"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
        return
    if not _fits(grid, caller, request, request.keys, request.values):
        return
    owned_ones = _owned_of(grid, caller, request, partitions_of(request.keys, len(grid.owned)), now)
    if owned_ones is None:
        return
    name, ttl_ms = request.map, request.ttl_ms
    stamp = grid.clock.stamp(now).to_bytes(STAMP_BYTES, "big")
    late: Collection[OwnedPartition] | None = ()
    if is_hidden(name):
        # What is staged lives from its application on, and says till then how long.
        late = take_pages(grid, caller, request, owned_ones, now)
        if late is None:
            return
        stamp, ttl_ms = stamp + header_of(ttl_ms), 0
    shared: dict[OwnedPartition, tuple[list[bytes], list[bytes]]] = {}
    for key, value, owned in zip(request.keys, request.values, owned_ones, strict=True):
        stored = stamp + value
        if late and owned in late:
            continue
        if not ttl_ms and not owned.streams:
            owned.put_unshared(name, key, stored, now)
        elif owned in shared:
            shared[owned][0].append(key)
            shared[owned][1].append(stored)
        else:
            shared[owned] = ([key], [stored])
    write = PendingWrite(caller, DoneReply(request.id), 0, name)
    pages = dict(request.pages)
    for owned, (keys, values) in shared.items():
        replica = owned.replica
        if replica.journals:
            end_before_write(grid, owned, name, keys, now)
        replica.map(name).put_many(keys, values, ttl_ms, now)
        if ttl_ms:
            grid.note_expiry(owned)
        replica.seq += 1
        if owned.streams:
            grid.unsettled[owned.number] = owned
        message = ReplicatePut(
            owned.number, replica.epoch, replica.seq, name, keys, values, ttl_ms, page=pages.get(owned.number, 0)
        )
        if owned.append(message, write):
            write.partitions_left += 1
    if write.partitions_left == 0:
        grid.out.send(caller, write.reply)


def _change_staged(grid: GridService, caller: Target, request: ChangeStaged, now: Millis) -> None:
    if _owns_all(grid, caller, request, request.partitions, request.of, now):
        owned_ones = [_owned(grid, partition) for partition in dict.fromkeys(request.partitions)]
        on_change(grid, caller, request, owned_ones, now)


def _size_of(grid: GridService, caller: Target, request: SizeOf, now: Millis) -> None:
    if not _owns_all(grid, caller, request, request.partitions, request.of, now):
        return
    size = 0
    for partition in dict.fromkeys(request.partitions):
        store = _owned(grid, partition).replica.maps.get(request.map)
        size += store.size(now) if store is not None else 0
    grid.out.send(caller, CountReply(request.id, size))


def _clear(grid: GridService, caller: Target, request: ClearPartitions, now: Millis) -> None:
    if _is_kept_from_users(grid, caller, request) or not _owns_all(
        grid, caller, request, request.partitions, request.of, now
    ):
        return
    stamp = grid.clock.stamp(now)
    write = PendingWrite(caller, DoneReply(request.id), 0, request.map)
    for partition in dict.fromkeys(request.partitions):
        owned = _owned(grid, partition)
        replica = owned.replica
        if replica.journals:
            end_before_write(grid, owned, request.map, None, now)
        store = replica.maps.get(request.map)
        if store is None or not store.entries:
            continue
        replica.clear(request.map, stamp)
        replica.seq += 1
        if owned.append(ReplicateClear(partition, replica.epoch, replica.seq, request.map, stamp), write):
            write.partitions_left += 1
        if owned.streams:
            grid.unsettled[partition] = owned
    if write.partitions_left == 0:
        grid.out.send(caller, write.reply)


def _scan(grid: GridService, caller: Target, request: ScanPartition, now: Millis) -> None:
    if not _owns_all(grid, caller, request, (request.partition,), request.of, now):
        return
    store = _owned(grid, request.partition).replica.maps.get(request.map)
    if store is not None and is_hidden(request.map):
        grid.staging.touch(request.map, now)
    max_bytes = min(max(request.max_bytes, 1), REPLY_BYTES)
    keys, values, more = store.page(request.after_key, max_bytes, now) if store is not None else ([], [], False)
    grid.out.send(caller, PageReply(request.id, keys, values, more))


def _scan_packed(grid: GridService, caller: Target, request: ScanPacked, now: Millis) -> None:
    if not _owns_all(grid, caller, request, (request.partition,), request.of, now):
        return
    try:
        wanted = wanted_by(request.conditions, request.key_parts) if request.conditions else None
    except BadCondition as error:
        grid.fail(caller, request.id, ErrorCode.INVALID, f"a condition of the scan means nothing: {error}")
        return
    replica = _owned(grid, request.partition).replica
    store = replica.maps.get(request.map)
    if is_hidden(request.map) and not _is_there(grid, replica, request.map, now):
        text = f"the snapshot of map {target_of(request.map)!r} is gone: nobody had read it for the members' staging_ms"
        grid.fail(
            caller, request.id, ErrorCode.INVALID, f"{text}, or all replicas of a partition were lost; make another"
        )
        return
    max_bytes = min(max(request.max_bytes, 1), REPLY_BYTES)
    page = NOTHING
    if store is not None:
        page = packed_page(store, request.after_key, max_bytes, wanted, now, with_ttls=request.with_ttls)
    grid.out.send(caller, PackedReply(request.id, *page))


def _is_there(grid: GridService, replica: Replica, name: str, now: Millis) -> bool:
    """Whether a hidden map is still what it was made as, perhaps without entries; then it is used now."""
    if name in replica.maps:
        grid.staging.touch(name, now)
        return True
    return (
        kind_of(name) is not Kind.SNAPSHOT or replica.staged.jobs.get((target_of(name), job_of(name))) is Step.SNAPSHOT
    )


def _read_journal(grid: GridService, caller: Target, request: ReadJournal, now: Millis) -> None:
    if _owns_all(grid, caller, request, (request.partition,), request.of, now):
        grid.out.send(caller, grid.read_journal(_owned(grid, request.partition), request))


# --- checks ---------------------------------------------------------------------------------------------------------


def _owned(grid: GridService, partition: int) -> OwnedPartition:
    owned = grid.owned[partition]
    invariant(owned is not None, "ownership was checked for the whole request", partition=partition)
    return owned  # type: ignore[return-value]  # held by the invariant


def _owned_of(
    grid: GridService, caller: Target, request: BulkRequest, partitions: list[int], now: Millis
) -> list[OwnedPartition] | None:
    """The owned partitions of these numbers; None, and the caller is told, if another member owns one of them or the map
    may not be used.
    """
    owned_by_number = grid.owned
    found = [owned_by_number[partition] for partition in partitions]
    if not all(found):
        grid.refuse(caller, request, partitions[found.index(None)])
        return None
    if grid.guard.watches(request.map) and _is_bulk_refused(grid, caller, request, now):
        return None
    return found  # type: ignore[return-value]  # none of them is None


def _owns_all(
    grid: GridService,
    caller: Target,
    request: BulkRequest,
    partitions: Sequence[int] | dict[int, Any],
    of: int,
    now: Millis,
) -> bool:
    if of != len(grid.owned):
        # The caller or this member has yet to hear that they were divided: the numbers mean other partitions.
        text = f"there are {len(grid.owned)} partitions here, and {of} where the request comes from"
        grid.fail(caller, request.id, ErrorCode.NOT_OWNER, text)
        return False
    for partition in partitions:
        if not 0 <= partition < of:
            text = f"there is no partition {partition}: this cluster has {of}"
            grid.fail(caller, request.id, ErrorCode.INVALID, text)
            return False
        if grid.owned[partition] is None:
            grid.refuse(caller, request, partition)
            return False
    return not (grid.guard.watches(request.map) and _is_bulk_refused(grid, caller, request, now))


def _is_bulk_refused(grid: GridService, caller: Target, request: BulkRequest, now: Millis) -> bool:
    why = grid.guard.why_refused(request.map, is_write=isinstance(request, WRITES), now=now)
    if why:
        grid.fail(caller, request.id, ErrorCode.NOT_ENOUGH_MEMBERS, why)
    return bool(why)


def _fits_one(grid: GridService, caller: Target, request: Put | PutIfAbsent | Replace) -> bool:
    """As `_fits`, without its cost where all is well."""
    config = grid.config
    if (
        TYPE_ID_BYTES <= len(request.key) <= config.max_key_bytes
        and TYPE_ID_BYTES <= len(request.value) <= config.max_value_bytes
        and 0 < len(request.map) <= MAX_MAP_NAME_LENGTH
        and 0 <= request.ttl_ms <= MAX_TTL_MS
        and request.map[0] != HIDDEN
    ):
        return True
    return _fits(grid, caller, request, (request.key,), (request.value,))


def _is_kept_from_users(grid: GridService, caller: Target, request: KeyRequest | BulkRequest) -> bool:
    """Whether a write is for a hidden map: those change by what their job asks for, and nobody else's wish."""
    if is_hidden(request.map):
        text = f"{request.map!r} is the name of a hidden map: none can write there"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
        return True
    return False


def _fits(
    grid: GridService,
    caller: Target,
    request: Put | PutIfAbsent | Replace | PutAll,
    keys: Sequence[bytes],
    values: Sequence[bytes],
) -> bool:
    """Check limits before anything is changed: what is stored must be readable, and fit a frame to the backups."""
    config, request_id, ttl_ms = grid.config, request.id, request.ttl_ms
    total = 0
    is_staged = is_hidden(request.map)
    longest_name = MAX_MAP_NAME_LENGTH + (MAX_HIDDEN_LENGTH if is_staged else 0)
    is_attempt = type(request) is PutAll and kind_of(request.map) is Kind.ATTEMPT and bool(job_of(request.map))
    if not is_attempt and _is_kept_from_users(grid, caller, request):
        return False
    for what, limit, sizes in (
        ("key", config.max_key_bytes, list(map(len, keys))),
        ("value", config.max_value_bytes, list(map(len, values))),
    ):
        total += sum(sizes)
        largest = max(sizes, default=0)
        if largest > limit:
            text = f"a {what} of {largest} bytes is over the limit of {limit} bytes (max_{what}_bytes of the members)"
            grid.fail(caller, request_id, ErrorCode.TOO_LARGE, text)
            return False
        if min(sizes, default=TYPE_ID_BYTES) < TYPE_ID_BYTES:
            text = f"a {what} of {min(sizes)} bytes is none: each begins with the {TYPE_ID_BYTES} bytes of its type id"
            grid.fail(caller, request_id, ErrorCode.INVALID, text)
            return False
    if len(keys) > 1 and total + OVERHEAD_BYTES * len(keys) > config.max_bulk_bytes:
        text = f"{len(keys)} entries of {total} bytes are over the limit of one request: send fewer entries at a time"
        grid.fail(caller, request_id, ErrorCode.TOO_LARGE, text)
        return False
    if not 0 < len(request.map) <= longest_name:
        text = f"a text of {len(request.map)} characters cannot name a map: give 1 to {MAX_MAP_NAME_LENGTH}"
        grid.fail(caller, request_id, ErrorCode.INVALID, text)
        return False
    if not (REMOVES if is_staged else 0) <= ttl_ms <= MAX_TTL_MS:
        text = f"ttl_ms is {ttl_ms}: give 0 (for ever) to {MAX_TTL_MS} (ten years)"
        grid.fail(caller, request_id, ErrorCode.INVALID, text)
        return False
    return True


_KEY_OPERATIONS: dict[type, Callable[[GridService, OwnedPartition, Target, Any, Millis], None]] = {
    Get: _get,
    Contains: _contains,
    Put: _put,
    PutIfAbsent: _put_if_absent,
    Replace: _replace,
    Remove: _remove,
}
_BULK_OPERATIONS: dict[type, Callable[[GridService, Target, Any, Millis], None]] = {
    GetAll: _get_all,
    PutAll: _put_all,
    SizeOf: _size_of,
    ClearPartitions: _clear,
    ScanPartition: _scan,
    ScanPacked: _scan_packed,
    ReadJournal: _read_journal,
    ChangeStaged: _change_staged,
}
