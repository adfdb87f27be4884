"""Pages of a scan for callers that take entries as columns: all keys joined, all values joined, and their sizes.

Without conditions no object is made for a single entry: stored bytes are joined as they are, with their stamps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from phalanx.codec.rows import number_bytes
from phalanx.common.ids import Millis
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.native import NATIVE
from phalanx.grid.replica.scan_order import ScanOrder
from phalanx.grid.serving.conditions import Wanted

EXAMINED_AT_MOST: Final = 4_096
"""The most entries examined for one page with few conditions. It bounds a member's turn also if few entries fulfil them."""
EXAMINED_BYTES: Final = 2 * 1024 * 1024
"""The most bytes of keys and values examined for one page with few conditions: all of them possibly have to be decoded."""
LISTED_AT_MOST: Final = 40_000
"""A map with no more entries is sent on one page, without order and without examining entries."""

NEAR: Final = 256
"""Entries processed together: so many stay in the processor's cache."""


class PackedPage(NamedTuple):
    """The content of a page; the fields are those of `PackedReply`."""

    key_data: bytes
    key_sizes: bytes
    value_data: bytes
    value_sizes: bytes
    more: bool
    after_key: bytes
    ttls: bytes = b""


NOTHING: Final = PackedPage(b"", b"", b"", b"", False, b"")


def examined_at_most(conditions: int) -> int:
    """Return how many entries are examined for one page with so many conditions."""
    return EXAMINED_AT_MOST * 22 // (10 + 3 * max(conditions, 4))


def _examined_bytes(most: int) -> int:
    """Return how many bytes of entries are examined for a page that examines at most so many entries."""
    return EXAMINED_BYTES * most // EXAMINED_AT_MOST


class PageSpec(NamedTuple):
    """What one page is to hold."""

    after_key: bytes
    """It begins behind this key in scan order."""
    max_bytes: int
    """About so many bytes, but at least one entry."""
    wanted: Wanted | None = None
    """None: all entries are."""
    most: int = EXAMINED_AT_MOST
    """So many entries are examined for it at most."""


def packed_page(store: MapStore, spec: PageSpec, now: Millis, *, with_ttls: bool = False) -> PackedPage | None:
    """Return a page of entries, and whether there are more. None: the keys are not sorted yet.

    If one page holds all entries, no page follows, so they come in any order.
    """
    entries, (after_key, max_bytes, wanted, most) = store.entries, spec
    if (
        not after_key
        and not store.expires_at
        and (len(entries) <= LISTED_AT_MOST if wanted is None else _are_few(entries, most))
    ):
        page = page_of_entries(entries, max_bytes) if wanted is None else _page_of_all(entries, max_bytes, wanted)
        if page is not None:
            return page
    order = store.ordered()
    if order is None:
        return None
    page, keys = _page_in_order(store, order, spec, now)
    if with_ttls and store.expires_at:
        return page._replace(ttls=number_bytes([store.ttl_ms(key, now) for key in keys], "q"))
    return page


def _are_few(entries: dict[bytes, bytes], most: int) -> bool:
    """Return whether all entries can be examined for one page."""
    return len(entries) <= most and sum(map(len, entries)) + sum(map(len, entries.values())) <= _examined_bytes(most)


def _page_in_order(store: MapStore, order: ScanOrder, spec: PageSpec, now: Millis) -> tuple[PackedPage, list[bytes]]:
    """Return the page, and its keys."""
    entries, expires_at, (after_key, max_bytes, wanted, most) = store.entries, store.expires_at, spec
    keys: list[bytes] = []
    values: list[bytes] = []
    size = examined = 0
    most_bytes = _examined_bytes(most)
    last = after_key
    for looked_at, key in enumerate(order.behind(after_key)):
        if looked_at == most or examined > most_bytes:
            return _packed(keys, values, more=True, after_key=last), keys
        value = entries.get(key)
        if value is not None and (not expires_at or expires_at.get(key, now + 1) > now or not store.is_over(key, now)):
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


def page_of_entries(entries: dict[bytes, bytes], max_bytes: int) -> PackedPage | None:
    """Return a page of all entries, in no special order; None: they have more than `max_bytes`."""
    if NATIVE is not None:
        columns = NATIVE.page_of_entries(entries, max_bytes)
        return PackedPage(*columns, False, b"") if columns is not None else None
    return _page_of_all(entries, max_bytes, None)


def _page_of_all(entries: dict[bytes, bytes], max_bytes: int, wanted: Wanted | None) -> PackedPage | None:
    """Return a page of all wanted entries, in no special order; None: they have more than `max_bytes`.

    Entries are processed in small groups, because they lie scattered in memory: each is fetched into the cache only
    once.
    """
    pieces: list[PackedPage] = []
    size = 0
    for keys, values in _some_at_a_time(entries, wanted):
        key_sizes, value_sizes = list(map(len, keys)), list(map(len, values))
        size += sum(key_sizes) + sum(value_sizes)
        if size > max_bytes:  # checked before joining: these can be 256 values of 16 MiB
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
