"""Packed pages of a scan say how long entries still live, to those who ask."""

import struct

from phalanx.common.clock import STAMP_BYTES
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.serving.packing import PackedPage, PageSpec, packed_page


def store_of(ttls: dict[bytes, int]) -> MapStore:
    store = MapStore()
    for key, ttl_ms in ttls.items():
        store.put(key, bytes(STAMP_BYTES) + key, ttl_ms, 1_000)
    return store


def page_of(store: MapStore, after_key: bytes, max_bytes: int, *, with_ttls: bool = False) -> PackedPage:
    page = packed_page(store, PageSpec(after_key, max_bytes, None, 1_000), 1_400, with_ttls=with_ttls)
    assert page is not None, "few keys are sorted at once"
    return page


def told(
    store: MapStore, *, after_key: bytes = b"", max_bytes: int = 1_000, with_ttls: bool = True
) -> dict[bytes, int]:
    """Of the keys of a page (all are of one length) what it says."""
    page = page_of(store, after_key, max_bytes, with_ttls=with_ttls)
    keys = [page.key_data[at : at + 2] for at in range(0, len(page.key_data), 2)]
    return dict(zip(keys, struct.unpack(f"<{len(page.ttls) // 8}q", page.ttls), strict=bool(page.ttls)))


def test_each_entry_has_the_time_that_is_left_and_0_is_for_ever() -> None:
    store = store_of({b"k1": 0, b"k2": 500, b"k3": 401, b"k4": 400})
    assert told(store) == {b"k1": 0, b"k2": 100, b"k3": 1}, "the time of the last one is over"


def test_a_page_says_it_of_its_own_entries_only() -> None:
    store = store_of({b"%02d" % n: 1_000 + n for n in range(50)})
    found: dict[bytes, int] = {}
    after = b""
    while True:
        page = told(store, after_key=after, max_bytes=100)
        assert not found.keys() & page.keys()
        found |= page
        if len(found) == 50:
            break
        after = page_of(store, after, 100).after_key
    assert found == {b"%02d" % n: 600 + n for n in range(50)}


def test_nothing_is_said_where_nobody_asked_or_all_live_for_ever() -> None:
    mortal, immortal = store_of({b"k1": 500}), store_of({b"k1": 0})
    assert page_of(mortal, b"", 1_000).ttls == b""
    assert page_of(immortal, b"", 1_000, with_ttls=True).ttls == b""
