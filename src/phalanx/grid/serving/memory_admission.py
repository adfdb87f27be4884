"""Whether a member, and those that hold replicas with it, have memory for a write; if not, the caller is told.

A write that makes nothing larger goes on where memory is full, and so does one into a map that is at its bound, for it
evicts as much as it brings. An event of a journal is growth, unless the journal drops another one for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import target_of
from phalanx.common.ids import Millis, Target
from phalanx.common.memory import WRITTEN_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition


def lacks_memory(
    leader: Leader,
    evictor: Evictor,
    owned: OwnedPartition,
    caller: Target,
    request_id: int,
    name: str,
    key: bytes,
    value: bytes,
    now: Millis,
) -> bool:
    """Whether a write of one key is refused; then the caller is told."""
    if len(key) + len(value) + WRITTEN_BYTES <= leader.memory.room:
        return False
    grows_by = _growth(_store_of(evictor, owned, name), key, len(value))
    return _is_refused(leader, caller, request_id, name, grows_by, [owned] if grows_by > 0 else [], now)


def lack_memory(
    leader: Leader,
    evictor: Evictor,
    caller: Target,
    request_id: int,
    name: str,
    entries: Iterable[tuple[OwnedPartition, bytes, int]],
    now: Millis,
) -> bool:
    """Whether a write of many keys is refused as a whole; then the caller is told. Called where `room` does not do.

    `entries`: the partition of each, its key, and the length of its value.
    """
    grows_by = 0
    growing: dict[OwnedPartition, int] = {}
    stores: dict[OwnedPartition, MapStore | None] = {}
    for owned, key, size in entries:
        if owned not in stores:
            stores[owned] = _store_of(evictor, owned, name)
        growth = _growth(stores[owned], key, size)
        grows_by += growth
        growing[owned] = growing.get(owned, 0) + growth
    return _is_refused(
        leader, caller, request_id, name, grows_by, [owned for owned, by in growing.items() if by > 0], now
    )


def lack_memory_for_rows(
    leader: Leader,
    owned_ones: Sequence[OwnedPartition],
    caller: Target,
    request_id: int,
    name: str,
    size: int,
    now: Millis,
) -> bool:
    """Whether rows of so many bytes cannot be staged; then the caller is told."""
    return _is_refused(leader, caller, request_id, name, size, owned_ones, now)


def _is_refused(
    leader: Leader,
    caller: Target,
    request_id: int,
    name: str,
    grows_by: int,
    growing: Sequence[OwnedPartition],
    now: Millis,
) -> bool:
    replicas = {member for owned in growing for member in owned.streams}
    why = leader.memory.why_refused(target_of(name), grows_by, replicas, now)
    if why:
        leader.fail(caller, request_id, ErrorCode.GRID_FULL, why)
    return bool(why)


BOUNDED = MapStore()
"""Stands for a map at its bound."""


def _store_of(evictor: Evictor, owned: OwnedPartition, name: str) -> MapStore | None:
    store = owned.replica.maps.get(name)
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
