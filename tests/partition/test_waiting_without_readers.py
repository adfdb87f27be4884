"""DU-29: who has come to a cluster that waits for its data, and has read nothing, waits on when those have gone that have."""

from __future__ import annotations

import pytest

from phalanx.wire import messages as m
from support.dormancy import LATER, VALUE, owner_of, write
from support.harness import Cluster, name_of

pytestmark = pytest.mark.rows("DU-29", "DU-32")

NEW = "DEFG"


def waiting() -> Cluster:
    """A and B wait for C, the only holder of a partition; with those that have joined them they are in one list, which is stable."""
    c = Cluster(has_folders=True, seeds="AD", partition_count=2, backup_count=0, restart_grace_ms=3_000)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["C", "A"])
    for partition, owner in enumerate("CA"):
        write(c, owner, partition, VALUE)
    c.crash("ABC")
    for name in "AB" + NEW:
        c.start(name, seeds="AB")
        c.advance(5_000)
    assert c.views_of("AB" + NEW) == ["AB" + NEW] * 6
    return c


def leave_alone(c: Cluster) -> None:
    """A and B, the only ones that have read anything, end one after the other: the others are the majority."""
    for name in "AB":
        c.crash(name)
        c.advance(15_000)
    assert c.views_of(NEW) == [NEW] * 4
    assert c.nodes["D"].membership.majority.quorum.is_stable


def assert_waits(c: Cluster, name: str = "D", waits_for: str = "AB") -> None:
    put = c.put(name, c.key(0), LATER)
    c.advance(5_000)
    assert not c.is_done(put)
    assert not c.table(name).is_assigned
    wait = c.nodes[name].installed_table.restart_wait
    assert wait is not None
    assert not wait.is_short
    assert set(waits_for) <= set(map(name_of, wait.members))


def come_back(c: Cluster) -> None:
    for name in "ABC":
        c.join(name, seeds="D")
    c.advance(10_000)
    assert [c.get(c.row("A", p)[0], c.key(p)) for p in (0, 1)] == [VALUE, VALUE]


@pytest.mark.parametrize("how", ["crash", "leave"])
def test_they_wait_on_though_they_are_the_majority(how: str) -> None:
    c = waiting()
    if how == "crash":
        leave_alone(c)
    else:
        for name in "AB":
            c.leave(name)
            c.advance(15_000)
        assert c.views_of(NEW) == [NEW] * 4
    assert_waits(c, "G")
    assert_waits(c)
    come_back(c)


def test_their_folders_remember_it() -> None:
    c = waiting()
    leave_alone(c)
    c.crash(NEW)
    for name in NEW:
        c.start(name, seeds=NEW)
        c.advance(5_000)
    c.advance(30_000)
    assert c.views_of(NEW) == [NEW] * 4
    assert_waits(c)
    come_back(c)


def test_those_that_come_later_wait_too() -> None:
    c = waiting()
    leave_alone(c)
    for name in "HIJKL":
        c.join(name, seeds="D")
    for name in NEW:
        c.crash(name)
        c.advance(15_000)
    assert c.view("H") == "HIJKL"
    assert_waits(c, "H")


def test_an_operator_can_let_them_begin_empty() -> None:
    c = waiting()
    leave_alone(c)
    view = c.nodes["D"].membership.state.joined()
    c.reply(c.ask("D", m.AcceptView, view.version), m.DoneReply)
    c.nodes["D"].coordinator.want_table(c.now)
    c.advance(5_000)
    write(c, owner_of(c, 0), 0, LATER)
    c.crash("D")
    c.advance(15_000)
    assert c.table("E").is_assigned


def test_who_joins_a_running_cluster_waits_for_those_whose_table_it_never_had() -> None:
    """A, with data, admits D and E, and ends before they have its table: they are the majority of the list that they have."""
    c = Cluster(has_folders=True, seeds="A", partition_count=1, backup_count=0)
    c.start("A")
    c.advance(1_500)
    c.assign(rows=["A"])
    write(c, "A", 0, VALUE)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.TableUpdate | m.TableChanges)
    for name in "DE":
        c.start(name)
        c.advance(1_500)
    assert c.views_of("ADE") == ["ADE"] * 3
    c.crash("A")
    c.advance(15_000)
    c.swallow = lambda sender, receiver, message: False
    assert c.nodes["D"].membership.majority.quorum.has_majority
    assert_waits(c, "D", "A")
    c.join("A", seeds="D")
    c.advance(5_000)
    assert c.get("A", c.key(0)) == VALUE


def test_a_new_cluster_waits_for_the_table_of_another_one_that_came_to_it() -> None:
    """D and E form a cluster, and A joins them, which waits for B. A ends."""
    c = Cluster(has_folders=True, seeds="A", partition_count=2, backup_count=0)
    for name in "AB":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=["A", "B"])
    write(c, "A", 0, VALUE)
    c.crash("AB")
    for name in "DEA":
        c.start(name, seeds="D")
        c.advance(1_500)
    assert c.views_of("DEA") == ["DEA"] * 3
    assert not c.table("D").is_assigned
    c.crash("A")
    c.advance(15_000)
    assert c.nodes["D"].membership.majority.quorum.has_majority
    assert_waits(c, "E", "A")
    c.join("A", seeds="D")
    c.advance(3_000)
    assert list(map(name_of, c.nodes["D"].coordinator.restarting.waits_for)) == ["B"]
