"""Rows of a copy change a map as the same entries do one by one, whatever else the map knows, in native code and in Python."""

from collections import deque
from typing import Any
from unittest import mock

import pytest

from phalanx.codec import native, rows
from phalanx.common.clock import STAMP_BYTES
from phalanx.grid.replica.access_statistics import COUNTS, TIMES, AccessStatistics
from phalanx.grid.replica.eviction_order import EvictionOrder
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.map_store import MapStore
from support.harness import TEXT

NOW = 1_000
PLAIN = (int, str, bytes, dict, set, frozenset, type(None))
KEYS = [TEXT + b"%d" % number for number in range(12)]
STATES = ["empty", "plain", "expiring", "idle", "removed", "journal", "scanned", "evicting", "counted"]


def stored(key: bytes, stamp: int) -> bytes:
    return stamp.to_bytes(STAMP_BYTES, "big") + TEXT + key * stamp


def store_in(state: str) -> MapStore:
    """A map with half of the keys, in such a state."""
    store = MapStore()
    if state == "empty":
        return store
    if state == "counted":
        store.accesses = AccessStatistics(TIMES | COUNTS)
    for key in KEYS[::2]:
        store.put(key, stored(key, 3), 0, NOW)
    if state == "expiring":
        store.put(KEYS[0], stored(KEYS[0], 4), 500, NOW)
        store.put(KEYS[1], stored(KEYS[1], 4), 500, NOW)
    elif state == "idle":
        store.put(KEYS[0], stored(KEYS[0], 4), 0, NOW, max_idle_ms=500)
    elif state == "removed":
        store.remove(KEYS[0], 5)
        store.remove(KEYS[1], 6)
    elif state == "journal":
        store.watch((MapJournal(10, 10_000, 1, 1, "a:1/1"),))
    elif state == "scanned":
        assert store.ordered() is not None
    elif state == "evicting":
        store.eviction_order = EvictionOrder(store, "lru", 9, None)
        store.eviction_order.rank_some(store)
    elif state == "counted":
        assert store.accesses is not None
        store.accesses.note(KEYS[0], NOW)
    store.look_again()
    return store


def told(each: Any) -> Any:
    """All that an object knows, to the last slot; of an iterator its type."""
    if isinstance(each, list | tuple | deque):
        return list(map(told, each))
    if hasattr(type(each), "__slots__"):
        return {name: told(getattr(each, name)) for name in type(each).__slots__ if hasattr(each, name)}
    return each if isinstance(each, PLAIN) else type(each)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("functions", [native.NATIVE, None], ids=["native", "python"])
def test_rows_change_a_map_as_their_entries_do(state: str, functions: Any) -> None:
    by_rows, by_entries = store_in(state), store_in(state)
    values = [stored(key, 7) for key in KEYS]
    with mock.patch.object(rows, "NATIVE", functions):
        by_rows.put_rows(rows.pack_rows(KEYS, values), NOW)
    by_entries.put_many(KEYS, values, 0, NOW)
    assert by_rows.entries == dict(zip(KEYS, values, strict=True))
    assert by_rows.held_bytes == by_rows.count_bytes()
    assert told(by_rows) == told(by_entries)


def test_the_states_are_what_they_are_called() -> None:
    """Else the comparison above would compare nothing."""
    known = {
        "expiring": "expires_at", "idle": "idle", "removed": "tombstones", "journal": "observers", "scanned": "order",
        "evicting": "eviction_order", "counted": "accesses",
    }  # fmt: skip
    for state in STATES:
        store = store_in(state)
        for name in set(known.values()):
            has = getattr(store, name)
            assert bool(has is not None and has != {} and has != ()) == (
                known.get(state) == name or (state, name) == ("idle", "expires_at")
            )
