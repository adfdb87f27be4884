"""DU-35: of what a process has read from its folder, only that is merged which the cluster has not."""

from __future__ import annotations

import pytest

from phalanx.common.ids import address_of
from phalanx.wire import messages as m
from phalanx.wire.merge_events import MergeEnded
from support.harness import MAP, Cluster, address

BEFORE, WITHOUT_BACKUP, MEANWHILE = b"before", b"on one disk only", b"meanwhile"


def pair() -> Cluster:
    """A owns the only partition, and B is its backup."""
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=1)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["BC"])
    c.put("B", c.key(0), BEFORE)
    c.put("B", c.key(0, 1), BEFORE)
    c.advance(500)
    return c


def merges(c: Cluster) -> list[MergeEnded]:
    return [event for _, event in c.events if isinstance(event, MergeEnded)]


@pytest.mark.rows("DU-35")
def test_what_is_a_prefix_is_dropped_and_nothing_removed_comes_back() -> None:
    c = pair()
    c.crash("B")
    c.advance(20_000)
    owner = c.replicas("A")[0]
    c.ask(owner, m.Remove, MAP, c.key(0))
    c.advance(500)
    c.events.clear()
    c.join("B", seeds="A")
    c.advance(20_000)
    owner = c.replicas("A")[0]
    assert c.get(owner, c.key(0)) is None
    assert c.get(owner, c.key(0, 1)) == BEFORE
    assert [(each.sent, each.left_to_others) for each in merges(c)] == [(0, 1)]


@pytest.mark.rows("DU-35")
def test_what_nobody_else_has_is_merged() -> None:
    c = pair()
    c.cut("B", "AC")
    c.put("B", c.key(0), WITHOUT_BACKUP)  # it is on B's disk, and never answered
    c.crash("B")
    c.heal()
    c.advance(20_000)
    owner = c.replicas("A")[0]
    c.put(owner, c.key(0, 1), MEANWHILE)
    c.advance(500)
    assert c.get(owner, c.key(0)) == BEFORE
    c.events.clear()
    c.join("B", seeds="A")
    c.advance(20_000)
    owner = c.replicas("A")[0]
    assert c.get(owner, c.key(0)) == WITHOUT_BACKUP
    assert c.get(owner, c.key(0, 1)) == MEANWHILE
    assert [(each.taken, each.left_to_others) for each in merges(c)] == [(1, 0)]


@pytest.mark.rows("DU-36")
def test_what_is_set_aside_is_still_there_after_another_crash() -> None:
    c = pair()
    c.cut("B", "AC")
    c.put("B", c.key(0), WITHOUT_BACKUP)
    c.crash("B")
    c.heal()
    c.advance(20_000)
    c.join("B", seeds="A")
    c.crash("B")
    c.advance(20_000)
    c.join("B", seeds="A")
    c.advance(20_000)
    assert c.get(c.replicas("A")[0], c.key(0)) == WITHOUT_BACKUP


def test_a_cluster_that_comes_back_keeps_what_its_majority_has_acknowledged() -> None:
    """W2: C goes on alone, with a newer row, and A and B acknowledge writes; then all lose power."""
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=2)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["ABC"])
    c.put("A", c.key(0), BEFORE)
    c.advance(500)
    c.cut("C", "AB")
    c.advance(20_000)
    assert c.replicas("C") == "C"
    put, alone = c.put("A", c.key(0), MEANWHILE), c.put("C", c.key(0, 1), WITHOUT_BACKUP)
    c.advance(1_000)
    assert c.is_done(put)
    assert c.is_done(alone)
    for name in "ABC":
        c.crash(name)
    c.heal()
    for name in "CAB":
        c.start(name, seeds="CAB")
    c.advance(40_000)
    owner = c.replicas("A")[0]
    assert owner in "AB" or merges(c)
    assert c.get(owner, c.key(0)) == MEANWHILE
    assert c.get(owner, c.key(0, 1)) == WITHOUT_BACKUP
    assert {address_of(each.former) for each in merges(c)} >= {address("C")}
