"""Versioned member lists: in whatever order they come, everybody ends with the same list and nobody goes back."""

import itertools

import pytest

from phalanx.common.config import NodeConfig
from phalanx.wire import messages as m
from phalanx.wire.view_events import Ejected, MemberRemoved, OutdatedViewHealed, ViewInstalled
from support.harness import Cluster, Lone, lone_id, lone_view


def update(members: str, version: int, maker: str = "A") -> m.MembersUpdate:
    return m.MembersUpdate(lone_view(members, version, maker=maker))


@pytest.mark.rows("CS-01", "CS-02", "CS-16")
def test_a_late_periodic_publication_does_not_bring_back_a_member_that_has_left() -> None:
    c = Cluster("ABC", publish_interval_ms=5_000)
    c.hold("A", "C")
    c.advance(5_000)
    late = c.pending("A", "C", m.MembersUpdate)
    assert late
    c.crash("B")
    c.advance(1_000)
    assert c.view("A") == "AC"
    c.say("A", "C", c.pending("A", "C", m.MembersUpdate)[-1])
    assert c.view("C") == "AC"
    for message in late:
        c.say("A", "C", message)
    assert c.view("C") == "AC"
    c.release()
    c.join("D")
    assert c.views_of("ACD") == ["ACD"] * 3


@pytest.mark.rows("CS-03", "CS-18", "EL-32", "EL-35", "EL-31")
def test_a_missed_removal_is_learnt_from_the_next_list() -> None:
    c = Cluster("ABC")
    lost: list[m.Message] = []

    def first_update(sender: str, receiver: str, message: m.Message) -> bool:
        if isinstance(message, m.MembersUpdate) and receiver == "C" and not lost:
            lost.append(message)
            return True
        return False

    c.advance(2_000)
    c.swallow = first_update
    c.crash("B")
    c.advance(1_200)
    assert lost
    assert c.view("C") == "AC", "by the version in C's heartbeat, long before any timeout"
    healed = c.events_of("A", OutdatedViewHealed)
    assert [(event.member_behind, event.its_version, event.view_version) for event in healed] == [(c.id("C"), 3, 4)]


@pytest.mark.rows("EL-32", "EL-33")
def test_only_the_master_heals_and_only_the_member_that_is_behind() -> None:
    b = Lone("B", "ABC", 3)
    b.hear("C", m.Heartbeat(2, lone_id("A")))
    assert b.sent_of(m.MembersUpdate) == []
    c = Cluster("ABC")
    c.hold_all()
    c.say("C", "A", m.Heartbeat(2, c.id("A")))
    assert c.pending("A", "C") == [c.nodes["A"].membership.publisher.members_update()]
    assert c.pending("A", "B") == []
    c.say("B", "A", m.Heartbeat(3, c.id("A")))
    assert c.pending("A", "B") == []


@pytest.mark.rows("CS-14", "CS-15", "CS-16", "CS-13", "PD-09")
def test_a_list_is_installed_only_if_it_is_newer() -> None:
    b = Lone("B", "ABC", 3)
    for message in (update("AB", 2), update("ABCD", 3), update("ABC", 3)):
        b.hear("A", message)
        assert b.membership.view == lone_view("ABC", 3)
    b.hear("A", update("ABCD", 3, maker="C"))
    assert b.membership.view == lone_view("ABC", 3), "nor another master's of the same version"
    b.hear("A", update("ABD", 5))
    assert b.membership.view == lone_view("ABD", 5)
    b.hear("A", update("ABCD", 4))
    assert b.membership.view == lone_view("ABD", 5)
    acknowledged = [message.version for message in b.sent_to("A", m.MembersAck)]
    assert acknowledged == [3, 3, 3, 3, 5, 5], "each is acknowledged with what is installed"


@pytest.mark.rows("CS-17", "CS-21")
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_any_order_of_delivery_ends_in_the_same_list(order: tuple[int, ...]) -> None:
    """Two joins, a removal and a periodic publication, in every order."""
    sent = [update("ABCD", 4), update("ABCDE", 5), update("ABCDE", 5), update("ABCE", 6)]
    b = Lone("B", "ABC", 3)
    for index in order:
        b.hear("A", sent[index])
    assert b.membership.view == lone_view("ABCE", 6)
    versions = [event.view_version for event in b.events_of(ViewInstalled)]
    assert versions == sorted(set(versions))


@pytest.mark.rows("CS-24")
def test_no_list_is_installed_that_does_not_contain_the_installer() -> None:
    b = Lone("B", "ABC", 3)
    b.hear("A", update("AC", 4))
    assert b.finished is not None
    assert b.finished.rejoin == (lone_id("A"), lone_id("C"))
    assert [event.rule for event in b.events_of(Ejected)] == ["CS-24"]


@pytest.mark.rows("CS-22", "CS-23")
def test_a_member_gets_each_list_that_names_it_or_the_next_leaves_it_out() -> None:
    """C joins; B hears nothing of it. Either B is told, or A's next list is without B."""
    c = Cluster("AB")
    c.swallow = lambda sender, receiver, message: receiver == "B" and isinstance(message, m.MembersUpdate)
    c.start("C")
    c.advance(3_000)
    assert c.views_of("AC") == ["ABC", "ABC"]
    assert c.view("B") == "AB"
    c.swallow = lambda *_: False
    c.advance(1_100)
    assert c.view("B") == "ABC"
    d = Cluster("AB")
    d.hang("B")
    d.start("C")
    d.advance(12_000)
    assert d.views_of("AC") == ["AC", "AC"]


@pytest.mark.rows("CS-19")
def test_the_master_publishes_its_list_now_and_then_although_nothing_has_changed() -> None:
    c = Cluster("ABC", publish_interval_ms=7_000)
    c.advance(7_000)
    before = len(c.events)
    c.hold("A", "BC")
    c.advance(7_100)
    assert [message.view.version for message in c.pending("A", "B", m.MembersUpdate)] == [3]
    assert [message.view.version for message in c.pending("A", "C", m.MembersUpdate)] == [3]
    assert c.pending("B", "A", m.MembersUpdate) == c.pending("B", "C", m.MembersUpdate) == []
    assert len(c.events) == before


@pytest.mark.rows("CS-20", "DL-04")
def test_the_publication_interval_is_a_minute_by_default() -> None:
    assert NodeConfig().publish_interval_ms == 60_000


@pytest.mark.rows("CS-08", "CS-13", "CS-36", "EL-38")
def test_a_member_that_is_not_the_master_removes_nobody() -> None:
    b = Lone("B", "ABCD", 4)
    b.refuse("D", hearing="AC")
    b.advance(30_000, hearing="AC")
    assert b.view() == "ABCD"
    assert b.sent_of(m.MembersUpdate) == []


@pytest.mark.rows("CS-11", "CS-35", "CS-18", "EL-43")
def test_the_master_removes_whom_it_suspects_at_once_and_publishes_the_whole_list() -> None:
    c = Cluster("ABCD")
    c.advance(2_000)
    c.crash("BD")
    c.hold("A", "C")
    c.advance(700)
    published = [message.view for message in c.pending("A", "C", m.MembersUpdate)]
    assert published[-1].members == c.ids("AC")
    assert [view.version for view in published] == list(range(5, 5 + len(published)))
    removed = c.events_of("A", MemberRemoved)
    assert {event.removed for event in removed} == set(c.ids("BD"))
    assert all(event.rule == "CS-35" and "refused" in event.reason for event in removed)


@pytest.mark.rows("CS-11", "CS-35", "EL-43")
def test_a_removal_goes_to_each_remaining_member_at_once() -> None:
    c = Cluster("ABCD")
    c.advance(2_000)
    c.hold("A", "CD")
    c.crash("B")
    while c.view("A") == "ABCD":
        c.advance(10)
    for member in "CD":
        assert [message.view.members for message in c.pending("A", member, m.MembersUpdate)] == [c.ids("ACD")]


@pytest.mark.rows("EL-02", "CS-08")
def test_only_the_coordinator_decides_who_is_a_member_and_where_the_partitions_are() -> None:
    """A admits, removes and assigns; after it B does, and nobody else ever."""
    c = Cluster("ABC", partition_count=4)
    deciders: dict[type, set[str]] = {}

    def listen(sender: str, receiver: str, message: m.Message) -> bool:
        deciders.setdefault(type(message), set()).add(sender)
        return False

    c.swallow = listen
    decisions = (m.MembersUpdate, m.TableUpdate, m.MigrationOrder, m.MigrationCommit)
    c.assign()
    c.join("D")
    c.crash("C")
    c.advance(3_000)
    assert c.views_of("ABD") == ["ABD"] * 3
    assert [deciders[kind] for kind in decisions] == [{"A"}] * 4
    assert deciders[m.JoinResponse] == {"A"}
    deciders.clear()
    c.crash("A")
    c.advance(3_000)
    assert c.views_of("BD") == ["BD"] * 2
    assert [deciders[kind] for kind in decisions[:2]] == [{"B"}] * 2


@pytest.mark.rows("EL-42")
def test_without_a_failed_member_nothing_is_published() -> None:
    c = Cluster("ABC", publish_interval_ms=10**9)
    c.advance(2_000)
    version, before = c.version("A"), len(c.events)
    c.advance(100_000)
    assert c.version("A") == version
    assert len(c.events) == before


@pytest.mark.rows("CS-26")
def test_two_sides_of_a_cut_each_go_on_by_themselves() -> None:
    c = Cluster("ABCDE")
    c.cut("AB", "CDE")
    c.advance(12_000)
    assert c.views_of("ABCDE") == ["AB", "AB", "CDE", "CDE", "CDE"]
    assert [c.master(name) for name in "ABCDE"] == list("AACCC")


@pytest.mark.rows("EL-47")
def test_the_example_of_five_nodes_by_age() -> None:
    """athens, delphi, euphesus | byzantium, cyrene: two clusters, led by athens and byzantium."""
    c = Cluster("ABCDE")
    c.cut("ADE", "BC")
    c.advance(12_000)
    assert c.views_of("ADE") == ["ADE"] * 3
    assert c.views_of("BC") == ["BC"] * 2
    assert [c.master(name) for name in "BC"] == ["B", "B"]


@pytest.mark.rows("CS-25", "CS-21")
@pytest.mark.parametrize("missed", ["", "C", "CD", "D"])
def test_versions_go_on_over_a_change_of_master(missed: str) -> None:
    """Whoever has the newest list of the dead master: the next one is newer."""
    c = Cluster("ABCD")
    c.hold("A", missed)
    c.start("E")
    c.advance(1_000)
    c.crash("A")
    c.release()
    c.advance(5_000)
    for name in c.nodes:
        versions = [event.view_version for event in c.events_of(name, ViewInstalled)]
        assert versions == sorted(set(versions)), name
    assert len({c.version(name) for name in "BCD"}) == 1
    assert len(set(c.views_of("BCD"))) == 1
    assert c.version("B") > 5
    assert c.views_of("BCD") == ["BCD" if missed else "BCDE"] * 3


def test_a_claimer_takes_no_list_that_is_said_to_be_its_own() -> None:
    """Nobody passes on to a member what it made itself: it would succeed to a mastership that it only claims."""
    b = Lone("B", "ABC", 3)
    b.refuse("A", hearing="C")
    assert b.membership.is_claiming
    b.hear("C", update("BC", 4, maker="B"))
    assert b.membership.is_claiming
    assert b.view() == "ABC"
