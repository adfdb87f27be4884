"""Members that have in their folders what they held: they are awaited until the folder is back, or an operator forgets them (DU-59)."""

import pytest

from phalanx.common.config import NodeConfig
from phalanx.common.departure import Departure, HowGone
from phalanx.common.ids import MemberId
from phalanx.common.store import StoreStart
from phalanx.common.versions import OLDEST_PROTOCOL_VERSION as OLD
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkRefused
from phalanx.membership.join.departure_record import DepartedFolder, DepartureRecord
from phalanx.membership.join.former_members import REMEMBERED
from phalanx.wire import messages as m
from phalanx.wire.view_events import MemberForgotten
from support.harness import Cluster, address, lone_id

X, FOLDER = lone_id("X"), DepartedFolder("x")
LATER_MS = 30 * 24 * 3_600_000

pytestmark = pytest.mark.rows("DU-59")


def view(*members: MemberId, **stores: str) -> MembersView:
    found = tuple((lone_id(name), StoreStart(store, 1)) for name, store in stores.items())
    return MembersView(1, lone_id("A"), (lone_id("A"), *members), stores=found)


def record() -> DepartureRecord:
    kept = DepartureRecord(lone_id("A"), NodeConfig(partition_count=1, connection_grace_ms=1_000))
    kept.on_view(view(), 0)
    kept.note(X, HowGone.CUT_OFF, OLD, 0, folder=FOLDER)
    return kept


def awaited(kept: DepartureRecord) -> list[str]:
    return [each.store for each in kept.kept]


def test_time_does_not_end_it() -> None:
    kept = record()
    kept.on_view(view(), LATER_MS)
    assert awaited(kept) == ["x"]
    assert address("X") in kept.awaited(OLD + 1, LATER_MS)
    assert [each.member for each in kept.to_send()] == [X]


def test_that_no_process_listens_there_does_not_end_it() -> None:
    kept = record()
    for now in (1_000, 5_000):
        kept.on_link(X, LinkRefused(X, "refused", is_deserted=True), now)
    kept.on_view(view(), 6_000)
    assert awaited(kept) == ["x"]


def test_another_process_at_its_address_does_not_end_it_and_its_folder_at_another_one_does() -> None:
    kept = record()
    kept.on_view(view(lone_id("X"), X="another"), 1)
    assert awaited(kept) == ["x"]
    assert kept.kept_elsewhere() == []
    kept.on_view(view(lone_id("Z"), Z="x"), 2)
    assert awaited(kept) == []
    kept.learn((Departure(X, 240, HowGone.CUT_OFF, OLD, "x"),), 3)  # of one that does not know yet
    assert awaited(kept) == []


def test_it_is_the_last_that_is_forgotten_where_too_many_have_gone() -> None:
    kept = record()
    for number in range(REMEMBERED + 10):
        kept.note(MemberId(f"10.0.0.1:{number + 1_000}/1"), HowGone.CUT_OFF, OLD, 1)
    assert awaited(kept) == ["x"]


def test_whom_an_operator_has_forgotten_others_forget_too_and_nobody_brings_it_back() -> None:
    kept, other = record(), record()
    assert kept.forget(address("Y"), 1) == []
    assert kept.forget(address("X"), 1) == [X]
    assert awaited(kept) == []
    other.learn(kept.to_send(), 2)
    assert awaited(other) == []
    kept.learn(record().to_send(), 3)
    assert awaited(kept) == []


# --- in a cluster ----------------------------------------------------------------------------------------------------


def three() -> Cluster:
    c = Cluster(has_folders=True, seeds="A", partition_count=3, backup_count=1)
    for name in "ABC":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=("AB", "BC", "CA"))
    return c


def awaited_by(c: Cluster, name: str) -> list[str]:
    return [each.member for each in c.nodes[name].membership.gone.departures.kept]


def test_all_members_await_one_that_crashed_also_after_the_cluster_was_off() -> None:
    c = three()
    gone = c.id("C")
    c.crash("C")
    c.advance(10_000)
    assert [awaited_by(c, name) for name in "AB"] == [[gone], [gone]]
    c.crash("AB")
    for name in "BA":
        c.start(name, seeds="AB")
    c.advance(15_000)
    assert [awaited_by(c, name) for name in "AB"] == [[gone], [gone]]
    c.start("C", seeds="AB")
    c.advance(10_000)
    assert [awaited_by(c, name) for name in "ABC"] == [[], [], []]


def test_one_that_has_stopped_is_not_told_as_one_that_perhaps_lives() -> None:
    c = three()
    gone = c.ids("BC")
    for name in "BC":
        c.leave(name, keeps=True)
    c.advance(8_000)
    assert awaited_by(c, "A") == [*gone]
    assert [c.nodes["A"]._departures.of(member).may_live for member in gone] == [False, False]
    assert not c.table("A").losses.away


def test_nobody_awaits_lite_members_that_have_stopped() -> None:
    c = three()
    c.start("D", seeds="A", lite=True)
    c.advance(1_500)
    c.leave("D", keeps=True)
    c.advance(8_000)
    assert "D" not in c.nodes
    assert [awaited_by(c, name) for name in "ABC"] == [[], [], []]
    assert not c.nodes["A"].membership.gone.departures.awaited(99, c.now)


def test_nobody_awaits_one_that_an_operator_has_let_go() -> None:
    c = three()
    asked = c.ask("C", m.LeaveCluster)
    c.advance(8_000)
    assert c.is_done(asked)
    assert "C" not in c.nodes
    assert [awaited_by(c, name) for name in "AB"] == [[], []]
    assert not c.table("A").dormant


def test_an_operator_forgets_whom_the_cluster_awaits_and_nobody_else() -> None:
    c = three()
    c.crash("C")
    c.advance(10_000)
    refused = c.ask("A", m.ForgetMember, address("B"))
    assert f"no member of {address('B')} is awaited" in c.reply(refused, m.ErrorReply).text
    elsewhere = c.ask("B", m.ForgetMember, address("C"))
    assert "only the master" in c.reply(elsewhere, m.ErrorReply).text
    asked = c.ask("A", m.ForgetMember, address("C"))
    c.advance(3_000)
    assert c.is_done(asked)
    assert len(c.events_of("A", MemberForgotten)) == 1
    assert [awaited_by(c, name) for name in "AB"] == [[], []]


def test_one_for_which_partitions_wait_is_not_forgotten_before_they_are_given_up() -> None:
    c = Cluster(has_folders=True, seeds="A", partition_count=2, backup_count=0)
    for name in "AB":
        c.start(name)
        c.advance(1_500)
    c.assign(rows=("A", "B"))
    c.crash("B")
    c.advance(10_000)
    refused = c.ask("A", m.ForgetMember, address("B"))
    assert "1 partition waits for" in c.reply(refused, m.ErrorReply).text


# --- the operator's stop ----------------------------------------------------------------------------------------------


@pytest.mark.rows("DU-58")
def test_an_operator_stops_all_at_once_and_each_keeps_its_vote() -> None:
    c = three()
    elsewhere = c.ask("B", m.StopCluster)
    assert "only the master stops the cluster" in c.reply(elsewhere, m.ErrorReply).text
    asked = c.ask("A", m.StopCluster)
    c.advance(3_000)
    assert c.is_done(asked)
    assert not c.nodes
    for name in "CB":
        c.start(name, seeds="BC")
    c.advance(40_000)
    assert [sorted(each) for each in c.views_of("BC")] == [["B", "C"], ["B", "C"]]
    assert c.nodes["C"].membership.has_majority


@pytest.mark.rows("DU-58")
def test_a_cluster_of_which_a_member_has_no_folder_is_not_stopped_at_once() -> None:
    c = Cluster(seeds="A", partition_count=1)
    c.start("A")
    c.advance(1_500)
    refused = c.ask("A", m.StopCluster)
    assert "no folder on a working disk" in c.reply(refused, m.ErrorReply).text
    assert "A" in c.nodes
