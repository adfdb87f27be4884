"""Pages of a scan for callers that take entries as columns: keys and values side by side, with their sizes.

Nothing is made for a single entry where all are wanted: what is stored is joined as it is, stamps and all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from phalanx.codec.rows import number_bytes
from phalanx.common.ids import Millis
from phalanx.grid.replica.scan_order import ScanOrder
from phalanx.grid.replica.store import MapStore
from phalanx.grid.serving.conditions import Wanted

EXAMINED_AT_MOST: Final = 4_096
"""Entries that are looked at for one page, where conditions are few: also where few entries fulfil them, a member is held up
no longer."""
EXAMINED_BYTES: Final = 2 * 1024 * 1024
"""Of their keys and values, where conditions are few: with conditions all of them may have to be decoded."""
LISTED_AT_MOST: Final = 40_000
"""Entries of a map that are all sent on one page, in no order and without looking at any."""

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


def examined_at_most(conditions: int) -> int:
    """Return how many entries are looked at for one page with so many conditions."""
    return EXAMINED_AT_MOST * 22 // (10 + 3 * max(conditions, 4))


def _examined_bytes(most: int) -> int:
    """Return how many bytes of entries are looked at for one page that looks at so many entries."""
    return EXAMINED_BYTES * most // EXAMINED_AT_MOST


def packed_page(
    store: MapStore,
    after_key: bytes,
    max_bytes: int,
    wanted: Wanted | None,
    most: int,
    now: Millis,
    *,
    with_ttls: bool = False,
) -> PackedPage | None:
    """Wanted entries behind a key in scan order, up to about `max_bytes` (at least one), and whether there are more; `most`
    entries are looked at. None: the keys have yet to be sorted.

    When one page holds all entries, nobody asks for what is behind it, and they come in any order.
    """
    entries = store.entries
    if (
        not after_key
        and not store.expires_at
        and (len(entries) <= LISTED_AT_MOST if wanted is None else _are_few(entries, most))
    ):
        page = _page_of_all(entries, max_bytes, wanted)
        if page is not None:
            return page
    order = store.ordered()
    if order is None:
        return None
    page, keys = _page_in_order(store, order, after_key, max_bytes, wanted, most, now)
    if with_ttls and store.expires_at:
        return page._replace(ttls=number_bytes([store.remaining_ms(key, now) for key in keys], "q"))
    return page


def _are_few(entries: dict[bytes, bytes], most: int) -> bool:
    """Whether all entries may be looked at for one page."""
    return len(entries) <= most and sum(map(len, entries)) + sum(map(len, entries.values())) <= _examined_bytes(most)


def _page_in_order(
    store: MapStore,
    order: ScanOrder,
    after_key: bytes,
    max_bytes: int,
    wanted: Wanted | None,
    most: int,
    now: Millis,
) -> tuple[PackedPage, list[bytes]]:
    """The page, and its keys."""
    entries, expires_at = store.entries, store.expires_at
    keys: list[bytes] = []
    values: list[bytes] = []
    size = examined = 0
    most_bytes = _examined_bytes(most)
    last = after_key
    for looked_at, key in enumerate(order.behind(after_key)):
        if looked_at == most or examined > most_bytes:
            return _packed(keys, values, more=True, after_key=last), keys
        value = entries.get(key)
        if value is not None and (not expires_at or expires_at.get(key, now + 1) > now):
            if wanted is not None:
                examined += len(key) + len(value)
            if wanted is None or wanted(key, value):
                size += len(key) + len(value)
                if size > max_bytes and keys:
                    return _packed(keys, values, more=True, after_key=last), keys
                keys.append(key)
                values.append(value)
        last = key
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
            PackedPage(b"".join(keys), number_bytes(key_sizes), b"".join(values), number_bytes(value_sizes), False, b"")
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
