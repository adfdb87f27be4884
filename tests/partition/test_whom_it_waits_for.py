"""DU-33: whom a cluster that was switched off names, and what it says that is to be done."""

from __future__ import annotations

import pytest

from phalanx.common.restart_wait import wait_in_words
from phalanx.wire.restart_events import ClustersMixed
from support.harness import Cluster, name_of

pytestmark = pytest.mark.rows("DU-33")
VALUE, OTHER = b"\0\0\0\0value", b"\0\0\0\0other"


def with_data(c: Cluster, names: str, value: bytes) -> None:
    """Start members that know the first one, and nobody else, and store something in each partition."""
    for name in names:
        c.start(name, seeds=names[0])
        c.advance(1_500)
    c.put(names[0], c.key(0), value)
    c.advance(5_000)
    for partition in range(3):
        put = c.put(c.replicas(names[0], partition)[0], c.key(partition), value)
        c.advance(500)
        assert c.is_done(put)


def folders(backups: int = 1) -> Cluster:
    return Cluster(has_folders=True, partition_count=3, seeds="A", backup_count=backups)


def stop(c: Cluster, name: str) -> None:
    """It stops in good order, to come back, and the others go on for a while."""
    c.leave(name, keeps=True)
    for _ in range(20):
        c.advance(1_000)
    assert name not in c.nodes


def named(c: Cluster, name: str) -> str:
    wait = c.nodes[name].installed_table.restart_wait
    return "".join(map(name_of, wait.members)) if wait is not None else ""


def words(c: Cluster, name: str) -> str:
    wait = c.nodes[name].installed_table.restart_wait
    return wait_in_words(wait) if wait is not None else ""


@pytest.mark.parametrize(
    ("back", "missing"), [("A", "BC"), ("B", "C"), ("C", ""), ("AB", "C"), ("BA", "C"), ("AC", ""), ("BC", "")]
)
def test_nobody_is_named_who_is_there_after_members_were_stopped_one_by_one(back: str, missing: str) -> None:
    """A has left its vote to those that stayed, and B has less than C: both are here, and the others are to come."""
    c = folders()
    with_data(c, "ABC", VALUE)
    for name in "ABC":
        stop(c, name)
    for name in back:
        c.start(name, seeds="ABC")
    c.advance(40_000)
    assert {named(c, name) for name in back} == {missing}


def two_clusters() -> Cluster:
    """A and B were a cluster, and C and D another one of the same name. All have ended."""
    c = folders()
    with_data(c, "AB", VALUE)
    with_data(c, "CD", OTHER)
    c.crash("ABCD")
    return c


@pytest.mark.rows("DU-25")
def test_members_of_two_clusters_wait_for_their_own_ones() -> None:
    """1. A and C come back with each other as seeds: in one list they would wait for a majority that counts for both. 2. B and D come, and
    both clusters go on. Then they are like sides of a cut."""
    c = two_clusters()
    for name in "AC":
        c.start(name, seeds="AC")
        c.advance(30_000)
    c.advance(60_000)
    assert not c.gone()
    assert c.views_of("AC") == ["A", "C"]
    assert [named(c, name) for name in "AC"] == ["B", "D"]
    for name in "BD":
        c.start(name, seeds="AC")
    c.stay_together("ABCD")
    c.advance(20_000)
    assert not any(words(c, name) for name in "ABCD")
    assert [c.get(c.replicas("A", partition)[0], c.key(partition)) for partition in range(3)] == [OTHER] * 3


def test_members_of_two_clusters_say_that_one_of_them_is_to_be_stopped_and_go_on_then() -> None:
    """1. X, which is new, admits A, and then C: it has read nothing itself. 2. B and D come, too: nobody is missing, and no majority counts
    for both."""
    c = two_clusters()
    for name in "XACBD":
        c.start(name, seeds="X")
        c.advance(30_000)
    assert c.view("A") == "XACBD"
    for name in "XABCD":
        assert words(c, name) == (
            "nothing is served: the members that are here have the data of several clusters, A:5701, B:5701 that of one, and "
            "C:5701, D:5701 that of another one; stop all but those of one"
        )
    mixed = c.events_of("X", ClustersMixed)[-1]
    assert (mixed.one, mixed.others) == (c.ids("AB"), c.ids("CD"))
    for name in "CD":
        stop(c, name)
    c.advance(40_000)
    assert words(c, "A") == ""
    assert [c.get(c.replicas("A", partition)[0], c.key(partition)) for partition in range(3)] == [VALUE] * 3
