"""Members that hold no data: they serve callers, may be masters, and no replica is ever given to them."""

from typing import Any

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.errors import ErrorCode
from phalanx.common.map_settings import MapChange
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView
from phalanx.membership.merge.merging import side_rank
from phalanx.reports.placement import Placement
from phalanx.reports.safety import MasterSays, judge
from phalanx.wire import messages as m
from phalanx.wire.table_events import PartitionLost
from support.harness import MAP, Cluster, lone_id
from support.masters import Master

PARTITIONS = 12
VALUE = b"\0\0\0\1v"


def drawn(names: str, **settings: Any) -> Cluster:
    """Lower case: a lite member. The first begins the cluster."""
    c = Cluster(partition_count=PARTITIONS, **settings)
    for name in names:
        start(c, name)
    return c


def start(c: Cluster, name: str) -> None:
    c.start(name, seeds=next(iter(c.nodes), name), lite=name.islower())
    c.settle()
    c.advance(2_000)
    assert name in c.view(name)


def rows(c: Cluster, name: str) -> list[str]:
    return [c.replicas(name, partition) for partition in range(PARTITIONS)]


def loads(c: Cluster, name: str) -> dict[str, int]:
    return {member: sum(member in row for row in rows(c, name)) for member in c.nodes}


@pytest.mark.rows("DL-02")
def test_lite_members_get_no_replicas_and_count_as_no_place_for_one() -> None:
    c = drawn("aBcD", backup_count=2)
    c.assign()
    assert loads(c, "B") == {"a": 0, "B": 12, "c": 0, "D": 12}
    assert {len(row) for row in rows(c, "a")} == {2}
    # Nothing is lacking: two members hold data, and each partition has two replicas.
    safety = c.reply(c.ask("B", m.GetSafety), m.SafetyReply)
    migrations = c.reply(c.ask("a", m.GetMigrations), m.MigrationsReply)
    assert (safety.wanted_replicas, safety.lacking, migrations.lacking, migrations.at_rest) == (2, 0, 0, True)
    assert Placement(c.members_view("B"), c.table("B"), 2).lacking() == []
    # Two more: only the one that holds data gets something.
    start(c, "e")
    start(c, "F")
    c.advance(20_000)
    assert loads(c, "e") == {"a": 0, "B": 12, "c": 0, "D": 12, "e": 0, "F": 12}


def test_what_is_asked_of_a_lite_member_is_done_by_owners() -> None:
    c = drawn("aB")
    put = c.call("a", m.Put, MAP, c.key(3), VALUE, 0, partition=3)
    c.settle()
    c.advance(100)
    assert c.is_done(put)
    assert c.get("B", c.key(3)) == VALUE
    got = c.call("a", m.Get, MAP, c.key(3), partition=3)
    c.settle()
    assert c.reply(got, m.ValueReply).value == VALUE


def test_a_lite_member_leaves_without_anything_being_moved() -> None:
    c = drawn("ABc")
    c.assign()
    before = c.table("A")
    c.leave("c")
    c.advance(2_000)
    assert "c" not in c.nodes
    assert c.table("A") is before


@pytest.mark.rows("DL-02")
def test_a_lite_master_decides_and_the_next_master_knows_who_is_lite() -> None:
    c = drawn("abCDf")
    c.assign()
    assert loads(c, "C") == {"a": 0, "b": 0, "C": 12, "D": 12, "f": 0}
    c.crash("a")
    c.advance(10_000)
    assert c.master("D") == "b"
    start(c, "E")
    c.advance(20_000)
    assert loads(c, "b") == {"b": 0, "C": 8, "D": 8, "f": 0, "E": 8}


@pytest.mark.rows("DL-05")
def test_while_nobody_holds_data_callers_are_told_so_and_a_member_that_does_begins_empty() -> None:
    c = drawn("aBc", backup_count=0, call_timeout_ms=1_000)
    c.assign()
    c.call("c", m.Put, MAP, c.key(0), VALUE, 0)
    c.settle()
    c.crash("B")
    c.advance(10_000)
    assert rows(c, "a") == rows(c, "c") == [""] * PARTITIONS
    assert len(c.events_of("a", PartitionLost)) == PARTITIONS
    assert c.reply(c.ask("a", m.GetMigrations), m.MigrationsReply).at_rest
    for name in "ac":
        asked = c.call(name, m.Get, MAP, c.key(0))
        c.advance(1_500)
        reply = c.reply(asked, m.ErrorReply)
        assert (reply.code, "no member of the cluster holds data" in reply.text) == (ErrorCode.UNAVAILABLE, True), reply
    seen = Placement(c.members_view("c"), c.table("c"), 0)
    assert len(seen.lacking()) == PARTITIONS, "the cluster is not whole"
    lost_at = c.table("a").versions
    # The next one owns everything, and all know that it began anew.
    start(c, "D")
    c.advance(5_000)
    assert rows(c, "a") == rows(c, "D") == ["D"] * PARTITIONS
    births = c.table("c").births
    assert births == c.table("c").versions
    assert all(birth > lost for birth, lost in zip(births, lost_at, strict=True))
    assert c.get("D", c.key(0)) is None
    put = c.call("c", m.Put, MAP, c.key(0), VALUE, 0)
    c.settle()
    assert c.is_done(put)


def test_a_call_that_waits_is_served_when_a_data_member_comes_in_time() -> None:
    c = drawn("a", call_timeout_ms=10_000)
    put = c.call("a", m.Put, MAP, c.key(0), VALUE, 0)
    c.advance(1_000)
    assert put not in c.replies
    start(c, "B")
    c.advance(3_000)
    assert c.is_done(put)


def test_before_any_data_member_was_there_callers_are_told_so_too() -> None:
    c = drawn("ab", call_timeout_ms=1_000)
    put = c.call("b", m.Put, MAP, c.key(0), VALUE, 0)
    c.advance(1_500)
    assert "no member of the cluster holds data" in c.reply(put, m.ErrorReply).text
    assert c.table("a").version == 0


@pytest.mark.rows("DL-05", "DL-12")
def test_a_new_master_gives_lost_partitions_owners() -> None:
    """1. The last data member dies. 2. So does the master, when another data member has just been admitted."""
    c = drawn("abC", backup_count=0)
    c.assign()
    c.crash("C")
    c.advance(10_000)
    c.swallow = lambda sender, receiver, message: isinstance(message, m.TableAck | m.MasterConfirmation)
    c.start("D", seeds="a")
    c.settle()
    assert c.view("a") == "abD"
    assert rows(c, "a") == [""] * PARTITIONS, "it is not there yet"
    c.crash("a")
    c.swallow = lambda *_: False
    c.advance(20_000)
    assert c.master("D") == "b"
    assert rows(c, "b") == rows(c, "D") == ["D"] * PARTITIONS


@pytest.mark.rows("DL-02")
def test_the_last_data_member_may_leave_and_safe_says_what_that_loses() -> None:
    c = drawn("aBc")
    c.assign()
    own = c.reply(c.ask("B", m.GetSafety), m.SafetyReply)
    migrations = c.reply(c.ask("a", m.GetMigrations), m.MigrationsReply)
    safety = c.reply(c.ask("a", m.GetSafety), m.SafetyReply)
    found = judge(c.id("B"), own, MasterSays(c.id("a"), migrations, safety))
    assert [(reason.what, reason.count) for reason in found.against_leaving] == [("nobody_stays", PARTITIONS)]
    assert "no member that holds data would stay" in found.against_leaving[0].said
    assert not found.may_be_killed
    lite = judge(c.id("c"), c.reply(c.ask("c", m.GetSafety), m.SafetyReply), MasterSays(c.id("a"), migrations, safety))
    assert (lite.may_be_killed, lite.may_leave, lite.notes) == (True, True, ["it is a lite member: it holds no data"])
    c.leave("B")
    c.advance(5_000)
    assert "B" not in c.nodes
    assert rows(c, "a") == [""] * PARTITIONS


@pytest.mark.rows("DL-02")
def test_replicas_of_a_leaving_member_go_to_data_members_only() -> None:
    c = drawn("AbC", backup_count=0)
    c.assign()
    c.put("C", c.key(c.partition_of("C")), VALUE)
    kept = c.key(c.partition_of("C"))
    c.leave("C")
    c.advance(10_000)
    assert "C" not in c.nodes
    assert rows(c, "b") == ["A"] * PARTITIONS
    assert c.get("A", kept) == VALUE


@pytest.mark.rows("DL-05")
def test_backups_set_before_anything_is_assigned_assign_nothing() -> None:
    c = drawn("aB")
    c.ask("a", m.ChangeMap, "", MapChange(BackupCount(1)))
    c.advance(1_000)
    assert (rows(c, "B"), c.nodes["a"].installed_table.is_assigned) == ([""] * PARTITIONS, False)
    c.assign("B")
    assert rows(c, "B") == ["B"] * PARTITIONS
    assert set(c.table("B").births) == {0}


def test_the_side_with_more_data_goes_on_not_the_one_with_more_members() -> None:
    def side(names: str) -> MembersView:
        members = tuple(lone_id(name) for name in names)
        return MembersView(3, members[0], members, tuple((m, Traits(lite=True)) for m in members if m[0].islower()))

    assert side("aBC").data_members == (lone_id("B"), lone_id("C"))
    assert side_rank(side("Axyz"), True) < side_rank(side("BC"), True)
    assert side_rank(side("AB"), True) < side_rank(side("CDx"), True)


@pytest.mark.rows("PX-02")
def test_a_member_that_is_just_getting_a_replica_goes_when_that_has_gone_elsewhere() -> None:
    a = Master("ABCD", "BC", targets=["DC"])
    a.ready(0)
    a.targets = ["BC"]
    a.view("ABCD", leaving="D")
    assert a.coordinator.draining.handing_over() == [(lone_id("D"), 1)]
    assert a.handed_over() == ()
    a.answer(0, accepted=True)
    assert a.rows == ["DC"]
    a.acknowledge("BC")
    assert a.handed_over() == ()
    a.ready(0)
    a.answer(0, accepted=True)
    a.acknowledge("BC")
    assert (a.rows, a.handed_over()) == (["BC"], (lone_id("D"),))
