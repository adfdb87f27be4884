"""A replica's keys as a merge sees them: each has a version, which is a value or a removal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from phalanx.common.clock import STAMP_BYTES, stamp_of
from phalanx.common.hidden_maps import has_locks
from phalanx.common.ids import Millis
from phalanx.grid.replica.access_statistics import NEVER
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.merge_policies import Version
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.scan_order import ScanOrder


class Versions(NamedTuple):
    """Versions of several keys, column by column, as `MergeEntries` carries them."""

    keys: list[bytes]
    versions: list[bytes]
    ttls: list[Millis]
    accessed: list[Millis]
    hits: list[int]
    idles: list[Millis]


def keys_by_map(replica: Replica) -> list[tuple[str, Iterator[bytes]]]:
    """Return each map with its keys that have an entry or a tombstone."""
    return [(name, chain(store.entries, store.tombstones)) for name, store in sorted(replica.maps.items())]


def clears(replica: Replica) -> list[tuple[str, int]]:
    """Return the maps that were cleared, and the stamps of the clears; and maps of locks of which states were forgotten, with the
    stamp up to which their tokens are refused.
    """
    stamps = {
        name: store.evicted_to if has_locks(name) else store.cleared_at
        for name, store in replica.maps.items()
        if store.cleared_at or (has_locks(name) and store.evicted_to)
    }
    return sorted(
        (stamps | {name: cleared.cleared_at for name, cleared in replica.cleared.items() if cleared.cleared_at}).items()
    )


def has_version(replica: Replica, name: str, key: bytes) -> bool:
    """Return whether the replica has an entry or a tombstone of the key."""
    store = replica.maps.get(name)
    return store is not None and (key in store.entries or key in store.tombstones)


def version_of(replica: Replica, name: str, key: bytes, now: Millis) -> Version | None:
    """Return the replica's version of a key; None: it has none.

    An expired value is no version; but where it replaced one that can live longer elsewhere (`MapStore.covering`), it
    counts as a removal.
    """
    stamp, stored = replica.state_of(name, key, now)
    if stored is None:
        return _removal(stamp) if stamp else None
    store = replica.maps[name]
    hits, accessed_ms = store.accesses.find(key) if store.accesses is not None else NEVER
    return Version(stored, store.ttl_ms(key, now), accessed_ms, hits, store.max_idle_ms(key))


def stored_bytes(replica: Replica, name: str, key: bytes) -> int:
    """Return the length of the key's version in bytes."""
    stored = replica.maps[name].entries.get(key)
    return len(stored) if stored is not None else STAMP_BYTES


def versions_of(replica: Replica, name: str, keys: Sequence[bytes], removed_at: int, now: Millis) -> Versions:
    """Return the versions of these keys for a merge; a key without entry and tombstone counts as removed at `removed_at`."""
    columns = Versions([], [], [], [], [], [])
    for key in keys:
        version = version_of(replica, name, key, now) if has_version(replica, name, key) else _removal(removed_at)
        if version is None:
            continue
        columns.keys.append(key)
        columns.versions.append(version.stored)
        columns.ttls.append(version.ttl_ms)
        columns.accessed.append(version.accessed_ms)
        columns.hits.append(version.hits)
        columns.idles.append(version.max_idle_ms)
    for column in (columns.ttls, columns.accessed, columns.hits, columns.idles):
        if not any(column):
            column.clear()
    return columns


def keys_written_before(
    store: MapStore, order: ScanOrder, stamp: int, after_key: bytes, limit: int, max_bytes: int
) -> tuple[list[bytes], bytes]:
    """Return keys after `after_key` whose values are older than `stamp`, and the key after which to continue (empty:
    that was all).

    `limit`: the most keys examined. `max_bytes`: the search ends when the found keys have so many bytes, because they
    travel in frames.
    """
    found: list[bytes] = []
    size = 0
    for looked_at, key in enumerate(order.behind(after_key), start=1):
        stored = store.entries.get(key)
        if stored is not None and stamp_of(stored) < stamp:
            found.append(key)
            size += len(key)
        if looked_at == limit or size >= max_bytes:
            return found, key
    return found, b""


def _removal(stamp: int) -> Version:
    return Version(stamp.to_bytes(STAMP_BYTES, "big"))
