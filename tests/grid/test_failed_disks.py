"""Members whose disks have failed, or are full: who owns what, who is answered, and who leaves (DU-41, DU-42, DU-45)."""

from typing import Any

import pytest

from phalanx.common.disk_state import DiskState
from phalanx.common.errors import ErrorCode
from phalanx.machine.inputs import DiskChecked
from phalanx.wire import messages as m
from phalanx.wire.disk_events import DiskFailed, DiskFull, OneDisk
from support.harness import MAP, TEXT, Cluster

OLD, NEW = TEXT + b"old", TEXT + b"newer"
FAILED = DiskChecked(DiskState.FAILED, "data_dir /data: the sync of 1.log has failed: EIO")
FULL = DiskChecked(DiskState.FULL, "data_dir /data: it has room for 5 MiB")
WELL = DiskChecked(DiskState.OK, "")


def tell(c: Cluster, name: str, told: DiskChecked, ms: int = 0) -> None:
    """The driver of a member says how its disk does, as long as that time passes."""
    for wait_ms in [500] * (ms // 500) + [0]:
        if name in c.nodes:
            c.feed(name, told)
        c.settle()
        c.advance(wait_ms)


def holding(names: str, **settings: Any) -> Cluster:
    """Return a cluster with an entry in each partition."""
    c = Cluster(names, partition_count=12, **settings)
    c.assign()
    c.advance(3_000)
    for partition in range(12):
        asked = c.ask(c.replicas("A", partition)[0], m.Put, MAP, c.key(partition), OLD, 0)
        c.settle()
        assert c.is_done(asked)
    return c


def owners(c: Cluster) -> str:
    return "".join(sorted({c.replicas("A", partition)[0] for partition in range(12)}))


def held(c: Cluster, name: str, by: str = "A") -> int:
    return sum(name in c.replicas(by, partition) for partition in range(12))


def owned_by(c: Cluster, name: str) -> int:
    return next(partition for partition in range(12) if c.replicas("A", partition)[0] == name)


def refused(c: Cluster, request_id: int) -> ErrorCode:
    return ErrorCode(c.reply(request_id, m.ErrorReply).code)


@pytest.mark.parametrize("failed", ["A", "C"])
def test_others_take_over_and_it_leaves(failed: str) -> None:
    """Also if it is the master."""
    c = holding("ABC")
    tell(c, failed, FAILED)
    stays = "AB".replace(failed, "B") if failed == "C" else "BC"
    assert failed not in {c.replicas(stays[0], partition)[0] for partition in range(12)}
    tell(c, failed, FAILED, 5_000)
    assert c.view(stays[0]) == stays
    for partition in range(12):
        assert len(c.replicas(stays[0], partition)) == 2
        assert c.get(c.replicas(stays[0], partition)[0], c.key(partition)) == OLD


def test_ownership_moves_before_anything_is_copied() -> None:
    c = holding("ABC")
    c.hold_all()
    c.feed("C", FAILED)
    c.release()
    orders: list[m.MigrationOrder] = []
    while c.step():
        orders += [each for name in "ABC" for each in c.pending("A", name, m.MigrationOrder) if each not in orders]
    first = [order.migration.destination_current_index > 0 for order in orders]
    assert first == sorted(first, reverse=True)
    assert any(first)
    assert not all(first)


def test_the_only_other_memory_stays_as_a_backup() -> None:
    """DU-45 with two members: B goes on, and waits for nobody's disk."""
    c = holding("AB")
    tell(c, "A", FAILED, 5_000)
    assert c.view("B") == "AB"
    assert owners(c) == "B"
    assert held(c, "A") == 12
    assert c.events_of("A", OneDisk)[-1] == OneDisk(True, 12, (c.id("A"),))
    asked = c.ask("B", m.Put, MAP, c.key(0), NEW, 0)
    c.settle()
    assert c.is_done(asked)
    assert c.entries("A", 0) == c.entries("B", 0)


def test_a_member_that_joins_lets_it_go() -> None:
    c = holding("AB")
    tell(c, "B", FAILED, 2_000)
    c.start("C")
    c.settle()
    tell(c, "B", FAILED, 8_000)
    assert c.view("A") == "AC"
    assert all(len(c.replicas("A", partition)) == 2 for partition in range(12))
    assert c.events_of("A", OneDisk)[-1].is_one is False


@pytest.mark.parametrize("leaver", ["A", "B"])
def test_a_leaver_keeps_what_only_its_disk_has_until_another_one_joins(leaver: str) -> None:
    """Also where the leaver is the master: it admits the member that is to take over (PX-50)."""
    c, other = holding("AB"), "AB".replace(leaver, "")
    tell(c, other, FAILED, 1_000)
    c.leave(leaver)
    tell(c, other, FAILED, 10_000)
    assert leaver in c.nodes
    assert owners(c) == leaver
    c.put(leaver, c.key(3), NEW)
    c.settle()
    c.start("C", seeds="A")
    tell(c, other, FAILED, 10_000)
    assert leaver not in c.nodes
    assert {c.replicas("C", partition) for partition in range(12)} == {f"C{other}"}, "that one is the only other memory"
    assert [c.get("C", c.key(partition)) for partition in (3, 4)] == [NEW, OLD]


@pytest.mark.rows("PX-50")
@pytest.mark.parametrize("failed", ["A", "C"])
def test_who_leaves_because_of_its_disk_was_not_told_to_leave(failed: str) -> None:
    """1. A's disk has failed, and others have what it held. 2. B is told to leave, and D is cut off before it has got all of B. 3. A leaves:
    not all were told to, so B keeps what it has until D is back. Also if B is the master, and not A."""
    c, leaver = holding("ABCD".replace("B" if failed == "A" else "D", "")), "C" if failed == "A" else "A"
    tell(c, failed, FAILED)
    c.advance(5_000)
    assert held(c, failed) == 0
    other = "D" if failed == "A" else "B"
    c.leave(leaver)
    c.cut(other, failed + leaver)
    c.advance(20_000)
    assert held(c, failed, by=leaver) == 0
    tell(c, failed, FAILED, 5_000)
    assert [name in c.nodes for name in (failed, leaver)] == [False, True]
    assert held(c, leaver, by=leaver) == 12
    c.heal()
    c.stay_together(other)
    c.advance(20_000)
    assert [c.get(other, c.key(partition)) for partition in range(12)] == [OLD] * 12


def test_who_holds_something_again_stays_though_its_disk_has_failed() -> None:
    """1. A, the master, holds nothing, and waits until B and C know that. 2. They crash: all begins again at A. 3. D joins, and owns it."""
    c = holding("ABC")
    tell(c, "A", FAILED)
    c.advance(3_000)
    assert held(c, "A") == 0
    c.hold("BC", "A")
    c.start("E", seeds="A")
    c.advance(1_000)
    tell(c, "A", FAILED)
    assert c.nodes["A"].membership.wishes.to_leave
    c.crash("BCE")
    c.release()
    tell(c, "A", FAILED, 30_000)
    assert "A" in c.nodes
    assert held(c, "A") == 12
    assert not c.nodes["A"].membership.wishes.to_leave
    c.start("D", seeds="A")
    tell(c, "A", FAILED, 10_000)
    assert {c.replicas("D", partition) for partition in range(12)} == {"DA"}, "it is the only other memory"


def test_a_master_that_leaves_admits_who_takes_over_from_a_full_member() -> None:
    """B has no room on its disk for what A holds."""
    c = holding("AB", backup_count=0)
    tell(c, "B", FULL, 1_000)
    c.leave("A")
    tell(c, "B", FULL, 5_000)
    assert held(c, "A") == 6
    c.start("C", seeds="A")
    tell(c, "B", FULL, 10_000)
    assert "A" not in c.nodes
    assert [held(c, name, by="B") for name in "BC"] == [6, 6]


def test_a_leaver_whose_disk_has_failed_waits_for_one_that_was_admitted() -> None:
    """1. A's disk has failed: it keeps replicas in memory, and leaves. 2. C is admitted, and silent: B would hold all of it alone."""
    c = holding("AB")
    tell(c, "A", FAILED, 1_000)
    c.swallow = lambda sender, receiver, message: (
        isinstance(message, m.TableAck | m.MasterConfirmation) and sender == "C"
    )
    c.start("C", seeds="A")
    c.settle()
    c.leave("A")
    tell(c, "A", FAILED, 1_000)
    assert (c.view("A"), held(c, "A"), owners(c)) == ("ABC", 12, "B")
    c.swallow = lambda *_: False
    tell(c, "A", FAILED, 10_000)
    assert c.view("B") == "BC"
    assert all(len(c.replicas("B", partition)) == 2 for partition in range(12))


def test_the_last_holder_reads_and_refuses_writes() -> None:
    c = holding("A")
    tell(c, "A", FAILED, 2_000)
    assert c.view("A") == "A"
    assert c.events_of("A", DiskFailed) == [DiskFailed(True, FAILED.why)]
    assert c.get("A", c.key(3)) == OLD
    for make, fields in {m.Put: (c.key(3), NEW, 0), m.Remove: (c.key(3),), m.PutAll: ([c.key(3)], [NEW], 0)}.items():
        asked = c.ask("A", make, MAP, *fields)
        c.settle()
        assert refused(c, asked) is ErrorCode.UNAVAILABLE
        assert "no other member has a working one" in c.reply(asked, m.ErrorReply).text
    assert c.get("A", c.key(3)) == OLD


@pytest.mark.rows("DU-45")
@pytest.mark.parametrize("row", ["DAC", "DCA"])
def test_one_of_several_leaves_where_the_others_keep_what_they_have(row: str) -> None:
    """D and E are too few for three replicas, so A and B keep theirs; C is told to leave."""
    c = Cluster("ABCDE", partition_count=3, backup_count=2)
    c.assign(rows=[row] * 3)
    c.advance(3_000)
    for name in "ABC":
        c.feed(name, FAILED)
    c.leave("C")
    tell(c, "A", FAILED, 10_000)
    assert "C" not in c.view("D")
    assert all({"D", "E"} <= set(c.row("D", partition)) for partition in range(3))


def test_without_backups_it_is_copied_away() -> None:
    c = holding("AB", backup_count=0)
    tell(c, "B", FAILED, 5_000)
    assert c.view("A") == "A"
    for partition in range(12):
        assert c.get("A", c.key(partition)) == OLD


def test_what_waits_when_it_fails_is_not_acknowledged() -> None:
    """The caller asks the owner that comes after it, which knows the outcome."""
    c = holding("AB")
    partition = owned_by(c, "B")
    c.hold("A", "B")
    asked = c.ask("B", m.Put, MAP, c.key(partition), NEW, 0)
    c.settle()
    c.feed("B", FAILED)
    c.release()
    c.settle()
    assert refused(c, asked) is ErrorCode.OWNERSHIP_LOST
    assert c.replicas("A", partition)[0] == "A"
    assert c.get("A", c.key(partition)) == NEW


def test_writes_wait_for_the_next_owner() -> None:
    c = holding("AB")
    partition = owned_by(c, "B")
    c.hold_all()
    c.feed("B", FAILED)
    asked = c.ask("B", m.Put, MAP, c.key(partition), NEW, 0)
    assert refused(c, asked) is ErrorCode.NOT_READY


def test_who_joins_hears_of_it() -> None:
    c = holding("AB", backup_count=2)
    tell(c, "B", FAILED)
    c.start("C")
    tell(c, "B", FAILED, 1_500)  # the first report can come before the view
    assert c.view("A") == "ABC"
    assert c.nodes["C"].grid.disks.failed == {c.id("B")}


def test_a_new_master_knows_of_it() -> None:
    c = holding("ABC", backup_count=2)
    tell(c, "C", FAILED)
    c.crash("A")
    tell(c, "C", FAILED, 20_000)
    assert c.view("B") == "BC"
    assert {c.replicas("B", partition) for partition in range(12)} == {"BC"}


# --- full -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-42")
def test_a_full_disk_refuses_what_grows() -> None:
    c = holding("A")
    tell(c, "A", FULL)
    assert c.events_of("A", DiskFull) == [DiskFull(True, FULL.why)]
    grows = c.ask("A", m.Put, MAP, c.key(0), NEW, 0)
    same = c.ask("A", m.Put, MAP, c.key(1), OLD, 0)
    removed = c.ask("A", m.Remove, MAP, c.key(2))
    c.settle()
    assert refused(c, grows) is ErrorCode.GRID_FULL
    assert "the disk of member" in c.reply(grows, m.ErrorReply).text
    assert c.is_done(same)
    assert c.is_done(removed)
    assert c.get("A", c.key(0)) == OLD
    tell(c, "A", WELL)
    assert c.events_of("A", DiskFull)[-1] == DiskFull(False, "")
    grows = c.ask("A", m.Put, MAP, c.key(0), NEW, 0)
    c.settle()
    assert c.is_done(grows)


@pytest.mark.rows("DU-42")
def test_an_owner_refuses_what_grows_on_a_backup_with_a_full_disk() -> None:
    c = holding("ABC")
    tell(c, "C", FULL)
    grown = {
        partition: c.ask(c.replicas("A", partition)[0], m.Put, MAP, c.key(partition), NEW, 0) for partition in range(12)
    }
    c.settle()
    for partition, asked in grown.items():
        assert c.is_done(asked) is ("C" not in c.replicas("A", partition))


@pytest.mark.rows("DU-42")
def test_a_report_of_a_full_disk_counts_for_a_while() -> None:
    c = holding("AB")
    tell(c, "B", FULL, 6_000)
    assert c.nodes["A"].grid.memory.room < 0
    c.advance(6_000)
    assert c.nodes["A"].grid.memory.room > 0


@pytest.mark.rows("DU-42")
def test_a_full_disk_gets_no_further_replicas() -> None:
    c = holding("ABC")
    tell(c, "C", FULL)
    before = held(c, "C")
    assert before < 12
    c.crash("A")
    tell(c, "C", FULL, 20_000)
    assert c.view("B") == "BC"
    assert held(c, "C", "B") <= before
    tell(c, "C", WELL)
    c.advance(5_000)
    assert held(c, "C", "B") == 12
