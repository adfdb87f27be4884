"""Explicit suspicion: its four cases, the complaint of a slave and the master's answers to it (CS-40 to CS-49)."""

import pytest

from phalanx.common.versions import this_release
from phalanx.common.view import MembersView
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ComplaintJudged, ComplaintSent, MemberSuspected
from support.harness import Cluster, Lone, lone_id, lone_view


@pytest.mark.rows("CS-48", "CS-47")
def test_a_slave_that_hears_a_stranger_complains_to_its_master_and_says_nothing_to_the_stranger() -> None:
    c = Lone("C", "ABC", 5)
    c.hear("Z", m.Heartbeat(9, lone_id("Y")))
    assert c.sent == [("A", m.Complaint(5, lone_id("A"), lone_id("Z"), 9, lone_id("Y")))]
    assert c.events_of(ComplaintSent)[0].rule == "CS-48"


def fitting(role: str) -> Lone:
    """A member of [A,B,C] version 5 in this role."""
    one = Lone({"slave": "C", "claimer": "B", "master": "B"}[role], "ABC", 5)
    if role != "slave":
        one.refuse("A", hearing="C")
    if role == "master":
        one.hear("C", m.ClaimAnswer(1, True, lone_view("ABC", 5)))
    assert (one.membership.is_master, one.membership.is_claiming) == (role == "master", role == "claimer")
    one.sent.clear()
    return one


FOREIGN = lone_view("YZ", 9)
SAID: dict[str, m.Message] = {
    "an older version": m.Heartbeat(2, lone_id("A")),
    "a newer version": m.Heartbeat(99, lone_id("A")),
    "a confirmation": m.MasterConfirmation(2, lone_id("A"), -1),
    "a join request": m.JoinRequest(1, lone_id("Z"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release()),
    "one for another cluster": m.JoinRequest(
        1, lone_id("Z"), "other", m.OLDEST_PROTOCOL_VERSION, 1, release=this_release()
    ),
    "a redirect": m.JoinRedirect(1, lone_id("Z")),
    "a refusal": m.JoinRefused(1, True, "not now", True),
    "a list of mine": m.MembersUpdate(lone_view("ABC", 5)),
    "a foreign list": m.MembersUpdate(FOREIGN),
    "an acknowledgement": m.MembersAck(2),
    "explicit suspicion": m.ExplicitSuspicion(2, lone_id("A"), FOREIGN),
    "a claim": m.MastershipClaim(7),
    "an agreement": m.ClaimAnswer(1, True, lone_view("ABC", 5)),
    "no agreement": m.ClaimAnswer(1, False, lone_view("ABC", 5)),
    "a look whether it lives": m.LifeProbe(2, lone_id("A")),
    "a sign of life": m.LifeAnswer(),
    "a report": m.SuspicionReport(lone_id("A"), "silent"),
    "a wish to leave": m.LeaveRequest(),
    "another side": m.MergeProbe("phalanx", m.PROTOCOL_VERSION, 1, FOREIGN, False),
    "an order to merge": m.MergeOrder(FOREIGN),
}
ONLY = {
    ("master", "Z", "a confirmation"),
    ("master", "Z", "an older version"),
    ("master", "Z", "a newer version"),
    ("master", "Z", "a look whether it lives"),
    *((role, sender, "a foreign list") for role in ("slave", "claimer", "master") for sender in "CZ"),
    *((role, sender, "a list of mine") for role in ("master",) for sender in "CZ"),
}
"""The cases 1 to 3 (case 4 needs a joiner, below): who, told what, by whom, says explicit suspicion to the sender."""


@pytest.mark.rows("CS-47")
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("sender", "CZ")
@pytest.mark.parametrize("role", ["slave", "claimer", "master"])
def test_explicit_suspicion_starts_in_its_cases_and_in_no_other(role: str, sender: str, said: str) -> None:
    one = fitting(role)
    speaker = "B" if (role, sender) == ("slave", "C") else sender
    one.hear(speaker, SAID[said])
    told = [to for to, _ in one.sent_of(m.ExplicitSuspicion)]
    assert told == ([speaker] if (role, sender, said) in ONLY else [])


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
    assert c.events_of("A", ComplaintJudged)[0].suspicion_sent_to == c.ids(told)
    assert bool(c.pending("A", complainer, m.MembersUpdate)) == (not told), "both are members: one has an old list"


@pytest.mark.rows("CS-49")
def test_only_the_master_answers_a_complaint() -> None:
    c = Cluster("ABC")
    c.hold_all()
    c.say("C", "B", m.Complaint(3, c.id("A"), lone_id("Z"), 7, lone_id("Z")))
    assert c.pending("B", "C") == []
    assert not c.events_of("B", ComplaintJudged)


@pytest.mark.rows("CS-48", "CS-49", "CS-42")
def test_a_member_that_lost_its_link_to_the_master_alone_hears_by_the_complaint_of_another() -> None:
    """{A,B,C} => {A,B} | {C}: A removed C and cannot reach it, but B still hears C's heartbeats."""
    c = Cluster("ABC")
    c.hold("C", "A")
    c.hold("A", "C")
    c.advance(10_500)
    assert c.view("A") == "AB"
    assert c.events_of("B", ComplaintSent)
    assert c.id("C") in c.events_of("A", ComplaintJudged)[0].suspicion_sent_to
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
    assert c.events_of("A", MemberSuspected)[0].rule == "CS-40"
