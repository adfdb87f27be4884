"""Explicit suspicion: its four cases, the complaint of a slave and the master's answers to it (CS-40 to CS-49)."""

import pytest

from harness import Cluster, Lone, lone_id, lone_view
from phalanx.common.view import MembersView
from phalanx.wire import events
from phalanx.wire import messages as m


@pytest.mark.rows("CS-48", "CS-47")
def test_a_slave_that_hears_a_stranger_complains_to_its_master_and_says_nothing_to_the_stranger() -> None:
    c = Lone("C", "ABC", 5)
    c.hear("Z", m.Heartbeat(9, lone_id("Y")))
    assert c.sent == [("A", m.Complaint(5, lone_id("A"), lone_id("Z"), 9, lone_id("Y")))]
    assert c.events_of(events.ComplaintSent)[0].rule == "CS-48"


@pytest.mark.rows("CS-48", "CS-39")
def test_a_slave_does_not_complain_to_a_master_that_it_suspects() -> None:
    c = Lone("C", "ABC", 5)
    c.refuse("A", hearing="B")
    c.sent.clear()
    c.hear("Z", m.Heartbeat(9, lone_id("Y")))
    assert c.sent == []


@pytest.mark.rows("CS-49")
@pytest.mark.parametrize(
    ("complainer", "complainee", "told"), [("B", "Z", "Z"), ("Y", "B", "Y"), ("Y", "Z", "YZ"), ("B", "C", "")]
)
def test_the_master_tells_whoever_of_the_two_is_not_in_its_list(complainer: str, complainee: str, told: str) -> None:
    c = Cluster("ABC")
    c.start("Y", seeds="")
    c.start("Z", seeds="")
    c.hold_all()
    complaint = m.Complaint(6, c.id(complainer), c.id(complainee), 7, c.id("Z"))
    c.say(complainer, "A", complaint)
    about = {complainer: (6, c.id(complainer)), complainee: (7, c.id("Z"))}
    for name in (complainer, complainee):
        sent = c.pending("A", name, m.ExplicitSuspicion)
        assert [(each.about_version, each.about_maker) for each in sent] == ([about[name]] if name in told else [])
    assert c.events_of("A", events.ComplaintJudged)[0].suspicion_sent_to == c.ids(told)
    assert bool(c.pending("A", complainer, m.MembersUpdate)) == (not told), "both are members: one has an old list"


@pytest.mark.rows("CS-49")
def test_only_the_master_answers_a_complaint() -> None:
    c = Cluster("ABC")
    c.hold_all()
    c.say("C", "B", m.Complaint(3, c.id("A"), lone_id("Z"), 7, lone_id("Z")))
    assert c.pending("B", "C") == []
    assert not c.events_of("B", events.ComplaintJudged)


@pytest.mark.rows("CS-48", "CS-49", "CS-42")
def test_a_member_that_lost_its_link_to_the_master_alone_hears_by_the_complaint_of_another() -> None:
    """{A,B,C} => {A,B} | {C}: A removed C and cannot reach it, but B still hears C's heartbeats."""
    c = Cluster("ABC")
    c.hold("C", "A")
    c.hold("A", "C")
    c.advance(10_500)
    assert c.view("A") == "AB"
    assert c.events_of("B", events.ComplaintSent)
    assert c.id("C") in c.events_of("A", events.ComplaintJudged)[0].suspicion_sent_to
    c.release("A", "C")
    c.settle()
    assert c.finished["C"].rejoin == c.ids("AB")


@pytest.mark.rows("CS-46")
def test_a_joiner_tells_whoever_answers_without_being_the_master_of_the_list() -> None:
    c = Cluster("AB")
    c.hold_all()
    c.start("J", seeds="A")
    c.hold("AB", "J")
    view = MembersView(3, c.id("A"), c.ids("ABJ"))
    c.say("B", "J", m.JoinResponse(1, view))
    assert c.view("J") == ""
    assert c.pending("J", "B") == [m.ExplicitSuspicion(3, c.id("A"), None)]
    c.say("A", "J", m.JoinResponse(1, view))
    assert c.view("J") == "ABJ"


@pytest.mark.rows("CS-45", "CS-46")
def test_a_member_that_two_clusters_admitted_tells_the_second_so() -> None:
    j = Lone("J", "AJ", 2)
    j.hear("T", m.JoinResponse(1, lone_view("TJ", 2)))
    assert j.membership.view == lone_view("AJ", 2)
    told = j.sent_to("T", m.ExplicitSuspicion)
    assert [(each.about_version, each.about_maker) for each in told] == [(2, lone_id("T"))]


@pytest.mark.rows("CS-40", "CS-46")
def test_the_master_of_the_second_removes_the_member_that_told_it_so() -> None:
    c = Cluster("AB")
    view = c.nodes["A"].membership.view
    assert view is not None
    c.hold("A", "B")
    c.say("B", "A", m.ExplicitSuspicion(view.version, view.maker, None))
    assert c.view("A") == "A"
    assert c.events_of("A", events.MemberSuspected)[0].rule == "CS-40"
