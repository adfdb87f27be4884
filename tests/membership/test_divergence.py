"""Views that went apart: who goes its own way, who comes back as a new member, and that no minority topples the rest."""

import pytest

from phalanx.common.view import MembersView
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import StaleMessageIgnored, ViewsDiverged
from phalanx.wire.view_events import Ejected, ViewInstalled
from support.harness import KEY, Cluster, Lone, lone_id, lone_view

VALUE = b"\0\0\0\0v"


def updates(c: Cluster, name: str) -> list[str]:
    return ["".join(member[0] for member in event.members) for event in c.events_of(name, ViewInstalled)]


@pytest.mark.rows("CS-42", "CS-44")
def test_a_member_that_was_taken_for_dead_learns_it_from_the_masters_answer_to_its_heartbeat() -> None:
    c = Cluster("ABC")
    c.hang("C")
    c.advance(11_000)
    assert c.views_of("AB") == ["AB", "AB"]
    c.resume("C")
    c.hold("AB", "C")
    c.advance(2_000)
    told = c.pending("A", "C", m.ExplicitSuspicion)
    assert [(each.about_version, each.view.version) for each in told[:1]] == [(3, 4)]
    assert not c.pending("B", "C", m.ExplicitSuspicion), "only the master answers an unknown member"
    c.release()
    c.settle()
    assert c.finished["C"].rejoin == c.ids("AB")
    assert [event.rule for event in c.events_of("C", Ejected)] == ["CS-42 others went on without this member"]
    c.rejoin("C")
    c.settle()
    assert c.views_of("ABC") == ["ABC"] * 3
    assert c.id("C") == "C:5701/C2"


@pytest.mark.rows("CS-45", "CS-55")
def test_an_update_from_a_member_that_is_not_the_master_is_refused_and_its_sender_told() -> None:
    c = Cluster("ABC")
    claimed = MembersView(9, c.id("C"), c.ids("CB"))
    c.hold_all()
    c.say("C", "B", m.MembersUpdate(claimed))
    assert c.version("B") == 3
    assert c.master("B") == "A"
    assert c.pending("B", "C") == [m.ExplicitSuspicion(9, c.id("C"), c.nodes["B"].membership.view)]


@pytest.mark.rows("PX-32")
@pytest.mark.parametrize(
    ("newer", "told"), [("BEDC", True), ("BDEC", True), ("BCDE", False), ("BCD", False), ("BCDEF", False)]
)
def test_a_list_of_another_order_of_age_is_refused_and_its_maker_told(newer: str, told: bool) -> None:
    """PX-32: B, which D may follow when it suspects A and C, may have a list of another history."""
    d = Lone("D", "ABCDE", 4)
    d.refuse("AC", hearing="BE")
    d.sent.clear()
    d.hear("B", m.MembersUpdate(lone_view(newer, 9)))
    assert d.view() == ("ABCDE" if told else newer)
    expected = [m.ExplicitSuspicion(9, lone_id("B"), d.membership.view)] if told else []
    assert d.sent_to("B", m.ExplicitSuspicion) == expected
    assert [event.rule for event in d.events_of(ViewsDiverged)] == ["PX-32"] * told


@pytest.mark.rows("PX-32")
def test_a_member_that_has_agreed_with_a_claim_takes_no_list_of_another_order_of_age_either() -> None:
    """PX-32: the claimer is its master by now; it removes who tells it so."""
    d = Lone("D", "ABCDE", 4)
    d.refuse("AC", hearing="BE")
    d.hear("B", m.MastershipClaim(1))
    d.sent.clear()
    d.hear("B", m.MembersUpdate(lone_view("BED", 9)))
    assert d.view() == "ABCDE"
    assert len(d.sent_to("B", m.ExplicitSuspicion)) == 1
    assert d.sent_to("B", m.MembersAck) == []


@pytest.mark.rows("CS-45")
def test_a_master_that_was_left_for_a_claimer_is_told_so_by_those_that_left_it() -> None:
    """A is alive, but B and C could not hear it. C agreed with B's claim; then an update of A comes through."""
    c = Cluster("ABC")
    c.hold("A", "BC")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.ClaimAnswer)
    c.advance(10_500)
    assert c.nodes["B"].membership.is_claiming
    assert c.master("C") == "B"
    c.say("A", "C", m.MembersUpdate(MembersView(4, c.id("A"), c.ids("ABC"))))
    assert c.master("C") == "B"
    assert c.version("C") == 3
    assert c.pending("C", "A", m.ExplicitSuspicion)[-1].about_version == 4


@pytest.mark.rows("CS-40")
def test_who_is_told_to_go_its_own_way_suspects_the_sender_and_carries_on() -> None:
    c = Cluster("ABCD")
    c.hold("D", "C")
    view = c.nodes["C"].membership.view
    assert view is not None
    c.say("D", "C", m.ExplicitSuspicion(view.version, view.maker, MembersView(9, c.id("D"), c.ids("D"))))
    assert c.suspects("C") == "", "first it is to be seen who else speaks"
    c.advance(2_500)
    assert c.suspects("C") == "D"
    assert c.view("C") == "ABCD"
    assert c.master("C") == "A"


@pytest.mark.rows("CS-40", "CS-35")
def test_a_master_that_is_told_to_go_its_own_way_removes_the_sender() -> None:
    c = Cluster("ABCD")
    c.hold("D", "A")
    view = c.nodes["A"].membership.view
    assert view is not None
    c.say("D", "A", m.ExplicitSuspicion(view.version, view.maker, MembersView(9, c.id("D"), c.ids("D"))))
    c.advance(2_500)
    assert c.views_of("ABC") == ["ABC"] * 3


@pytest.mark.rows("CS-40")
def test_an_explicit_suspicion_about_an_earlier_view_is_ignored() -> None:
    """A delayed message must not split a healthy cluster (CHECKLIST A.6-21)."""
    c = Cluster("ABC")
    view = c.nodes["A"].membership.view
    assert view is not None
    late = m.ExplicitSuspicion(view.version - 1, view.maker, MembersView(9, c.id("C"), c.ids("C")))
    other = m.ExplicitSuspicion(view.version, c.id("C"), MembersView(9, c.id("C"), c.ids("C")))
    for message in (late, other):
        for name in "AB":
            c.say("C", name, message)
    assert c.views_of("ABC") == ["ABC"] * 3
    assert [c.suspects(name) for name in "ABC"] == ["", "", ""]
    assert len(c.events_of("A", StaleMessageIgnored)) == 2


def test_an_explicit_suspicion_of_a_stranger_is_ignored() -> None:
    c = Cluster("ABC")
    view = c.nodes["B"].membership.view
    assert view is not None
    c.crash("C")
    c.start("C")
    c.say("C", "B", m.ExplicitSuspicion(view.version, view.maker, MembersView(9, c.id("C"), c.ids("C"))))
    assert c.view("B") == "ABC"
    assert c.suspects("B") == ""


def test_one_member_that_went_its_own_way_does_not_topple_the_others() -> None:
    """C alone could not hear the others, claims, and its links heal before the master has noticed.

    ABC => C | ABC: C's view has a greater version than A's, but C is one of three. A and B go on, without C.
    """
    c = Cluster("ABC")
    c.assign(rows=["AB"])
    write = c.put("A", KEY, VALUE)
    c.settle()
    assert c.is_done(write)
    c.hold("AB", "C")
    c.advance(10_500)
    assert c.views_of("ABC") == ["ABC", "ABC", "C"]
    c.release()
    c.advance(3_000)
    assert "A" not in c.finished
    assert "B" not in c.finished
    assert c.views_of("AB") == ["AB", "AB"]
    assert c.get("A", KEY) == VALUE


@pytest.mark.parametrize("names", ["AB", "ABC", "ABCDE"])
def test_a_master_that_did_not_run_for_a_while_comes_back_to_those_that_went_on(names: str) -> None:
    c = Cluster(names)
    c.assign()
    c.hang("A")
    c.advance(15_000)
    others = names[1:]
    assert c.views_of(others) == [others] * len(others)
    c.resume("A")
    c.advance(2_000)
    assert c.finished["A"].rejoin == c.ids(others)
    c.rejoin("A")
    c.settle()
    assert c.views_of(names) == [others + "A"] * len(names)


def test_a_member_that_only_the_dead_master_knew_comes_back_through_the_others() -> None:
    """J was admitted by A, which told nobody else in time and died. B goes on without J, with the same version."""
    c = Cluster("AB")
    c.hold("A", "B")
    c.start("J")
    c.advance(2_500)
    assert c.view("J") == "ABJ"
    c.crash("A")
    c.release()
    c.advance(5_000)
    assert c.view("B") == "B"
    assert "J" not in c.nodes, "J must not stay behind as a cluster of its own"
    c.rejoin("J")
    c.settle()
    assert c.views_of("BJ") == ["BJ", "BJ"]


@pytest.mark.parametrize("late", ["C", "D", "E"])
def test_a_member_that_a_claimer_left_out_comes_back(late: str) -> None:
    c = Cluster("ABCDE", claim_timeout_ms=3_000)
    c.swallow = lambda sender, receiver, message: sender == late and isinstance(message, m.ClaimAnswer)
    c.crash("A")
    c.advance(6_000)
    c.swallow = lambda *_: False
    c.advance(3_000)
    assert late in c.finished
    assert late not in c.view("B")
    c.rejoin(late)
    c.advance(2_000)
    everybody = c.view("B")
    assert sorted(everybody) == ["B", "C", "D", "E"]
    assert c.views_of("BCDE") == [everybody] * 4


def test_a_claimer_that_comes_too_late_comes_back_whatever_its_views_version() -> None:
    """B had heard of a newer view than C and D, but could not take part when they went on without it."""
    c = Cluster("ABCD")
    c.hold("A", "CD")
    c.start("E")
    c.advance(2_500)
    assert [c.version(name) for name in "BCD"] == [5, 4, 4]
    c.hang("B")
    c.crash("AE")
    c.release()
    c.advance(15_000)
    assert c.views_of("CD") == ["CD", "CD"]
    c.resume("B")
    c.advance(15_000)
    assert "B" not in c.nodes
    c.rejoin("B")
    c.settle()
    assert c.views_of("CDB") == ["CDB"] * 3
