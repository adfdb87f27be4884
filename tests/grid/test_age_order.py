"""A large bounded map is ranked for eviction a few entries in a turn; what goes are its oldest entries all the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import MAP, TEXT, Cluster
from phalanx.common.clock import with_stamp
from phalanx.common.map_settings import MapConfig
from phalanx.grid.replica import age_order, map_store
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.eviction import PAUSE_MS
from phalanx.wire import messages as m

FEW = 16
V = TEXT + b"v"


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(age_order, "RANKED_AT_ONCE", FEW)
    monkeypatch.setattr(map_store, "RANKED_AT_ONCE", FEW)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.sampled_from(["put", "merge", "remove", "rank", "evict"]), st.integers(0, 99)), max_size=120)
)
def test_what_is_evicted_is_older_than_all_that_stays(steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(age_order, "RANKED_AT_ONCE", FEW)
        patch.setattr(map_store, "RANKED_AT_ONCE", FEW)
        held, stamp = MapStore(), 1_000
        for number in range(60):
            stamp += 1
            held.put(b"%d" % number, with_stamp(stamp, V), 0, 0)
        for what, number in steps:
            stamp += 1
            key = b"%d" % number
            if what == "put":
                held.put(key, with_stamp(stamp, V), 0, 0)
            elif what == "merge":
                held.put(key, with_stamp(number + 1, V), 0, 0, merged=True)
            elif what == "remove":
                held.remove(key)
            elif what == "rank":
                held.rank_some()
            else:
                evict(held, stamp)
        for _ in range(2 * len(held.entries) + 20):
            evict(held, stamp)
            held.rank_some()
        assert not held.entries, "in the end everything is ranked, and goes"


def evict(held: MapStore, stamp: int) -> None:
    found = held.oldest(5, stamp)
    for key in found:
        assert held.entries[key][:8] == min(stored[:8] for stored in held.entries.values())
        held.remove(key, evicted=True)


@pytest.mark.usefixtures("small_turns")
def test_no_turn_looks_at_more_than_some_entries_of_a_large_map(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40 * FEW
    c = Cluster("A", maps={MAP: MapConfig(max_entries=count)})
    c.assign()
    keys = [TEXT + b"%04d" % number for number in range(count)]
    for number in range(0, count, FEW):
        c.ask("A", m.PutAll, MAP, keys[number : number + FEW], [V] * FEW, 0)
    ranked: list[int] = []
    rank_some = age_order.AgeOrder.rank_some

    def counted(self: age_order.AgeOrder, entries: dict[bytes, bytes]) -> None:
        ranked.append(c.now)
        rank_some(self, entries)

    monkeypatch.setattr(age_order.AgeOrder, "rank_some", counted)
    c.put("A", TEXT + b"one more", V)
    assert len(c.entries("A") or {}) == count + 1, "the write does not wait for the ranking"
    c.advance(100 * PAUSE_MS)
    assert len(ranked) == len(set(ranked)) == 41, "one piece in a turn"
    assert sorted(c.entries("A") or {}) == sorted([*keys[1:], TEXT + b"one more"])
