"""The handlers of requests for many keys or partitions. All keys must be owned here, or nothing is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from phalanx.codec.hashing import partition_of
from phalanx.codec.rows import (
    BadRows,
    extent_of_items,
    extents_of,
    first_key,
    sum_extents,
    unpack_rows,
)
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import Millis, Target
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.flow_control import CallerTraffic
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.requests.scans import REPLY_BYTES
from phalanx.grid.requests.staged import PageStager
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.bulk_writer import BulkWriter
from phalanx.grid.serving.many_keys import find_values
from phalanx.grid.serving.memory_admission import MemoryAdmission
from phalanx.grid.serving.reads import Reads
from phalanx.grid.serving.replies import Replies
from phalanx.wire.limits import MAX_ROWS
from phalanx.wire.messages import (
    ClientBulkRequest,
    CountReply,
    GetAll,
    PutAll,
    PutPacked,
    ReadJournal,
    SizeOf,
    ValuesReply,
)


class BulkRequests:
    """Serves the requests for many keys or partitions."""

    def __init__(self, traffic: CallerTraffic, operations: Mapping[type, Callable[[GridCall[Any]], None]]) -> None:
        self._traffic = traffic
        self._operations = operations

    def serve(self, caller: Target, request: ClientBulkRequest, now: Millis) -> None:
        """Do what a request asks for, or tell its caller why not."""
        self._traffic.last_at = now
        self._operations[type(request)](GridCall(caller, request, now))


class BulkReads:
    """The reads of many keys or partitions, but scans."""

    def __init__(self, ownership: Ownership, admission: RequestAdmission, reads: Reads, replies: Replies) -> None:
        self._ownership = ownership
        self._admission = admission
        self._reads = reads
        self._replies = replies

    def get_all(self, call: GridCall[GetAll]) -> None:
        """Answer with the values of the first keys, as many as fit."""
        request, now, ownership, reads = call.request, call.now, self._ownership, self._reads
        keys, name = request.keys, request.map
        has_idle = reads.has_idle(name)
        values = find_values(ownership.owned, name, keys, REPLY_BYTES, now, has_idle=has_idle)
        is_noted = ownership.rules.counts_reads or has_idle
        if values is None or is_noted or self._admission.guard.watches(name):
            owned_ones = self._admission.owned_of(call, keys)
            if owned_ones is None or values is None:
                return
            if is_noted:
                reads.note_all(name, zip(keys, owned_ones, values, strict=False), now)
        self._replies.send(call.caller, ValuesReply(request.id, values))

    def size_of(self, call: GridCall[SizeOf]) -> None:
        """Answer how many entries a map has in some partitions."""
        request, admission = call.request, self._admission
        if not admission.check_ownership(call, request.partitions, request.of):
            return
        sizes: list[tuple[int, int]] = []
        for partition in dict.fromkeys(request.partitions):
            store = admission.owned_at(partition).replica.maps.get(request.map)
            if store is not None and (size := store.size(call.now)):
                sizes.append((partition, size))
        total = sum([size for _, size in sizes])
        by_partition = tuple(sizes) if request.by_partition else ()
        self._replies.send(call.caller, CountReply(request.id, total, by_partition))

    def read_journal(self, call: GridCall[ReadJournal]) -> None:
        """Answer a reader of a journal."""
        request = call.request
        if self._admission.check_ownership(call, (request.partition,), request.of):
            owned = self._admission.owned_at(request.partition)
            self._replies.send(call.caller, self._reads.read_journal(owned, request))


class BulkWrites:
    """The writes of many entries of an ordinary map, or of rows that a job stages."""

    def __init__(
        self, admission: RequestAdmission, memory_admission: MemoryAdmission, writer: BulkWriter, pages: PageStager
    ) -> None:
        self._admission = admission
        self._memory_admission = memory_admission
        self._writer = writer
        self._pages = pages

    def put_all(self, call: GridCall[PutAll]) -> None:
        """Store entries."""
        request, admission, writer = call.request, self._admission, self._writer
        if len(request.keys) != len(request.values):
            text = f"{len(request.keys)} keys and {len(request.values)} values: send one value for each key"
            admission.refuse(call, ErrorCode.INVALID, text)
            return
        keys, values = extent_of_items(request.keys), extent_of_items(request.values)
        if not admission.check(call, keys, values):
            return
        stamp = writer.stamp(call.now)
        size = keys.total + values.total + WRITTEN_BYTES * keys.many
        if not admission.guard.watches(request.map) and writer.put_plain(call, stamp, size):
            return
        owned_ones = admission.owned_of(call, request.keys)
        if owned_ones is None or admission.refuse_maps(call, owned_ones):
            return
        entries = zip(owned_ones, request.keys, map(len, request.values), strict=True)
        if not self._memory_admission.lacks_for_all(call, size, entries):
            writer.put_all(call, owned_ones, stamp, size)

    def put_packed(self, call: GridCall[PutPacked]) -> None:
        """Store the rows of some partitions, or stage them."""
        request, admission, writer = call.request, self._admission, self._writer
        name, partitions = request.map, [part.partition for part in request.parts]
        try:
            extents = [extents_of(part.rows) for part in request.parts]
        except BadRows as error:
            admission.refuse(call, ErrorCode.INVALID, f"what is to be put into {name!r} means nothing: {error}")
            return
        if len(set(partitions)) < len(partitions):
            text = "rows of a partition come twice: send each partition's rows together"
            admission.refuse(call, ErrorCode.INVALID, text)
            return
        keys, values = sum_extents(own for own, _ in extents), sum_extents(their for _, their in extents)
        many, of_what = keys.many, "one request"
        if is_hidden(name):
            many, of_what = max((own.many for own, _ in extents), default=0), "one page"
        if many > MAX_ROWS:
            text = f"{many} rows are over the limit of {MAX_ROWS} for {of_what}: send fewer at a time"
            admission.refuse(call, ErrorCode.INVALID, text)
            return
        if not admission.check(call, keys, values) or not admission.check_ownership(call, partitions, request.of):
            return
        owned_ones = [admission.owned_at(partition) for partition in partitions]
        if admission.refuse_maps(call, owned_ones):
            return
        for part in request.parts:
            # The first key of each partition is checked, to find a client that hashes differently before its rows are
            # stored where no reader looks for them.
            key = first_key(part.rows)
            if key is not None and (right := partition_of(key, request.of)) != part.partition:
                text = f"key {key.hex()} comes as one of partition {part.partition}, and is of {right}"
                admission.refuse(call, ErrorCode.INVALID, text)
                return
        size = keys.total + values.total + WRITTEN_BYTES * keys.many
        if self._lacks_memory(call, owned_ones, size):
            return
        stamp = writer.stamp(call.now)
        if is_hidden(name):
            self._pages.stage(call, owned_ones, stamp)
        else:
            writer.put_parts(call, owned_ones, stamp)

    def _lacks_memory(self, call: GridCall[PutPacked], owned_ones: list[OwnedPartition], size: int) -> bool:
        """Return whether there is no memory for packed rows, or for the entries that staged rows will be."""
        memory_admission = self._memory_admission
        if is_hidden(call.request.map):
            return memory_admission.lacks_for_rows(call, owned_ones, size)
        return memory_admission.lacks_for_all(call, size, _entries_of(call.request, owned_ones))


def _entries_of(request: PutPacked, owned_ones: list[OwnedPartition]) -> Iterator[tuple[OwnedPartition, bytes, int]]:
    """Yield the partition, key and length of the value of each row."""
    for owned, part in zip(owned_ones, request.parts, strict=True):
        for key, value in zip(*unpack_rows(part.rows, 0, b""), strict=True):
            yield owned, key, len(value)
