"""A replica's keys as a merge sees them: versions, of values and of removals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from phalanx.common.clock import STAMP_BYTES, stamp_of
from phalanx.common.ids import Millis
from phalanx.grid.replica.merge_policies import Version
from phalanx.grid.replica.scan_order import ScanOrder
from phalanx.grid.replica.store import MapStore, Replica


class Versions(NamedTuple):
    """Versions of several keys, column by column, as `MergeEntries` carries them."""

    keys: list[bytes]
    versions: list[bytes]
    ttls: list[Millis]
    accessed: list[Millis]
    hits: list[int]


def keys_by_map(replica: Replica) -> list[tuple[str, Iterator[bytes]]]:
    """Return, by map, the keys of which the replica has a version of its own."""
    return [(name, chain(store.entries, store.tombstones)) for name, store in sorted(replica.maps.items())]


def clears(replica: Replica) -> list[tuple[str, int]]:
    """The maps that were cleared, and the stamps of that."""
    return [(name, store.cleared_at) for name, store in sorted(replica.maps.items()) if store.cleared_at]


def has_version(replica: Replica, name: str, key: bytes) -> bool:
    """Whether the replica knows more of a key than that its map was cleared."""
    store = replica.maps.get(name)
    return store is not None and (key in store.entries or key in store.tombstones)


def version_of(replica: Replica, name: str, key: bytes, now: Millis) -> Version | None:
    """Return the replica's version of a key; None: it has none. An expired value is none, unless it stands over an older
    one, which may live longer elsewhere, it is a removal."""
    stamp, stored = replica.state_of(name, key, now)
    if stored is None:
        return _removal(stamp) if stamp else None
    hits, accessed_ms = replica.readings.find(name, key)
    return Version(stored, replica.maps[name].remaining_ms(key, now), accessed_ms, hits)


def stored_bytes(replica: Replica, name: str, key: bytes) -> int:
    """Return the length of the version in bytes."""
    stored = replica.maps[name].entries.get(key)
    return len(stored) if stored is not None else STAMP_BYTES


def versions_of(replica: Replica, name: str, keys: Sequence[bytes], removed_at: int, now: Millis) -> Versions:
    """Return the versions that the replica hands in of these keys; a key of which it has nothing counts as removed then."""
    columns = Versions([], [], [], [], [])
    for key in keys:
        version = version_of(replica, name, key, now) if has_version(replica, name, key) else _removal(removed_at)
        if version is None:
            continue
        columns.keys.append(key)
        columns.versions.append(version.stored)
        columns.ttls.append(version.ttl_ms)
        columns.accessed.append(version.accessed_ms)
        columns.hits.append(version.hits)
    for column in (columns.ttls, columns.accessed, columns.hits):
        if not any(column):
            column.clear()
    return columns


def keys_written_before(
    store: MapStore, order: ScanOrder, stamp: int, after_key: bytes, limit: int, max_bytes: int
) -> tuple[list[bytes], bytes]:
    """Keys of a map with values that are older, behind a key in scan order, and behind which key to go on; empty: there are no
    more.

    `limit`: of keys that are looked at. `max_bytes`: of those found together, but for the last one. They go through frames,
    there and back.
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
