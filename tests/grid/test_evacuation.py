"""Members that are removed for a partial cut lose nothing: what only they hold is moved first (PX-04)."""

from typing import Any

import pytest

from phalanx.machine.inputs import MemoryMeasured
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import EvacuationEnded, EvacuationStarted, ResolutionTakenBack
from phalanx.wire.table_events import PartitionLost
from support.harness import Cluster

COUNT = 8
MIB = 1 << 20


def cluster(names: str = "ABCD", **settings: Any) -> Cluster:
    c = Cluster(names, **({"partition_count": COUNT, "backup_count": 0} | settings))
    c.assign()
    c.advance(2_000)
    return c


def fill(c: Cluster, count: int = 5) -> dict[bytes, bytes]:
    """Entries in every partition, written at its owner, and confirmed."""
    data = {}
    for partition in range(COUNT):
        for number in range(count):
            key, value = c.key(partition, number), b"\xff\xff\xff\xf5v%d" % number
            written = c.put(c.replicas("A", partition)[0], key, value)
            c.settle()
            assert c.is_done(written)
            data[key] = value
    return data


def held(c: Cluster, name: str = "A") -> dict[bytes, bytes]:
    """What the owners have, by the table of a member; every owner is one of its view."""
    found: dict[bytes, bytes] = {}
    for partition in range(COUNT):
        owner = c.replicas(name, partition)[0]
        assert owner in c.view(name)
        found |= c.entries(owner, partition) or {}
    return found


def until_removed(c: Cluster, names: str, within_ms: int = 60_000) -> None:
    for _ in range(within_ms // 100):
        c.advance(100)
        if not set(names) & set(c.view("A")):
            return
    raise AssertionError(f"{names} are members still: {c.nodes['A']!r}")


@pytest.mark.rows("PD-24")
def test_two_that_go_together_and_hold_both_replicas_of_a_partition() -> None:
    c = Cluster("ABCDE", partition_count=COUNT, backup_count=1)
    c.assign(rows=["BC", "CB", "AD", "DE", "EA", "BD", "CE", "AE"])
    c.advance(2_000)
    data = fill(c)
    c.cut("BC", "DE")
    c.advance(5_000)
    until_removed(c, "DE") if "B" in c.view("A") else None
    c.advance(20_000)
    assert c.view("A") in ("ABC", "ADE")
    assert held(c) == data
    assert not c.events_of("A", PartitionLost)


@pytest.mark.rows("PD-24")
def test_an_asynchronous_backup_may_lack_what_was_confirmed() -> None:
    """C stays, and is no sure backup of what B owns: B cannot reach it any more."""
    c = Cluster("ABCD", partition_count=COUNT, backup_count=0, async_backup_count=1)
    c.assign(rows=["BC", "BC", "AD", "DA", "CA", "BD", "CD", "AC"])
    c.advance(2_000)
    c.cut("B", "CD")
    data = fill(c)
    until_removed(c, "B")
    c.advance(2_000)
    assert held(c) == data


@pytest.mark.rows("PD-24")
def test_writes_go_on_while_partitions_are_moved_and_none_that_was_confirmed_is_lost() -> None:
    c = cluster(copy_chunk_bytes=64)
    data = fill(c, 20)
    of_b = next(p for p in range(COUNT) if c.replicas("A", p) == "B")
    c.cut("B", "CD")
    number = 100
    confirmed: dict[int, tuple[bytes, bytes]] = {}
    for _ in range(400):
        if "B" in c.nodes and c.nodes["B"].membership.view is not None:
            key, value = c.key(of_b, number), b"\xff\xff\xff\xf5w%d" % number
            confirmed[c.put("B", key, value)] = (key, value)
            number += 1
        c.advance(50)
    assert c.view("A") == "ACD"
    data |= dict(pair for request, pair in confirmed.items() if c.is_done(request))
    assert len(data) > 160 + 20, "B confirmed many while it was cut off"
    assert held(c) == data


@pytest.mark.rows("PD-24")
def test_a_removed_owner_that_has_not_heard_so_confirms_nothing_alone() -> None:
    """What it still owned has a confirming backup among those that stay, and all else was moved away."""
    c = cluster("ABCD", backup_count=1)
    data = fill(c)
    c.cut("B", "CD")
    c.swallow = lambda sender, receiver, message: receiver == "B" and isinstance(message, m.ExplicitSuspicion)
    until_removed(c, "B")
    assert c.view("B") == "ABCD"
    written = {}
    for partition in range(COUNT):
        if c.replicas("B", partition)[0] == "B":
            key = c.key(partition, 50)
            written[c.put("B", key, b"\xff\xff\xff\xf5late")] = key
    c.advance(2_000)
    assert not [request for request in written if c.is_done(request)]
    assert {key: value for key, value in held(c).items() if key in data} == data


@pytest.mark.rows("PD-24")
def test_it_can_be_turned_off() -> None:
    c = cluster(evacuation_timeout_ms=0)
    fill(c)
    c.cut("B", "CD")
    until_removed(c, "B")
    assert not c.events_of("A", EvacuationStarted)
    assert c.events_of("A", PartitionLost)


@pytest.mark.rows("PD-20")
def test_a_link_that_comes_and_goes_does_not_put_off_the_evacuation_for_ever() -> None:
    c = cluster("ABCDEF", evacuation_timeout_ms=600_000)
    data = fill(c)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyStart | m.CopyChunk)
    c.cut("B", "CD")
    while c.nodes["A"].membership.duties.evacuation is None:
        c.advance(100)
    for _ in range(10):
        c.cut("E", "F")
        c.advance(1_500)
        c.cuts.discard(frozenset("EF"))
        c.advance(1_500)
    order = c.nodes["A"].membership.duties.evacuation
    assert order is not None
    assert order.removed == c.ids("B")
    taken_back = len(c.events_of("A", ResolutionTakenBack))
    for _ in range(5):
        c.cut("E", "F")
        c.advance(1_500)
        c.cuts.discard(frozenset("EF"))
        c.advance(1_500)
    assert len(c.events_of("A", ResolutionTakenBack)) == taken_back
    c.swallow = lambda sender, receiver, message: False
    until_removed(c, "B")
    assert c.view("A") == "ACDEF"
    assert held(c) == data


@pytest.mark.rows("PX-04")
def test_an_asynchronous_backup_is_not_sure_to_have_what_was_confirmed_without_it() -> None:
    """B, which had O's writes, has crashed, and D gets a copy for its place. C, which does not reach O, has none of them."""
    c = Cluster("", async_backup_count=1, seeds="A")
    for name in "ACOBD":
        c.start(name, lite=name == "A")
        c.advance(1_500)
    c.assign("O", rows=["OBC"])
    c.advance(3_000)
    c.cut("O", "C")
    put = c.put("O", c.key(0), b"\0\0\0\0confirmed")
    c.advance(4_500)
    assert c.is_done(put)
    c.hold("O", "D")  # There is much to copy.
    c.crash("B")
    c.advance(2_000)
    assert c.row("A") == "O-C"
    c.release()
    until_removed(c, "O")
    c.advance(2_000)
    assert c.row("A") == "DC"
    assert c.get("D", c.key(0)) == b"\0\0\0\0confirmed"


@pytest.mark.rows("PD-24")
def test_a_member_without_memory_takes_nothing_that_another_one_can_take() -> None:
    """Of those that stay D is full. It would be the one to take some partitions of E: it owns as few as A and C."""
    c = cluster("ABCDE")
    data = fill(c)

    def be_full() -> None:
        c.feed("D", MemoryMeasured(1_000 * MIB, 1_000 * MIB, 1_200 * MIB, 0))

    be_full()
    c.settle()
    c.cut("B", "E")
    for _ in range(600):
        c.advance(100)
        be_full()
        if len(c.view("A")) == 4:
            break
    gone = ({*"BE"} - {*c.view("A")}).pop()
    (ended,) = c.events_of("A", EvacuationEnded)
    assert ended.left == (), f"{gone} takes them along"
    assert not c.events_of("A", PartitionLost)
    assert held(c) == data
