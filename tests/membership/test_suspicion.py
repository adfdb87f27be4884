"""Whom a member suspects, and what takes a suspicion back. Local knowledge only (docs/protocol/failure-detection.md)."""

import pytest

from phalanx.common.config import NodeConfig
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp
from phalanx.membership.detect.connection_evidence import ConnectionEvidence
from phalanx.membership.detect.deadline_detector import DeadlineFailureDetector
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import MemberSuspected, SuspicionRemoved
from support.harness import Cluster, Lone, address, lone_id, lone_view

A, B, C, D = (lone_id(name) for name in "ABCD")


def suspects(lone: Lone) -> str:
    return "".join(sorted(member[0] for member in lone.membership.suspicions.suspected))


@pytest.mark.rows("CS-31", "CS-33", "CS-36", "PD-13", "EL-41")
def test_silence_beyond_the_timeout_is_suspicious_and_on_a_slave_nothing_more() -> None:
    b = Lone("B", "ABC", 3)
    b.advance(9_900, hearing="A")
    assert suspects(b) == ""
    b.advance(200, hearing="A")
    assert suspects(b) == "C"
    assert b.view() == "ABC"
    event = b.events_of(MemberSuspected)[0]
    assert (event.suspect, event.rule) == (C, "CS-33 silence")
    assert "the limit is 10000 ms" in event.reason
    b.advance(20_000, hearing="A")
    assert len(b.events_of(MemberSuspected)) == 1, "told once"


@pytest.mark.rows("CS-33")
def test_a_connection_that_stays_refused_is_suspicious_long_before_silence_is() -> None:
    b = Lone("B", "ABC", 3)
    b.refuse("C", hearing="A")
    assert suspects(b) == "C"
    assert b.events_of(MemberSuspected)[0].rule == "CS-33 connection"


def test_a_connection_that_breaks_is_reopened_and_no_evidence() -> None:
    b = Lone("B", "ABC", 3)
    b.sent.clear()
    b.feed(LinkLost(C))
    assert [type(message) for message in b.sent_to("C")] == [m.Heartbeat], "to open it again"
    b.advance(5_000, hearing="A")
    assert suspects(b) == ""


def test_a_connection_that_is_refused_for_a_moment_is_no_evidence() -> None:
    b = Lone("B", "ABC", 3)
    b.feed(LinkLost(C))
    b.feed(LinkRefused(C, "connection refused"))
    b.advance(120, hearing="A")
    assert b.sent_to("C", m.Heartbeat)[-1], "it is tried again"
    b.feed(LinkRefused(C, "connection refused"))
    b.advance(100, hearing="A")
    b.feed(LinkUp(C))
    b.advance(5_000, hearing="A")
    assert suspects(b) == ""


def test_a_member_that_speaks_is_not_refusing() -> None:
    b = Lone("B", "ABC", 3)
    b.feed(LinkLost(C))
    for _ in range(10):
        b.feed(LinkRefused(C, "connection refused"))
        b.advance(100, hearing="AC")
    assert suspects(b) == ""


@pytest.mark.rows("CS-38")
def test_no_heartbeats_go_to_a_suspected_member() -> None:
    b = Lone("B", "ABCD", 4)
    b.refuse("C", hearing="AD")
    b.sent.clear()
    b.advance(5_000, hearing="AD")
    assert {type(message) for message in b.sent_to("C")} == {m.LifeProbe}, "only what asks for an answer"
    assert b.sent_to("D", m.Heartbeat)
    assert b.sent_to("A", m.Heartbeat)


@pytest.mark.rows("CS-52", "EL-34")
def test_a_heartbeat_of_a_slave_takes_the_suspicion_back() -> None:
    b = Lone("B", "ABC", 3)
    b.refuse("C", hearing="A")
    b.hear_from("C")
    assert suspects(b) == ""
    assert b.events_of(SuspicionRemoved)[0].suspect == C
    b.sent.clear()
    b.advance(1_100, hearing="A")
    assert b.sent_to("C", m.Heartbeat)
    b.advance(8_000, hearing="A")
    assert suspects(b) == "", "and its time begins anew"


@pytest.mark.rows("CS-51")
def test_a_heartbeat_of_the_master_takes_the_suspicion_back() -> None:
    c = Lone("C", "ABC", 3)
    c.refuse("A", hearing="B")
    c.hear_from("A")
    assert suspects(c) == ""


@pytest.mark.rows("CS-50")
def test_a_list_of_the_master_takes_the_suspicion_back() -> None:
    c = Lone("C", "ABC", 3)
    c.refuse("A", hearing="B")
    c.hear("A", m.MembersUpdate(lone_view("ABCD", 4)))
    assert suspects(c) == ""


@pytest.mark.rows("CS-34", "CS-37")
def test_suspicions_stay_where_they_are() -> None:
    c = Cluster("ABCD")
    told: list[m.Message] = []

    def listen(sender: str, receiver: str, message: m.Message) -> bool:
        if not isinstance(message, m.Heartbeat | m.MasterConfirmation | m.MembersAck):
            told.append(message)
        return False

    c.advance(2_000)
    c.swallow = listen
    c.cut("B", "C")
    c.advance(5_000)
    assert [c.suspects(name) for name in "ABCD"] == ["", "C", "B", ""]
    assert told == [], "neither to the master nor to each other"
    assert c.views_of("ABCD") == ["ABCD"] * 4


def test_two_that_lost_their_connection_trust_each_other_again_when_it_is_back() -> None:
    """Neither sends heartbeats to the other, so nothing else would end it; and when the master dies they would split."""
    c = Cluster("ABCD")
    c.cut("B", "C")
    c.advance(3_000)
    assert [c.suspects(name) for name in "BC"] == ["C", "B"]
    c.heal()
    c.advance(3_000)
    assert [c.suspects(name) for name in "BC"] == ["", ""]
    c.crash("A")
    c.advance(5_000)
    assert c.views_of("BCD") == ["BCD"] * 3


def test_two_that_suspect_each_other_for_silence_and_lose_their_connection_then_come_together_again() -> None:
    c = Cluster("ABCD")
    c.hold("B", "C")
    c.hold("C", "B")
    c.advance(12_000)
    assert [c.suspects(name) for name in "BC"] == ["C", "B"]
    c.lose_link("B", "C")
    c.release()
    c.advance(3_000)
    assert [c.suspects(name) for name in "BC"] == ["", ""]
    c.advance(15_000)
    assert [c.suspects(name) for name in "BC"] == ["", ""]


@pytest.mark.rows("CS-38")
def test_a_member_that_cannot_be_heard_stays_suspected_although_it_can_be_reached() -> None:
    """A one-way failure: what opens the connection is no heartbeat, and no sign of life at the other end."""
    c = Cluster("ABCD", partial_resolution_heartbeats=0)
    c.hold("C", "B")
    c.advance(12_000)
    assert c.suspects("B") == "C"
    c.advance(12_000)
    assert c.suspects("C") == "B", "B has fallen silent in its turn"
    assert not c.pending("B", "C", m.Heartbeat)


@pytest.mark.rows("CS-40")
def test_a_member_never_suspects_itself_or_a_stranger() -> None:
    b = Lone("B", "AB", 2)
    b.feed(LinkRefused(B, "connection refused"))
    b.feed(LinkRefused(C, "connection refused"))
    b.feed(LinkRefused(address("A"), "connection refused"))
    b.advance(5_000, hearing="A")
    assert suspects(b) == ""


@pytest.mark.rows("EL-40")
def test_a_check_never_fails_the_member_itself() -> None:
    c = Cluster("A")
    c.advance(1_000_000)
    assert c.view("A") == "A"
    assert not c.events_of("A", MemberSuspected)


@pytest.mark.parametrize("away_ms", [11_000, 60_000, 3_600_000])
def test_a_member_that_was_away_itself_takes_nobody_for_dead(away_ms: int) -> None:
    """Its own clock tick came late: the time that it missed is nobody's silence."""
    b = Lone("B", "ABC", 3)
    b.advance(2_000, hearing="AC")
    b.now += away_ms
    b.advance(5_000)
    assert suspects(b) == ""
    b.advance(8_000)
    assert b.view() == "B", "those that are silent from then on are suspected in their time"


def test_a_removed_members_return_begins_from_nothing() -> None:
    b = Lone("B", "ABC", 3)
    b.refuse("C", hearing="A")
    b.hear("A", m.MembersUpdate(lone_view("AB", 4)))
    assert suspects(b) == ""
    b.hear("A", m.MembersUpdate(lone_view("ABC", 5)))
    b.advance(9_000, hearing="A")
    assert suspects(b) == ""


# --- the parts --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("EL-39", "EL-34")
def test_the_deadline_detector_counts_from_the_last_heartbeat() -> None:
    detector = DeadlineFailureDetector(2_000)
    assert detector.silence.next_deadline() is None
    detector.watch(A, 1_000)
    detector.watch(A, 5_000)
    detector.heartbeat(B, 1_000)
    assert detector.silent(2_999) == []
    assert detector.silence.next_deadline() == 3_000
    assert detector.silent(3_000) == [(A, 2_000, "no heartbeat for 2000 ms; the limit is 2000 ms")]
    detector.heartbeat(A, 3_000)
    assert detector.silent(4_999) == []
    detector.observer_was_away(10_000, 13_000)
    assert detector.silent(14_999) == []
    assert [each.member for each in detector.silent(15_000)] == [A]
    detector.forget(A)
    assert detector.silent(99_000) == []


def test_what_was_heard_in_the_very_moment_of_waking_up_counts_from_then() -> None:
    """Messages that came while this member was away may be taken in before it notices that it was away."""
    detector = DeadlineFailureDetector(2_000)
    detector.watch(A, 1_000)
    detector.heartbeat(A, 10_000)
    detector.observer_was_away(9_000, 10_000)
    assert [each.member for each in detector.silent(12_000)] == [A]


@pytest.mark.rows("CS-33")
def test_the_grace_period_depends_on_who_refuses() -> None:
    evidence = ConnectionEvidence(300, 1_000)
    evidence.note_refused(A, 1_000)
    assert evidence.unreachable(1_299) == []
    evidence.note_refused(A, 1_000, is_deserted=True)
    assert evidence.unreachable(1_099) == []
    assert evidence.next_deadline() == 1_025, "it is tried a few times meanwhile"
    assert evidence.to_retry(1_025) == [A]
    assert evidence.next_deadline() == 1_050
    reason = "connection lost, and no process listens there: refused for 100 ms; the limit is 100 ms"
    assert evidence.unreachable(1_100) == [(A, 100, reason)]
    evidence.note_reached(A)
    evidence.note_refused(A, 2_000, is_deserted=True, is_same_host=True)
    reason = "connection lost, and no process listens there on this machine"
    assert evidence.unreachable(2_000) == [(A, 0, reason)]
    evidence.note_refused(A, 2_000)
    assert evidence.unreachable(2_299) == [], "somebody else answers now: the last refusal counts"
    short = ConnectionEvidence(50, 1_000)
    short.note_refused(A, 0, is_deserted=True)
    assert short.unreachable(49) == []
    assert short.unreachable(50)


@pytest.mark.rows("CS-33")
def test_a_process_of_this_machine_that_has_ended_is_suspected_at_once() -> None:
    b = Lone("B", "ABC", 3)
    b.feed(LinkLost(C))
    assert suspects(b) == "", "a broken connection alone proves nothing"
    b.feed(LinkRefused(C, "connection refused", is_deserted=True, is_same_host=True))
    assert suspects(b) == "C"


def test_a_port_that_nobody_serves_for_a_moment_is_no_evidence() -> None:
    b = Lone("B", "ABC", 3)
    b.feed(LinkLost(C))
    b.feed(LinkRefused(C, "connection refused", is_deserted=True))
    b.advance(80, hearing="A")
    b.feed(LinkUp(C))
    b.advance(5_000, hearing="A")
    assert suspects(b) == ""


def test_connection_evidence_needs_the_whole_grace() -> None:
    evidence = ConnectionEvidence(300, 100)
    evidence.note_refused(A, 1_000)
    evidence.note_refused(A, 1_200)
    assert evidence.unreachable(1_299) == []
    assert [(member, ms) for member, ms, _ in evidence.unreachable(1_300)] == [(A, 300)]
    assert evidence.to_retry(1_274) == []
    assert evidence.to_retry(1_275) == [A]
    assert evidence.next_deadline() == 1_300
    evidence.note_reached(A)
    assert evidence.unreachable(9_000) == []
    assert evidence.next_deadline() is None


@pytest.mark.rows("CS-33")
def test_a_grace_as_short_as_the_time_between_two_tries_is_tried_in_as_well() -> None:
    """A network that has no way for a moment: it is whole again long before the grace ends."""
    b = Lone("B", "ABC", 3, connection_grace_ms=100, retry_interval_ms=100)
    b.feed(LinkLost(C))
    b.feed(LinkRefused(C, "no route to the host"))
    b.sent.clear()
    b.advance(25, hearing="A")
    assert b.sent_to("C", m.Heartbeat), "it is tried again"
    b.feed(LinkUp(C))
    b.advance(5_000, hearing="A")
    assert suspects(b) == ""


@pytest.mark.rows("PD-11")
def test_the_timeout_is_ours_and_stated() -> None:
    """Ten seconds, where the reference has sixty: a hung member holds up its writes for so long."""
    assert NodeConfig().heartbeat_timeout_ms == 10_000
