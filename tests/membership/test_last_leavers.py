"""The last members that hold data take it along only if nobody is missing, or all were told to leave (PX-50)."""

import pytest

from phalanx.wire import messages as m
from phalanx.wire.join_events import LastMembersLeave, LeaveWaits
from phalanx.wire.table_events import PartitionLost
from support.harness import Cluster

VALUE = b"\0\0\0\1v"


def whole(names: str, *rows: str, lite: str = "", backup_count: int = 1) -> Cluster:
    """Members that have joined one after the other, with one entry in partition 0."""
    c = Cluster(backup_count=backup_count, partition_count=len(rows))
    for name in names:
        c.start(name, seeds=next(iter(c.nodes), name), lite=name in lite)
        c.advance(2_000)
    assert c.views_of(names) == [names] * len(names)
    c.assign(rows=rows)
    c.put(rows[0][0], c.key(0), VALUE)
    c.settle()
    return c


@pytest.mark.parametrize("leaver", ["A", "B"])
def test_a_leaver_stays_whose_taker_has_crashed(leaver: str) -> None:
    """1. A and B hold everything. 2. A leaves, B crashes. 3. B is started again: A hands over to it, and leaves."""
    other = "AB".replace(leaver, "")
    c = whole("AB", "AB", "BA")
    c.hang(other)
    c.leave(leaver)
    c.crash(other)
    c.advance(60_000)
    assert leaver in c.nodes
    (waits,) = c.events_of(leaver, LeaveWaits)
    assert [len(waits.leavers), waits.replicas_to_hand_over, len(waits.missing)] == [1, 2, 1]
    assert c.get(leaver, c.key(0)) == VALUE, "it serves as long as it stays"
    c.start(other, seeds=leaver)
    c.advance(10_000)
    assert leaver not in c.nodes
    assert c.get(other, c.key(0)) == VALUE


def test_a_leaver_keeps_everything_until_the_taker_has_answered_for_all() -> None:
    """B answers for two partitions of three, and crashes: nothing of what A holds was cleared by then."""
    c = whole("AB", "BA", "BA", "BA")
    c.hold("B", "A")
    c.leave("A")
    c.settle()
    c.deliver("B", "A", m.MigrationReady, 2)
    c.crash("B")
    c.advance(10_000)
    assert not c.events_of("A", PartitionLost)
    assert c.get("A", c.key(0)) == VALUE


@pytest.mark.parametrize("row", ["AB", "A"], ids=["the taker has a backup", "the taker has nothing"])
def test_a_leaver_stays_in_the_row_when_another_one_gets_the_ownership(row: str) -> None:
    """1. A leaves, and B has taken over one partition of three. 2. B crashes: A is there, and has everything. 3. B is back."""
    c = whole("AB", row, row, row)
    c.hold("B", "A")
    c.leave("A")
    c.settle()
    while c.row("A", 0)[0] == "A":
        c.deliver("B", "A")
        c.settle()
    assert c.row("A", 0) == "BA"
    c.crash("B")
    c.advance(10_000)
    assert not c.events_of("A", PartitionLost)
    assert c.get("A", c.key(0)) == VALUE
    c.release()
    c.start("B", seeds="A")
    c.advance(20_000)
    assert "A" not in c.nodes
    assert [c.replicas("B", partition) for partition in range(3)] == ["B"] * 3


def test_an_owner_is_asked_again_when_it_has_answered_long_before() -> None:
    """1. B answers for what A holds of it as a backup. 2. A's last partition moves, and A keeps no replica of it, because there are to be
    no backups any more. 3. Only then is the rest cleared, if B is there."""
    c = whole("AB", "BA", "A", backup_count=0)
    c.hold("A", "B")
    c.leave("A")
    c.settle()
    while not c.nodes["A"].coordinator.migrations._answered:
        c.deliver("A", "B", m.MigrationOrder)
        c.settle()
    assert [c.replicas("A", partition) for partition in (0, 1)] == ["BA", "A"]
    c.release()
    c.advance(10_000)
    assert "A" not in c.nodes
    assert c.replicas("B", 0) == c.replicas("B", 1) == "B"


def test_one_that_is_told_to_leave_right_behind_a_crash_stays() -> None:
    c = whole("AB", "AB", "BA")
    c.crash("B")
    c.advance(10_000)
    c.leave("A")
    c.advance(10_000)
    assert "A" in c.nodes
    assert c.get("A", c.key(0)) == VALUE
    c.start("C", seeds="A")
    c.advance(10_000)
    assert "A" not in c.nodes
    assert c.get("C", c.key(0)) == VALUE


def test_nobody_is_waited_for_whose_process_ended_long_ago() -> None:
    c = whole("AB", "AB")
    c.crash("B")
    c.advance(301_000)
    c.leave("A")
    c.settle()
    assert "A" not in c.nodes


def test_a_member_that_never_had_others_leaves_at_once() -> None:
    c = whole("A", "A")
    c.leave("A")
    c.settle()
    assert "A" not in c.nodes


def test_one_whose_others_left_in_order_leaves_at_once() -> None:
    c = whole("ABC", "AB", "BC", "CA")
    c.leave("C")
    c.advance(10_000)
    c.leave("B")
    c.advance(10_000)
    assert not c.events_of("A", LastMembersLeave)
    c.leave("A")
    c.settle()
    assert not c.nodes
    assert [ends.replicas_held for ends in c.events_of("A", LastMembersLeave)] == [3]


def test_all_leave_at_once_if_all_were_told_although_one_has_crashed() -> None:
    """Somebody stops the whole cluster."""
    c = whole("ABC", "AB", "BC", "CA")
    c.crash("C")
    c.advance(10_000)
    c.leave("A")
    c.leave("B")
    c.settle()
    assert not c.nodes
    (ends,) = c.events_of("A", LastMembersLeave)
    assert (len(ends.leavers), ends.replicas_held) == (2, 6)


def test_two_leavers_stay_whose_only_taker_has_crashed() -> None:
    c = whole("ABC", "AB", "BC", "CA")
    c.hang("C")
    c.leave("A")
    c.leave("B")
    c.crash("C")
    c.advance(20_000)
    assert set(c.nodes) == {"A", "B"}
    c.start("C", seeds="A")
    c.advance(10_000)
    assert set(c.nodes) == {"C"}
    assert c.get("C", c.key(0)) == VALUE


def test_a_lite_member_that_crashes_is_not_waited_for() -> None:
    c = whole("AB", "A", lite="B")
    c.crash("B")
    c.advance(10_000)
    c.leave("A")
    c.settle()
    assert "A" not in c.nodes


def test_one_without_any_entry_leaves_at_once() -> None:
    c = whole("AB", "AB", "BA")
    c.crash("B")
    c.advance(10_000)
    for replica in c.nodes["A"].grid.held.all():
        replica.maps.clear()
    c.leave("A")
    c.settle()
    assert "A" not in c.nodes


def test_one_that_is_cut_off_stays_until_the_sides_are_one() -> None:
    """A alone has what was written since the cut."""
    c = whole("AB", "AB", "BA")
    c.cut("A", "B")
    c.advance(90_000)
    c.put("A", c.key(0), VALUE + b"2")
    c.settle()
    c.leave("A")
    c.advance(60_000)
    assert "A" in c.nodes
    assert c.get("A", c.key(0)) == VALUE + b"2"
    c.heal()
    c.advance(15_000)
    assert c.gone() == ["A"], "its side joins the other one"
    c.come_back("A")
    c.leave("A")
    c.advance(30_000)
    assert set(c.nodes) == {"B"}
    assert c.get("B", c.key(0)) == VALUE + b"2"
