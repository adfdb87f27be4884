"""Pages of a scan for callers that take entries as columns: keys and values side by side, with their sizes.

Nothing is made for a single entry where all are wanted: what is stored is joined as it is, stamps and all.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from phalanx.common.ids import Millis
from phalanx.grid.conditions import Wanted
from phalanx.grid.store import MapStore
from phalanx.partition.hashing import scan_position

EXAMINED_AT_MOST: Final = 8_192
"""Entries that are looked at for one page: with conditions that few entries fulfil, a member is held up no longer."""


class PackedPage(NamedTuple):
    """What a page holds, as `PackedReply` says."""

    key_data: bytes
    key_sizes: bytes
    value_data: bytes
    value_sizes: bytes
    more: bool
    after_key: bytes
    ttls: bytes = b""


NOTHING: Final = PackedPage(b"", b"", b"", b"", False, b"")


def packed_page(
    store: MapStore, after_key: bytes, max_bytes: int, wanted: Wanted | None, now: Millis, *, with_ttls: bool = False
) -> PackedPage:
    """Wanted entries behind a key in scan order, up to about `max_bytes` (at least one), and whether there are more.

    When one page holds all entries, nobody asks for what is behind it, and they come in any order.
    """
    entries = store.entries
    if not after_key and not store.expires_at and (wanted is None or len(entries) <= EXAMINED_AT_MOST):
        if wanted is None:
            keys, values = list(entries), list(entries.values())
        else:
            found = [entry for entry in entries.items() if wanted(*entry)]
            keys, values = [key for key, _ in found], [value for _, value in found]
        if sum(map(len, keys)) + sum(map(len, values)) <= max_bytes:
            return _packed(keys, values, more=False, after_key=b"")
    page, keys = _page_in_order(store, after_key, max_bytes, wanted, now)
    if with_ttls and store.expires_at:
        return page._replace(ttls=_numbers("q", [store.remaining_ms(key, now) for key in keys]))
    return page


def _page_in_order(
    store: MapStore, after_key: bytes, max_bytes: int, wanted: Wanted | None, now: Millis
) -> tuple[PackedPage, list[bytes]]:
    """The page, and its keys."""
    positions, entries, expires_at = store.positions(), store.entries, store.expires_at
    start = bisect_right(positions, (scan_position(after_key), after_key)) if after_key else 0
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    end = len(positions) if wanted is None else min(start + EXAMINED_AT_MOST, len(positions))
    for index in range(start, end):
        key = positions[index][1]
        value = entries[key]
        if (expires_at and expires_at.get(key, now + 1) <= now) or (wanted is not None and not wanted(key, value)):
            continue
        size += len(key) + len(value)
        if size > max_bytes and keys:
            return _packed(keys, values, more=True, after_key=keys[-1]), keys
        keys.append(key)
        values.append(value)
    if end < len(positions):
        return _packed(keys, values, more=True, after_key=positions[end - 1][1]), keys
    # As in `MapStore.page`: the sorted keys would cost as much memory as the entries.
    store.sorted_positions = None
    return _packed(keys, values, more=False, after_key=b""), keys


def _packed(keys: Sequence[bytes], values: Sequence[bytes], *, more: bool, after_key: bytes) -> PackedPage:
    return PackedPage(b"".join(keys), _sizes(keys), b"".join(values), _sizes(values), more, after_key)


def _sizes(parts: Sequence[bytes]) -> bytes:
    return _numbers("I", map(len, parts))


def _numbers(kind: str, values: Iterable[int]) -> bytes:
    numbers = array(kind, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
