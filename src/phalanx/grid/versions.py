"""A replica's keys as a merge sees them: versions, of values and of removals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.ids import Millis
from phalanx.grid.merge_policies import Version
from phalanx.grid.store import Replica


class Versions(NamedTuple):
    """Versions of several keys, column by column, as `MergeEntries` carries them."""

    keys: list[bytes]
    versions: list[bytes]
    ttls: list[Millis]
    accessed: list[Millis]
    hits: list[int]


def keys_by_map(replica: Replica) -> list[tuple[str, Iterator[bytes]]]:
    """Of each map the keys of which the replica has a version."""
    return [(name, iter(store.entries)) for name, store in sorted(replica.maps.items())]


def version_of(replica: Replica, name: str, key: bytes, now: Millis) -> Version | None:
    """What the replica has of a key; None: nothing, or its time is over."""
    store = replica.maps.get(name)
    if store is None or store.get(key, now) is None:
        return None
    return Version(store.entries[key], store.remaining_ms(key, now))


def stored_bytes(replica: Replica, name: str, key: bytes) -> int:
    """How long the version is."""
    store = replica.maps.get(name)
    return len(store.entries.get(key, b"")) if store is not None else STAMP_BYTES


def versions_of(replica: Replica, name: str, keys: Sequence[bytes], now: Millis) -> Versions:
    """What the replica has of these keys; without those whose time is over."""
    found = [(key, version) for key in keys if (version := version_of(replica, name, key, now)) is not None]
    columns = Versions([key for key, _ in found], [each.stored for _, each in found], [], [], [])
    if any(each.ttl_ms for _, each in found):
        columns.ttls.extend(each.ttl_ms for _, each in found)
    if any(each.hits for _, each in found):
        columns.accessed.extend(each.accessed_ms for _, each in found)
        columns.hits.extend(each.hits for _, each in found)
    return columns


def purged_to(replica: Replica) -> int:
    return 0
