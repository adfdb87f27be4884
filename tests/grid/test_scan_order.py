"""A page of a scan costs what it returns, however large its map is and whatever is written meanwhile; no turn sorts it all."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.codec.hashing import scan_position
from phalanx.codec.values import keys_to_data
from phalanx.grid.replica import map_store, scan_order
from phalanx.grid.replica.scan_order import ScanOrder
from phalanx.grid.requests import scans
from phalanx.grid.serving import packing, scanning
from phalanx.wire import messages as m
from phalanx.wire.conditions import Condition, Kind, Relation
from support.harness import MAP, TEXT, Cluster

FEW = 64
KEYS = keys_to_data([f"{number:05d}" for number in range(20 * FEW)])


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of a few keys each, so that a map of a thousand is a large one."""
    for module, name in (
        (scan_order, "RUN_KEYS"), (map_store, "RUN_KEYS"), (scans, "PAGE_ENTRIES"), (packing, "LISTED_AT_MOST"),
        (packing, "EXAMINED_AT_MOST"), (map_store, "SPARE_KEYS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, FEW)


class Counter:
    """Counts hashes for the order of scans: what a turn has looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setattr(scan_order, "scan_position", self)

    def __call__(self, key: bytes) -> int:
        self.count += 1
        return scan_position(key)

    def taken(self) -> int:
        """How many since it was asked last."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Counter:
    return Counter(monkeypatch)


@pytest.fixture
def full() -> Cluster:
    cluster = Cluster("A")
    cluster.assign()
    cluster.ask("A", m.PutAll, MAP, KEYS, [TEXT + b"v"] * len(KEYS), 0)
    return cluster


def next_page(c: Cluster, kind: Any, after: bytes, *rest: Any, between: Callable[[], None] = lambda: None) -> Any:
    """The page behind a key, when it has come; `between` is called in each turn until then."""
    number = c.ask("A", kind, MAP, 0, 1, after, 1 << 20, *rest)
    for _ in range(1_000):
        if number in c.replies:
            return c.replies[number]
        between()
        c.advance(1)
    raise AssertionError("the scan never went on")


def scanned(c: Cluster, kind: Any, *rest: Any, between: Callable[[], None] = lambda: None) -> Iterator[Any]:
    """All pages of a scan."""
    after, more = b"", True
    while more:
        page = next_page(c, kind, after, *rest, between=between)
        yield page
        more, after = page.more, page.after_key
        between()


def test_a_scan_brings_each_entry_once_in_order(full: Cluster) -> None:
    keys = [key for page in scanned(full, m.ScanPartition) for key in page.keys]
    assert keys == sorted(KEYS, key=lambda key: (scan_position(key), key))
    packed = b"".join(page.key_data for page in scanned(full, m.ScanPacked))
    assert packed == b"".join(keys)


@pytest.mark.parametrize("kind", [m.ScanPartition, m.ScanPacked])
def test_no_turn_sorts_more_than_one_run_and_no_page_is_longer(full: Cluster, hashed: Counter, kind: Any) -> None:
    turns: list[int] = []
    sizes = [
        len(page.keys) if kind is m.ScanPartition else len(page.key_sizes) // 4
        for page in scanned(full, kind, between=lambda: turns.append(hashed.taken()))
    ]
    assert sum(sizes) == len(KEYS)
    assert max(sizes) <= FEW
    assert FEW <= max(turns) <= FEW + 2


def test_what_comes_between_two_pages_is_not_sorted_anew(full: Cluster, hashed: Counter) -> None:
    """Keys of one hash, which all come to one place of the order: as somebody would craft them to make pages dear."""
    first = next_page(full, m.ScanPartition, b"")
    hashed.taken()
    for number in range(3 * FEW):
        full.put("A", TEXT + b"new %d" % number, TEXT + b"v")
        next_page(full, m.ScanPartition, first.after_key)
        assert hashed.taken() <= 2  # of the key that came, and of that behind which the page is


def test_what_comes_and_goes_meanwhile_is_brought_at_most_once_and_what_stays_exactly_once(full: Cluster) -> None:
    numbers = iter(range(100_000))

    def change() -> None:
        number = next(numbers)
        full.put("A", TEXT + b"come %d" % number, TEXT + b"v")
        full.ask("A", m.Remove, MAP, TEXT + b"come %d" % (number // 2))
        full.put("A", TEXT + b"come %d" % (number // 3), TEXT + b"v")
        full.ask("A", m.Remove, MAP, KEYS[2 * number % len(KEYS)])

    keys = [key for page in scanned(full, m.ScanPartition, between=change) for key in page.keys]
    assert len(keys) == len(set(keys))
    assert set(KEYS[1::2]) <= set(keys)
    assert keys == sorted(keys, key=lambda key: (scan_position(key), key))


def test_scans_wait_for_one_order_and_go_on_one_in_a_turn(full: Cluster) -> None:
    asked = [full.ask("A", m.ScanPartition, MAP, 0, 1, b"", 1 << 20) for _ in range(5)]
    done: list[int] = []
    for _ in range(100):
        full.advance(1)
        done.append(sum(number in full.replies for number in asked))
    assert done[-1] == 5
    assert max(after - before for before, after in pairwise(done)) == 1


def test_a_scan_that_waits_is_answered_when_its_map_is_gone(full: Cluster) -> None:
    number = full.ask("A", m.ScanPartition, MAP, 0, 1, b"", 1 << 20)
    full.ask("A", m.ClearPartitions, MAP, [0])
    full.advance(5)
    assert full.replies[number] == m.PageReply(number, [], [], False)


def test_conditions_that_nothing_fulfils_give_empty_pages_that_go_on(full: Cluster) -> None:
    never = Condition(0, (), Kind.ANY, Relation.NULL)
    pages = list(scanned(full, m.ScanPacked, 1, (never,)))
    assert len(pages) >= len(KEYS) // FEW
    assert not any(page.key_data for page in pages)


def test_an_order_that_nobody_uses_is_given_up(full: Cluster) -> None:
    next_page(full, m.ScanPartition, b"")
    held = full.nodes["A"].grid.ownership.find_owned(0).replica.maps[MAP]  # type: ignore[union-attr]
    full.advance(scanning.IDLE_MS // 2)
    assert held.order is not None
    full.advance(scanning.IDLE_MS)
    assert held.order is None
    full.advance(100)
    assert not full.nodes["A"].grid.scans._useless


def test_an_order_of_keys_that_are_gone_is_made_anew(full: Cluster) -> None:
    next_page(full, m.ScanPartition, b"")
    held = full.nodes["A"].grid.ownership.find_owned(0).replica.maps[MAP]  # type: ignore[union-attr]
    for number in range(3 * len(KEYS)):
        full.put("A", TEXT + b"x%d" % number, TEXT + b"v")
        full.ask("A", m.Remove, MAP, TEXT + b"x%d" % number)
    assert held.order is not None
    assert held.order.size > 3 * len(KEYS)
    next_page(full, m.ScanPartition, b"")
    assert held.order.size == len(KEYS)


@given(
    st.lists(st.binary(min_size=4, max_size=6), unique=True, max_size=40),
    st.lists(st.binary(min_size=4, max_size=6), max_size=40),
    st.data(),
)
def test_an_order_is_that_of_its_slow_twin(first: list[bytes], later: list[bytes], data: st.DataObject) -> None:
    order = ScanOrder(first)
    order_of = {(scan_position(key), key) for key in [*first, *later]}
    for key in later:
        if data.draw(st.booleans()) and not order.is_ready:
            order.sort_some()
        order.add(key)
    while not order.is_ready:
        order.sort_some()
    after = data.draw(st.sampled_from([b"", *first, *later, b"none"]))
    behind = [key for position, key in sorted(order_of) if not after or (position, key) > (scan_position(after), after)]
    assert list(order.behind(after)) == behind


def test_long_keys_are_sorted_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_order, "RUN_BYTES", 1_000)
    order = ScanOrder([TEXT + b"%0300d" % number for number in range(20)])
    turns = 0
    while not order.is_ready:
        order.sort_some()
        turns += 1
    assert turns >= 6
    assert len(list(order.behind(b""))) == 20
