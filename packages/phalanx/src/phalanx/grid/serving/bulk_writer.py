"""Write many entries for a caller: commit them partition by partition, evict what is too much then, and answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from phalanx.codec.rows import unpack_rows
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import Millis
from phalanx.grid.replication.call import GridCall
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.wire.messages import DoneReply, PutAll, PutPacked, ReplicatePut


class Rows(msgspec.Struct, gc=False):
    """Entries of one partition, each value behind its stamp."""

    keys: list[bytes]
    values: list[bytes]
    ttl_ms: Millis = 0
    max_idle_ms: Millis = 0
    page: int = 0
    """Of rows that are staged, the number of their page."""


class BulkWriter:
    """Writes many entries of the partitions that this member owns."""

    def __init__(self, leader: Leader, evictor: Evictor) -> None:
        self._leader = leader
        self._evictor = evictor

    def stamp(self, now: Millis) -> bytes:
        """Return a stamp for all values of a request, as it stands before each."""
        return self._leader.clock.stamp(now).to_bytes(STAMP_BYTES, "big")

    def put_plain(self, call: GridCall[PutAll], stamp: bytes, size: int) -> bool:
        """Store entries for ever if no other member has to know, there is memory for sure, and no map is bounded.

        Return whether it is done, and answered. `size`: the bytes of the entries.
        """
        request, leader = call.request, self._leader
        if self._evictor.is_on or size > leader.memory.room or request.ttl_ms or self._idle_ms(request):
            return False
        if leader.waits_for_sync(request.map, call.now):
            return False
        if not leader.commit_values(request.map, request.keys, request.values, stamp):
            return False
        leader.memory.take(size)
        leader.answer(call.caller, DoneReply(request.id))
        return True

    def put_all(self, call: GridCall[PutAll], owned_ones: Sequence[OwnedPartition], stamp: bytes, size: int) -> None:
        """Store entries; the answer waits until it is confirmed. `owned_ones`: the partition of each key."""
        request, leader, now = call.request, self._leader, call.now
        name, ttl_ms, idle_ms = request.map, request.ttl_ms, self._idle_ms(request)
        waits = leader.waits_for_sync(name, now)
        if not all(owned.streams for owned in owned_ones):
            leader.memory.take(size)  # what is committed is counted there, too: rather too much
        shared: dict[OwnedPartition, Rows] = {}
        for key, value, owned in zip(request.keys, request.values, owned_ones, strict=True):
            stored = stamp + value
            if owned.is_plain and not (ttl_ms or idle_ms or waits):
                if (store := leader.plain_store(owned, name)) is not None:
                    leader.commit_plain(owned, store, name, key, stored, None, now)
                else:
                    leader.set_entry(owned, name, key, stored, None, now)
            elif owned in shared:
                shared[owned].keys.append(key)
                shared[owned].values.append(stored)
            else:
                shared[owned] = Rows([key], [stored], ttl_ms, idle_ms)
        write = PendingWrite(call.caller, DoneReply(request.id), 0, name)
        for owned, rows in shared.items():
            self.put(owned, rows, write, now)
        if self._evictor.is_on:
            for owned in dict.fromkeys(owned_ones):
                self._evictor.after_write(owned, name, len(request.keys), now)
        self.answer(write)

    def put_parts(self, call: GridCall[PutPacked], owned_ones: Sequence[OwnedPartition], stamp: bytes) -> None:
        """Store rows of some partitions; the answer waits for the backups. `owned_ones`: those of the parts."""
        request, now = call.request, call.now
        idle_ms, write = (
            self._leader.max_idle_of(request.map),
            PendingWrite(call.caller, DoneReply(request.id), 0, request.map),
        )
        for part, owned in zip(request.parts, owned_ones, strict=True):
            keys, values = unpack_rows(part.rows, 0, stamp)
            if keys:
                self.put(owned, Rows(keys, values, request.ttl_ms, idle_ms), write, now)
                if self._evictor.is_on:
                    self._evictor.after_write(owned, request.map, len(keys), now)
        self.answer(write)

    def put(self, owned: OwnedPartition, rows: Rows, write: PendingWrite, now: Millis) -> None:
        """Commit rows in one partition; the write waits for the backups."""
        name, leader = write.map, self._leader
        if owned.replica.journals:
            leader.end_before_write(owned, name, rows.keys, now)
        leader.commit(
            owned, ReplicatePut, write, now, name, rows.keys, rows.values, rows.ttl_ms, page=rows.page, max_idle_ms=rows.max_idle_ms
        )  # fmt: skip

    def answer(self, write: PendingWrite) -> None:
        """Answer a caller whose write waits for nothing."""
        if write.partitions_left == 0:
            self._leader.answer(write.caller, write.reply)

    def _idle_ms(self, request: PutAll) -> Millis:
        return request.max_idle_ms or self._leader.max_idle_of(request.map)
