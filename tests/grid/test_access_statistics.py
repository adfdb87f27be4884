"""What owners record of reads: for which maps, until when, and where it goes along."""

import pytest

from phalanx.common.clock import with_stamp
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import MapChange
from phalanx.grid.replica.map_store import MapStore
from phalanx.wire import messages as m
from support.harness import MAP, TEXT, Cluster, key_of

K = [key_of(0, 1, number) for number in range(4)]
V = TEXT + b"v"


def cluster(policy: str = "higher-hits") -> Cluster:
    c = Cluster("A")
    settle(c, policy)
    c.assign(rows=["A"])
    for key in K:
        c.put("A", key, V)
    return c


def settle(c: Cluster, policy: str) -> None:
    asked = c.ask("A", m.ChangeMap, MAP, MapChange(merge_policy=policy))
    c.settle()
    c.advance(200)
    assert c.is_done(asked)


def hits(c: Cluster, name: str = "A") -> list[int]:
    grid = c.nodes[name].grid
    owned = grid.ownership.find_owned(0)
    accesses = (owned.replica if owned is not None else grid.follower.replicas[0]).maps[MAP].accesses
    return [accesses.find(key)[0] for key in K] if accesses is not None else []


def test_reads_of_one_key_and_of_many_count_and_other_requests_do_not() -> None:
    c = cluster()
    c.get("A", K[0])
    c.get("A", TEXT + b"missing")
    c.ask("A", m.GetAll, MAP, [K[0], K[1], TEXT + b"missing"])
    c.ask("A", m.Contains, MAP, K[2])
    c.put("A", K[3], V)
    assert hits(c) == [2, 1, 0, 0]


@pytest.mark.rows("PX-22")
def test_an_entry_that_is_removed_takes_its_statistics_along() -> None:
    c = cluster()
    for _ in range(3):
        c.get("A", K[0])
    c.ask("A", m.Remove, MAP, K[0])
    c.put("A", K[0], V)
    assert hits(c) == [0, 0, 0, 0]


@pytest.mark.rows("PX-22")
def test_they_go_with_a_copy() -> None:
    c = cluster()
    c.get("A", K[1])
    c.join("B")
    c.advance(10_000)
    assert hits(c, "A") == hits(c, "B") == [0, 1, 0, 0]
    c.get("A", K[1])
    assert [hits(c, name)[1] for name in c.row("A")] == [2, 1], "no read is replicated"


@pytest.mark.rows("PX-22")
def test_they_end_with_the_setting_that_asked_for_them() -> None:
    c = cluster()
    c.get("A", K[1])
    settle(c, "latest-update")
    assert hits(c) == []
    c.get("A", K[1])
    assert hits(c) == []


@pytest.mark.rows("PX-22")
def test_another_setting_that_asks_for_less_forgets_the_rest() -> None:
    c = Cluster("A", maps={MAP: MapConfig(merge_policy="higher-hits", max_entries=100, eviction="lru")})
    c.assign(rows=["A"])
    c.put("A", K[0], V)
    c.get("A", K[0])
    owned = c.nodes["A"].grid.ownership.find_owned(0)
    assert owned is not None
    accesses = owned.replica.maps[MAP].accesses
    assert accesses is not None
    assert accesses.find(K[0])[0] == 1
    settle(c, "latest-update")
    assert accesses.find(K[0])[0] == 0
    assert accesses.find(K[0])[1] > 0


@pytest.mark.parametrize("is_read", [True, False])
def test_a_merge_brings_those_of_what_it_brings(is_read: bool) -> None:
    store = MapStore()
    store.put(K[0], with_stamp(1, V), 0, 0)
    store.take_accesses(K[:2], (4, 1), (7, 8))
    store.take_accesses(K[:1], (2,) if is_read else (), (9,) if is_read else ())
    assert store.accesses is not None
    assert [store.accesses.find(key) for key in K[:2]] == [(2, 9) if is_read else (0, 0), (1, 8)]
    assert store.accesses.columns(K[:2]) == ((2, 1) if is_read else (0, 1), (9, 8) if is_read else (0, 8))
    assert store.accesses.columns(K[2:]) == ((), ())


def test_what_is_recorded_of_an_entry_needs_no_second_copy_of_its_key() -> None:
    c = Cluster("A", maps={MAP: MapConfig(max_entries=100, eviction="lru")})
    c.assign(rows=["A"])
    c.put("A", K[0], V)
    c.get("A", bytes(bytearray(K[0])))
    c.put("A", bytes(bytearray(TEXT + b"later")), V)
    c.ask("A", m.PutAll, MAP, [bytes(bytearray(TEXT + b"still later"))], [V], 0)
    c.settle()
    c.ask("A", m.GetAll, MAP, [bytes(bytearray(TEXT + name)) for name in (b"later", b"still later")])
    owned = c.nodes["A"].grid.ownership.find_owned(0)
    assert owned is not None
    store = owned.replica.maps[MAP]
    assert store.accesses is not None
    assert sorted(map(id, store.accesses.read_at)) == sorted(map(id, store.entries))
