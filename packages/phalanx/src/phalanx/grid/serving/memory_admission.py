"""Check whether a member, and those that hold replicas with it, have memory and disk for a write; if not, tell the caller.

A write that makes nothing larger is allowed when memory is full, and so is one into a map at its bound, because it
evicts as much as it brings. An event of a journal is growth, unless the journal drops another one for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import target_of
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.call import GridCall, PartitionCall
from phalanx.grid.replication.disk_guard import DiskGuard
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.memory_guard import MemoryGuard
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.serving.replies import Replies
from phalanx.wire.messages import BulkRequest, ChangeStaged, KeyRequest, PutAll, PutPacked, UpdateWhere

BOUNDED = MapStore()
"""Stands for a map at its bound."""


class MemoryAdmission:
    """Refuses writes for which there is no memory."""

    def __init__(self, memory: MemoryGuard, disks: DiskGuard, evictor: Evictor, replies: Replies) -> None:
        self._memory = memory
        self._disks = disks
        self._evictor = evictor
        self._replies = replies

    @property
    def is_full(self) -> bool:
        """Return whether there is no room for anything."""
        return self._memory.room < 0

    def lacks(self, call: PartitionCall[KeyRequest], name: str, value: bytes) -> bool:
        """Return whether a write of one key is refused; then the caller is told. `name`: the map with the value."""
        key, owned = call.request.key, call.owned
        if len(key) + len(value) + WRITTEN_BYTES <= self._memory.room:
            return False
        grows_by = _growth(self._store_of(owned, name), key, len(value))
        return self._refuse_if_full(call, name, grows_by, [owned] if grows_by > 0 else [])

    def lacks_for_all(
        self,
        call: GridCall[PutAll | PutPacked | UpdateWhere],
        size: int,
        entries: Iterable[tuple[OwnedPartition, bytes, int]],
    ) -> bool:
        """Return whether a write of many keys with so many bytes is refused as a whole; then the caller is told.

        `entries`: the partition of each, its key, and the length of its value.
        """
        if size <= self._memory.room:
            return False
        grows_by, name = 0, call.request.map
        growing: dict[OwnedPartition, int] = {}
        stores: dict[OwnedPartition, MapStore | None] = {}
        for owned, key, size in entries:
            if owned not in stores:
                stores[owned] = self._store_of(owned, name)
            growth = _growth(stores[owned], key, size)
            grows_by += growth
            growing[owned] = growing.get(owned, 0) + growth
        return self._refuse_if_full(call, name, grows_by, [owned for owned, by in growing.items() if by > 0])

    def lacks_for_rows(
        self, call: GridCall[PutPacked | ChangeStaged], owned_ones: Sequence[OwnedPartition], size: int
    ) -> bool:
        """Return whether rows of so many bytes cannot be staged; then the caller is told."""
        return size > self._memory.room and self._refuse_if_full(call, call.request.map, size, owned_ones)

    def _refuse_if_full(
        self,
        call: GridCall[KeyRequest | BulkRequest],
        name: str,
        grows_by: int,
        growing: Sequence[OwnedPartition],
    ) -> bool:
        replicas = {member for owned in growing for member in owned.streams}
        name = target_of(name)
        why = self._memory.why_refused(name, grows_by, replicas, call.now)
        why = why or self._disks.why_refused(name, grows_by, replicas)
        if why:
            self._replies.refuse(call, ErrorCode.GRID_FULL, why)
        return bool(why)

    def _store_of(self, owned: OwnedPartition, name: str) -> MapStore | None:
        store, evictor = owned.replica.maps.get(name), self._evictor
        if store is not None and evictor.is_on and evictor.share(name).is_reached(len(store.entries), store.held_bytes):
            return BOUNDED
        return store


def _growth(store: MapStore | None, key: bytes, size: int) -> int:
    """Return by how many bytes a value of that length makes the map larger."""
    if store is BOUNDED:
        return 0
    stored = store.entries.get(key) if store is not None else None
    if stored is None:
        return WRITTEN_BYTES + len(key) + size
    if store is not None and any(not observer.is_full for observer in store.observers):
        return WRITTEN_BYTES + size
    return STAMP_BYTES + size - len(stored)
