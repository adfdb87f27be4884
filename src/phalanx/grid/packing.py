"""Pages of a scan for callers that take entries as columns: keys and values side by side, with their sizes.

Nothing is made for a single entry where all are wanted: what is stored is joined as it is, stamps and all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from phalanx.common.ids import Millis
from phalanx.grid.conditions import Wanted
from phalanx.grid.rows import number_bytes
from phalanx.grid.store import MapStore
from phalanx.partition.hashing import scan_position

EXAMINED_AT_MOST: Final = 8_192
"""Entries that are looked at for one page: with conditions that few entries fulfil, a member is held up no longer."""

NEAR: Final = 256
"""Entries that are gone through together: so many stay in the fastest memory."""


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
        page = _page_of_all(entries, max_bytes, wanted)
        if page is not None:
            return page
    page, keys = _page_in_order(store, after_key, max_bytes, wanted, now)
    if with_ttls and store.expires_at:
        return page._replace(ttls=number_bytes([store.remaining_ms(key, now) for key in keys], "q"))
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


def _page_of_all(entries: dict[bytes, bytes], max_bytes: int, wanted: Wanted | None) -> PackedPage | None:
    """All wanted entries, in no special order; None: they are more than `max_bytes`.

    Some at a time: entries lie all over the memory, and what is to be fetched from there once is dear enough.
    """
    pieces: list[PackedPage] = []
    size = 0
    for keys, values in _some_at_a_time(entries, wanted):
        key_sizes, value_sizes = list(map(len, keys)), list(map(len, values))
        size += sum(key_sizes) + sum(value_sizes)
        if size > max_bytes:  # looked at before anything is joined: these may be 256 values of 16 MiB
            return None
        pieces.append(
            PackedPage(
                b"".join(keys), number_bytes(key_sizes), b"".join(values), number_bytes(value_sizes), False, b""
            )  # fmt: skip
        )
    if len(pieces) == 1:
        return pieces[0]
    return PackedPage(
        b"".join([piece.key_data for piece in pieces]),
        b"".join([piece.key_sizes for piece in pieces]),
        b"".join([piece.value_data for piece in pieces]),
        b"".join([piece.value_sizes for piece in pieces]),
        False,
        b"",
    )


def _some_at_a_time(entries: dict[bytes, bytes], wanted: Wanted | None) -> Iterator[tuple[list[bytes], list[bytes]]]:
    keys, values = iter(entries), iter(entries.values())
    while some := list(islice(keys, NEAR)):
        their = list(islice(values, NEAR))
        if wanted is None:
            yield some, their
        else:
            found = [entry for entry in zip(some, their, strict=True) if wanted(*entry)]
            yield [key for key, _ in found], [value for _, value in found]


def _packed(keys: Sequence[bytes], values: Sequence[bytes], *, more: bool, after_key: bytes) -> PackedPage:
    return PackedPage(b"".join(keys), _sizes(keys), b"".join(values), _sizes(values), more, after_key)


def _sizes(parts: Sequence[bytes]) -> bytes:
    return number_bytes(map(len, parts))
