"""The values of many keys, of partitions that are all owned here.

It is one loop over the keys, and has a native version, which reads the slots of `OwnedPartition`, `Replica` and `MapStore`.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.codec.hashing import HASH_SEED, partitions_of
from phalanx.codec.rows import extent_of_items, without_prefixes
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import Millis
from phalanx.grid.replica import native
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.owned_partition import OwnedPartition

NATIVE = native.NATIVE.Stores(OwnedPartition, Replica, MapStore) if native.NATIVE is not None else None


def find_values(
    owned_by_number: list[OwnedPartition | None],
    name: str,
    keys: Sequence[bytes],
    max_bytes: int,
    now: Millis,
    *,
    has_idle: bool = False,
) -> list[bytes | None] | None:
    """Return the values of the first keys, as many as have `max_bytes` with their stamps, but at least one; None for a
    key without a value. Instead of all: None, one of the keys is of a partition that is not owned here.

    `has_idle`: whether the map can have entries that expire when nobody uses them; the native function knows nothing of these.
    """
    if NATIVE is not None and not has_idle:
        found = NATIVE.find_values(owned_by_number, name, keys, now, max_bytes, STAMP_BYTES, HASH_SEED)
        if found is not None:
            return found
    owned_ones = [owned_by_number[partition] for partition in partitions_of(keys, len(owned_by_number))]
    if None in owned_ones:
        return None
    # Values are not copied before it is known how many fit: a request can name a key a thousand times.
    stored = [
        None
        if (store := owned.replica.maps.get(name)) is None  # type: ignore[union-attr]  # none of them is None
        or (store.expires_at and store.is_over(key, now))
        else store.entries.get(key)
        for key, owned in zip(keys, owned_ones, strict=True)
    ]
    return without_prefixes(_as_many_as_fit(stored, max_bytes), STAMP_BYTES)


def _as_many_as_fit(values: list[bytes | None], max_bytes: int) -> list[bytes | None]:
    """Return the first values, as many as have at most these bytes, but at least one."""
    if extent_of_items(list(filter(None, values))).total <= max_bytes:
        return values
    size = 0
    for number, value in enumerate(values):
        size += len(value) if value is not None else 0
        if size > max_bytes and number:
            return values[:number]
    return values
