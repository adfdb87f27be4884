"""The handlers of requests for many keys or partitions. All keys must be owned here, or nothing is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.codec.hashing import partition_of, partitions_of
from phalanx.codec.rows import (
    BadRows,
    extent_of_items,
    extents_of,
    first_key,
    sum_extents,
    unpack_rows,
)
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import HiddenKind, is_hidden, job_of, kind_of, target_of
from phalanx.common.ids import Millis, Target
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged import JobStage
from phalanx.grid.replica.staged_steps import header_of, page_key
from phalanx.grid.replication.expired import end_before_write, set_entry
from phalanx.grid.replication.owned_partition import OwnedPartition, PendingWrite
from phalanx.grid.requests.clear import on_clear
from phalanx.grid.requests.staged import on_change, take_pages
from phalanx.grid.requests.update_where import on_update_where
from phalanx.grid.serving.admission import any_begins_too_many, fits, owned_at, owned_of, owns_all
from phalanx.grid.serving.conditions import BadCondition, wanted_by
from phalanx.grid.serving.many_keys import find_values
from phalanx.grid.serving.memory_admission import lack_memory, lack_memory_for_rows
from phalanx.grid.serving.packing import NOTHING, PackedPage, examined_at_most, packed_page
from phalanx.wire.limits import MAX_ATTEMPTS, MAX_ROWS
from phalanx.wire.messages import (
    BulkRequest,
    ChangeStaged,
    ClearPartitions,
    CountReply,
    DoneReply,
    GetAll,
    PackedReply,
    PageReply,
    PutAll,
    PutPacked,
    ReadJournal,
    ReplicatePut,
    ScanPacked,
    ScanPartition,
    SizeOf,
    UpdateWhere,
    ValuesReply,
)

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

REPLY_BYTES = 8 * 1024 * 1024
"""The most bytes of values in one reply; the caller requests the rest."""


def on_bulk_request(grid: GridService, caller: Target, request: BulkRequest, now: Millis) -> None:
    """Serve a request for many keys or partitions. All of them must be owned here, or nothing is done."""
    grid.traffic.last_at = now
    _BULK_OPERATIONS[type(request)](grid, caller, request, now)


def _get_all(grid: GridService, caller: Target, request: GetAll, now: Millis) -> None:
    keys, name = request.keys, request.map
    has_idle = grid.has_idle(name)
    values = find_values(grid.owned, name, keys, REPLY_BYTES, now, has_idle=has_idle)
    if values is None or grid.rules.counts_reads or grid.guard.watches(name) or has_idle:
        owned_ones = owned_of(grid, caller, request, partitions_of(keys, len(grid.owned)), now)
        if owned_ones is None or values is None:
            return
        grid.touch_all(owned_ones, name, keys, values, now)
        if grid.rules.counts_reads:
            for key, owned, value in zip(keys, owned_ones, values, strict=False):
                if value is not None:
                    grid.note_read(owned.replica.maps[name], name, key, now)
    grid.out.send(caller, ValuesReply(request.id, values))


def _put_all(grid: GridService, caller: Target, request: PutAll, now: Millis) -> None:
    if len(request.keys) != len(request.values):
        text = f"{len(request.keys)} keys and {len(request.values)} values: send one value for each key"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
        return
    keys, values = extent_of_items(request.keys), extent_of_items(request.values)
    if not fits(grid, caller, request, keys, values):
        return
    name, ttl_ms, idle_ms = request.map, request.ttl_ms, request.max_idle_ms or grid.max_idle_of(request.map)
    stamp = grid.clock.stamp(now).to_bytes(STAMP_BYTES, "big")
    size = keys.total + values.total + WRITTEN_BYTES * keys.many
    is_usual = size <= grid.memory.room and not (ttl_ms or idle_ms or grid.evictor.is_on or grid.guard.watches(name))
    if is_usual and grid.commit_values(name, request.keys, request.values, stamp):
        grid.memory.take(size)
        grid.out.send(caller, DoneReply(request.id))
        return
    owned_ones = owned_of(grid, caller, request, partitions_of(request.keys, len(grid.owned)), now)
    if owned_ones is None or any_begins_too_many(grid, owned_ones, caller, request):
        return
    if size > grid.memory.room:
        entries = zip(owned_ones, request.keys, map(len, request.values), strict=True)
        if lack_memory(grid, grid.evictor, caller, request.id, name, entries, now):
            return
    if not all(owned.streams for owned in owned_ones):
        grid.memory.take(size)  # what is committed is counted there, too: rather too much
    shared: dict[OwnedPartition, tuple[list[bytes], list[bytes]]] = {}
    for key, value, owned in zip(request.keys, request.values, owned_ones, strict=True):
        stored = stamp + value
        if owned.is_plain and not (ttl_ms or idle_ms):
            if (store := grid.plain_store(owned, name)) is not None:
                grid.commit_plain(owned, store, key, stored, None, now)
            else:
                set_entry(grid, owned, name, key, stored, None, now)
        elif owned in shared:
            shared[owned][0].append(key)
            shared[owned][1].append(stored)
        else:
            shared[owned] = ([key], [stored])
    write = PendingWrite(caller, DoneReply(request.id), 0, name)
    for owned, (some_keys, some_values) in shared.items():
        _put_in(grid, owned, name, some_keys, some_values, ttl_ms, write, now, max_idle_ms=idle_ms)
    if grid.evictor.is_on:
        for owned in dict.fromkeys(owned_ones):
            grid.evictor.after_write(owned, name, len(request.keys), now)
    if write.partitions_left == 0:
        grid.out.send(caller, write.reply)


def _put_packed(grid: GridService, caller: Target, request: PutPacked, now: Millis) -> None:
    name, ttl_ms = request.map, request.ttl_ms
    partitions = [part.partition for part in request.parts]
    try:
        extents = [extents_of(part.rows) for part in request.parts]
    except BadRows as error:
        grid.fail(caller, request.id, ErrorCode.INVALID, f"what is to be put into {name!r} means nothing: {error}")
        return
    if len(set(partitions)) < len(partitions):
        grid.fail(
            caller, request.id, ErrorCode.INVALID, "rows of a partition come twice: send each partition's sum_extents"
        )
        return
    keys, values = sum_extents(own for own, _ in extents), sum_extents(their for _, their in extents)
    many, of_what = keys.many, "one request"
    if is_hidden(name):
        many, of_what = max((own.many for own, _ in extents), default=0), "one page"
    if many > MAX_ROWS:
        text = f"{many} rows are over the limit of {MAX_ROWS} for {of_what}: send fewer at a time"
        grid.fail(caller, request.id, ErrorCode.INVALID, text)
        return
    if not fits(grid, caller, request, keys, values) or not owns_all(
        grid, caller, request, partitions, request.of, now
    ):
        return
    if any_begins_too_many(grid, [owned_at(grid, partition) for partition in partitions], caller, request):
        return
    for part in request.parts:
        # The first key of each partition is checked, to find a client that hashes differently before its rows are
        # stored where no reader looks for them.
        key = first_key(part.rows)
        if key is not None and partition_of(key, request.of) != part.partition:
            text = (
                f"key {key.hex()} comes as one of partition {part.partition}, and is of {partition_of(key, request.of)}"
            )
            grid.fail(caller, request.id, ErrorCode.INVALID, text)
            return
    size = keys.total + values.total + WRITTEN_BYTES * keys.many
    if size > grid.memory.room and _lack_memory_for_parts(grid, caller, request, size, now):
        return
    stamp, idle_ms = grid.clock.stamp(now).to_bytes(STAMP_BYTES, "big"), grid.max_idle_of(name)
    write = PendingWrite(caller, DoneReply(request.id), 0, name)
    if is_hidden(name):
        late = take_pages(grid, caller, request, now)
        if late is None:
            return
        for part in request.parts:
            if part.partition not in late:
                page, row = page_key(part.page), stamp + header_of(ttl_ms) + part.rows
                _put_in(grid, owned_at(grid, part.partition), name, [page], [row], 0, write, now, page=part.page)
    else:
        for part in request.parts:
            owned, rows = owned_at(grid, part.partition), unpack_rows(part.rows, 0, stamp)
            if rows[0]:
                _put_in(grid, owned, name, *rows, ttl_ms, write, now, max_idle_ms=idle_ms)
                if grid.evictor.is_on:
                    grid.evictor.after_write(owned, name, len(rows[0]), now)
    if write.partitions_left == 0:
        grid.out.send(caller, write.reply)


def _lack_memory_for_parts(grid: GridService, caller: Target, request: PutPacked, size: int, now: Millis) -> bool:
    """Whether there is no memory for packed rows, or for the entries that staged rows will be."""
    owned_ones = [owned_at(grid, part.partition) for part in request.parts]
    if is_hidden(request.map):
        name = target_of(request.map)
        return lack_memory_for_rows(grid, owned_ones, caller, request.id, name, size, now)
    rows = [unpack_rows(part.rows, 0, b"") for part in request.parts]
    entries = (
        (owned, key, len(value))
        for owned, (keys, values) in zip(owned_ones, rows, strict=True)
        for key, value in zip(keys, values, strict=True)
    )
    return lack_memory(grid, grid.evictor, caller, request.id, request.map, entries, now)


def _put_in(
    grid: GridService,
    owned: OwnedPartition,
    name: str,
    keys: list[bytes],
    values: list[bytes],
    ttl_ms: Millis,
    write: PendingWrite,
    now: Millis,
    *,
    page: int = 0,
    max_idle_ms: Millis = 0,
) -> None:
    """Commit stamped values in one partition; the write waits for the backups."""
    if owned.replica.journals:
        end_before_write(grid, owned, name, keys, now)
    grid.commit(owned, ReplicatePut, write, now, name, keys, values, ttl_ms, page=page, max_idle_ms=max_idle_ms)


def _change_staged(grid: GridService, caller: Target, request: ChangeStaged, now: Millis) -> None:
    lookups = len(request.attempts) * len(request.partitions)
    if lookups > MAX_ATTEMPTS:
        text = f"{len(request.attempts)} attempts in {len(request.partitions)} partitions are {lookups} to look up in one request"
        grid.fail(caller, request.id, ErrorCode.INVALID, f"{text}, more than {MAX_ATTEMPTS}: name fewer partitions")
        return
    if owns_all(grid, caller, request, request.partitions, request.of, now):
        owned_ones = [owned_at(grid, partition) for partition in dict.fromkeys(request.partitions)]
        on_change(grid, caller, request, owned_ones, now)


def _size_of(grid: GridService, caller: Target, request: SizeOf, now: Millis) -> None:
    if not owns_all(grid, caller, request, request.partitions, request.of, now):
        return
    sizes: list[tuple[int, int]] = []
    for partition in dict.fromkeys(request.partitions):
        store = owned_at(grid, partition).replica.maps.get(request.map)
        if store is not None and (size := store.size(now)):
            sizes.append((partition, size))
    total = sum([size for _, size in sizes])
    grid.out.send(caller, CountReply(request.id, total, tuple(sizes) if request.by_partition else ()))


def _scan(grid: GridService, caller: Target, request: ScanPartition, now: Millis) -> None:
    if not owns_all(grid, caller, request, (request.partition,), request.of, now):
        return
    store = owned_at(grid, request.partition).replica.maps.get(request.map)
    if store is not None and is_hidden(request.map):
        grid.staging.touch(request.map, now)
    max_bytes = min(max(request.max_bytes, 1), REPLY_BYTES)
    page = store.page(request.after_key, max_bytes, now) if store is not None else ([], [], b"")
    if store is not None and page is None:
        grid.scans.hold(caller, request, request.partition, store, now)
    elif page is not None:
        keys, values, after_key = page
        if store is not None:
            grid.scans.note(store, now)
        grid.out.send(caller, PageReply(request.id, keys, values, bool(after_key), after_key))


def _scan_packed(grid: GridService, caller: Target, request: ScanPacked, now: Millis) -> None:
    if not owns_all(grid, caller, request, (request.partition,), request.of, now):
        return
    try:
        wanted = wanted_by(request.conditions, request.key_parts) if request.conditions else None
    except BadCondition as refusal:
        grid.failed_requests.refuse(caller, request, refusal, now, "a condition of the scan means nothing: ")
        return
    replica = owned_at(grid, request.partition).replica
    store = replica.maps.get(request.map)
    if is_hidden(request.map) and not _is_there(grid, replica, request.map, now):
        text = f"the snapshot of map {target_of(request.map)!r} is gone: nobody had read it for the members' staging_ms"
        grid.fail(
            caller, request.id, ErrorCode.INVALID, f"{text}, or all replicas of a partition were lost; make another"
        )
        return
    max_bytes = min(max(request.max_bytes, 1), REPLY_BYTES)
    page: PackedPage | None = NOTHING
    if store is not None:
        most = examined_at_most(len(request.conditions))
        page = packed_page(store, request.after_key, max_bytes, wanted, most, now, with_ttls=request.with_ttls)
        if page is None:
            grid.scans.hold(caller, request, request.partition, store, now)
            return
        grid.scans.note(store, now)
    grid.out.send(caller, PackedReply(request.id, *(page or NOTHING)))


def _is_there(grid: GridService, replica: Replica, name: str, now: Millis) -> bool:
    """Whether a hidden map is still complete: a snapshot without entries has no store, but its job knows it. Note the
    use."""
    if name in replica.maps:
        grid.staging.touch(name, now)
        return True
    return (
        kind_of(name) is not HiddenKind.SNAPSHOT
        or replica.staged.stage_of(target_of(name), job_of(name)) is JobStage.SNAPSHOT_KEPT
    )


def _read_journal(grid: GridService, caller: Target, request: ReadJournal, now: Millis) -> None:
    if owns_all(grid, caller, request, (request.partition,), request.of, now):
        grid.out.send(caller, grid.read_journal(owned_at(grid, request.partition), request))


_BULK_OPERATIONS: dict[type, Callable[[GridService, Target, Any, Millis], None]] = {
    GetAll: _get_all,
    PutAll: _put_all,
    PutPacked: _put_packed,
    UpdateWhere: on_update_where,
    SizeOf: _size_of,
    ClearPartitions: on_clear,
    ScanPartition: _scan,
    ScanPacked: _scan_packed,
    ReadJournal: _read_journal,
    ChangeStaged: _change_staged,
}
