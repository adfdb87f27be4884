"""A member without memory for further replicas keeps nobody else waiting (PX-25)."""

import pytest

from phalanx.machine.inputs import MemoryMeasured
from support.harness import Cluster

MIB = 1 << 20
LIMIT = 1_000 * MIB


def measure(c: Cluster, used: int) -> None:
    """D says what it uses."""
    c.feed("D", MemoryMeasured(used, LIMIT, LIMIT + LIMIT // 5, 0))
    c.settle()


def while_full(c: Cluster, ms: int) -> None:
    for _ in range(ms // 500):
        c.advance(500)
        measure(c, LIMIT)


def held(c: Cluster, name: str) -> set[int]:
    return {p for p in range(c.table("A").partition_count) if name in c.replicas("A", p)}


def is_whole(c: Cluster) -> bool:
    return all(len(c.replicas("A", p)) == 2 for p in range(c.table("A").partition_count))


@pytest.mark.parametrize("partitions", [8, 12, 40])
def test_a_member_leaves_to_those_that_have_room(partitions: int) -> None:
    """Some of what B holds would go to D. Some of what D owns would go to others and, as a backup, come back to D."""
    c = Cluster("ABCD", partition_count=partitions)
    c.assign()
    c.advance(3_000)
    before = held(c, "D")
    measure(c, LIMIT)
    c.leave("B")
    while_full(c, 5_000)
    assert c.view("A") == "ACD"
    assert is_whole(c)
    assert held(c, "D") <= before


def joined_full() -> Cluster:
    """D has joined, and is full: half of 120 partitions wait for it, and nothing else comes before them."""
    c = Cluster("ABC", partition_count=120)
    c.assign()
    c.advance(3_000)
    c.start("D")
    measure(c, LIMIT)
    while_full(c, 1_500)
    assert c.nodes["A"].coordinator.migrations.remaining() == 60
    return c


def test_what_waits_for_a_full_member_does_not_keep_others_from_leaving() -> None:
    c = joined_full()
    c.leave("B")
    while_full(c, 5_000)
    assert c.view("A") == "ACD"
    assert is_whole(c)
    assert not held(c, "D")


@pytest.mark.rows("PX-25")
def test_what_waits_for_a_full_member_does_not_keep_what_others_are_to_get() -> None:
    c = joined_full()
    c.start("E")
    while_full(c, 5_000)
    assert len(held(c, "E")) > 40
    assert not held(c, "D")


def test_a_member_that_has_room_gets_its_share() -> None:
    c = joined_full()
    measure(c, 0)
    c.advance(10_000)
    assert len(held(c, "D")) == 60
    assert is_whole(c)
