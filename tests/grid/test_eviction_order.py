"""Which entries of a bounded map go first, by each policy, whatever happens to them; large maps are ranked in turns."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from phalanx.common.clock import with_stamp
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import EVICTION_POLICIES
from phalanx.grid.replica import eviction_order, map_store
from phalanx.grid.replica.access_statistics import COUNTS, TIMES, AccessStatistics
from phalanx.grid.replica.eviction_order import (
    HALVED_ABOVE,
    RANKED_AT_LEAST,
    SKIPPED_AT_ONCE,
    EvictionOrder,
    RankedEntries,
)
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.eviction import PAUSE_MS
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster

FEW = 16
V = TEXT + b"v"
STEP = st.tuples(
    st.sampled_from(["put", "put for a time", "read", "read", "merge", "remove", "rank", "evict"]), st.integers(0, 99)
)


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_order, "RANKED_AT_ONCE", FEW)
    monkeypatch.setattr(map_store, "RANKED_AT_ONCE", FEW)


class Model:
    """A store, the present stamp (a millisecond each), and the order by a rule of its own."""

    def __init__(self, policy: str, count: int = 60) -> None:
        self.store, self.policy, self.now = MapStore(), policy, 1_000
        self.store.accesses = AccessStatistics(TIMES | COUNTS)
        self.judged: set[bytes] = set()
        """By `lfu`: keys that were not among the newest when something was to be evicted."""
        for number in range(count):
            self.put(number)

    def put(self, number: int, ttl_ms: int = 0) -> None:
        self.now += 1
        self.store.put(b"%d" % number, with_stamp(self.now << 16, V), ttl_ms, self.now)

    def merge(self, number: int) -> None:
        self.store.put(b"%d" % number, with_stamp((number + 1) << 16, V), 0, self.now, merged=True)

    def read(self, number: int) -> None:
        self.now += 1
        if (key := b"%d" % number) in self.store.entries:
            assert self.store.accesses is not None
            self.store.accesses.note(key, self.now)

    def rank(self, key: bytes) -> tuple[int, int]:
        stamp = int.from_bytes(self.store.entries[key][:8], "big")
        hits, read_at = self.store.accesses.find(key) if self.store.accesses is not None else (0, 0)
        by = {
            "oldest": (0, stamp),
            "lru": (0, max(stamp, read_at << 16)),
            "lfu": (hits, stamp),
            "soonest-to-expire": (self.store.expires_at.get(key, 2**50), 0 if key in self.store.expires_at else stamp),
        }
        return by[self.policy]

    def evict(self, count: int = 5) -> list[bytes]:
        """Check that what is taken comes before what stays, and remove it."""
        left = list(self.store.entries)
        newest = set(left[-max(len(left) // 100, 1) :]) if self.policy == "lfu" else set()
        found = self.store.take_evicted(self.policy, count, 0, count, self.now << 16 | 65_535)
        ranks = {key: self.rank(key) for key in left}
        assert len(found) == len(set(found)) <= count
        assert sorted(found, key=lambda key: ranks[key]) == found
        assert newest.intersection(found) <= self.judged, "they became the newest as newer ones were removed"
        self.judged |= set(left) - newest
        for key in found:
            assert all(ranks[key] < ranks[other] for other in left if other not in found and other not in newest)
            self.remove(key, evicted=True)
        return found

    def remove(self, key: bytes, *, evicted: bool = False) -> None:
        self.judged.discard(key)
        self.store.remove(key, evicted=evicted)

    def do(self, what: str, number: int) -> None:
        if what == "put":
            self.put(number)
        elif what == "put for a time":
            self.put(number, 1_000_000 + 7 * number % 100)
        elif what == "read":
            self.read(number)
        elif what == "merge":
            self.merge(number)
        elif what == "remove":
            self.remove(b"%d" % number)
        elif what == "rank":
            self.store.rank_some()
        else:
            self.evict()
        assert self.store.held_bytes == sum(len(k) + len(v) - 8 for k, v in self.store.entries.items())


@pytest.mark.rows("PX-21", "PX-23")
@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@given(steps=st.lists(STEP, max_size=150), is_large=st.booleans())
@example(steps=[("put", 0), ("evict", 0), ("remove", 59)], is_large=False)
def test_what_is_evicted_comes_before_all_that_stays(policy: str, steps: list[tuple[str, int]], is_large: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for where in (eviction_order, map_store) if is_large else ():
            patch.setattr(where, "RANKED_AT_ONCE", FEW)
            patch.setattr(eviction_order, "RANKED_AT_LEAST", 4, raising=True)
        model = Model(policy)
        for step in steps:
            model.do(*step)
        for _ in range(4 * len(model.store.entries) + 20):
            model.evict()
            model.store.rank_some()
        assert len(model.store.entries) <= 1, "in the end everything but the last entry goes"


def test_so_many_entries_go_as_have_the_bytes_and_the_number_asked_for() -> None:
    model = Model("oldest", 10)
    each = len(b"0") + len(V)
    assert len(model.store.take_evicted("oldest", 0, 2 * each + 1, 9, 1 << 62)) == 3
    model = Model("oldest", 10)
    assert len(model.store.take_evicted("oldest", 4, each, 9, 1 << 62)) == 4
    model = Model("oldest", 10)
    assert len(model.store.take_evicted("oldest", 10, 0, 99, 1 << 62)) == 9, "the last one stays"


@pytest.mark.rows("PX-21")
def test_by_frequency_the_newest_entries_are_not_judged_yet() -> None:
    model = Model("lfu", 10)
    for number in range(9):
        model.read(number)
    assert model.evict(1) == [b"0"], "the newest was never read, and has had no time for it"
    model.put(10)
    assert model.evict(1) == [b"9"]


def test_what_is_removed_and_stored_anew_is_among_the_newest() -> None:
    model = Model("lfu", 10)
    model.read(8)
    model.read(8)
    assert model.evict(1) == [b"0"]
    model.store.remove(b"1")
    model.put(1)
    assert model.evict(9) == [b"2", b"3", b"4", b"5", b"6", b"7", b"9", b"8"]


def test_what_a_merge_makes_older_is_next() -> None:
    model = Model("oldest", 20)
    assert model.evict(1) == [b"0"]
    model.merge(15)
    assert model.evict(2) == [b"15", b"1"]


def test_a_time_that_was_changed_since_counts() -> None:
    model = Model("soonest-to-expire", 1)
    model.put(1, 1_000)
    model.put(2, 2_000)
    model.put(3, 3_000)
    model.put(1, 9_000)
    assert model.evict(1) == [b"2"]
    model.store.remove(b"3")
    assert model.evict(2) == [b"1"]


def test_entries_that_come_by_the_short_way_are_judged_too() -> None:
    c = Cluster("A", maps={MAP: MapConfig(max_entries=4, eviction="lfu")})
    c.assign()
    for number in range(5):
        c.put("A", TEXT + b"%d" % number, V)
    for number in range(1, 4):
        c.get("A", TEXT + b"%d" % number)
    for number in range(5, 9):
        c.put("A", TEXT + b"%d" % number, V)
        assert sorted(c.entries("A") or {}) == [TEXT + b"%d" % each for each in (1, 2, 3, number)]


def test_reads_of_long_ago_lose_their_weight() -> None:
    model = Model("lfu", RANKED_AT_LEAST)
    for _ in range(2 * HALVED_ABOVE):
        for number in range(RANKED_AT_LEAST):
            model.read(number)
    store, accesses = model.store, model.store.accesses
    assert accesses is not None
    first = EvictionOrder(store, "lfu", 1 << 62)
    first.rank_some(store)
    assert set(accesses.hits.values()) == {2 * HALVED_ABOVE}
    second = EvictionOrder(store, "lfu", 1 << 62, first)
    second.rank_some(store)
    assert set(accesses.hits.values()) == {HALVED_ABOVE}
    third = EvictionOrder(store, "lfu", 1 << 62, second)
    third.rank_some(store)
    assert set(accesses.hits.values()) == {HALVED_ABOVE}


@pytest.mark.rows("PX-21")
def test_what_was_read_once_since_and_less_often_than_others_is_still_next() -> None:
    model = Model("lfu", 10)
    for number in [*range(2, 10)] * 3:
        model.read(number)
    assert model.evict(1) == [b"0"]
    model.read(1)
    assert model.evict(1) == [b"1"]


def test_a_search_passes_over_so_many_that_were_used_since_and_then_gives_way() -> None:
    count = 8 * SKIPPED_AT_ONCE
    model = Model("lru", count)
    model.evict(1)
    while model.store.is_ranking:
        model.store.rank_some()
    model.evict(1)
    for number in range(count):
        model.read(number)
    order = model.store.eviction_order
    assert order is not None
    assert model.evict(1) == [], "all that was ranked has been read since; nobody looks at all of it in one turn"
    assert model.store.eviction_order is order, "there is more to look at, so no new ranking is begun"
    assert not order.is_used_up
    for _ in range(20):
        model.store.rank_some()
        if model.evict(1):
            return
    raise AssertionError("nothing is found")


@pytest.mark.usefixtures("small_turns")
def test_no_turn_looks_at_more_than_some_entries_of_a_large_map(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40 * FEW
    c = Cluster("A", maps={MAP: MapConfig(max_entries=count)})
    c.assign()
    keys = [TEXT + b"%04d" % number for number in range(count)]
    for number in range(0, count, FEW):
        c.ask("A", m.PutAll, MAP, keys[number : number + FEW], [V] * FEW, 0)
    ranked: list[int] = []
    rank_some = EvictionOrder.rank_some

    def counted(self: EvictionOrder, store: RankedEntries) -> None:
        ranked.append(c.now)
        rank_some(self, store)

    monkeypatch.setattr(EvictionOrder, "rank_some", counted)
    c.put("A", TEXT + b"one more", V)
    assert len(c.entries("A") or {}) == count + 1, "the write does not wait for the ranking"
    c.advance(100 * PAUSE_MS)
    assert len(ranked) == len(set(ranked)) == 41, "one piece in a turn"
    assert sorted(c.entries("A") or {}) == sorted([*keys[1:], TEXT + b"one more"])
