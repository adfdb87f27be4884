"""Heartbeats between all members; those of a slave to its master confirm that it still follows (docs/protocol/failure-detection.md)."""

import pytest

from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ClaimStarted, MemberSuspected, ViewsDiverged
from support.harness import Cluster, Lone


@pytest.mark.rows("CS-27", "EL-31")
def test_every_member_sends_every_other_one_a_heartbeat_each_interval() -> None:
    c = Cluster("ABC", heartbeat_interval_ms=500)
    c.hold_all()
    c.advance(5_000)
    for sender in "ABC":
        for receiver in "ABC".replace(sender, ""):
            beats = c.pending(sender, receiver, m.Heartbeat)
            assert len(beats) in (10, 11), (sender, receiver)
            assert {beat.view_version for beat in beats} == {3}


@pytest.mark.rows("CS-28")
def test_a_slave_confirms_its_master_and_nobody_else() -> None:
    c = Lone("C", "ABC", 3)
    c.advance(3_000, hearing="AB")
    assert len(c.sent_to("A", m.MasterConfirmation)) >= 3
    assert c.sent_to("B", m.MasterConfirmation) == []
    c.refuse("A", hearing="B")
    c.hear("B", m.MastershipClaim(1))
    c.sent.clear()
    c.advance(3_000, hearing="B")
    assert len(c.sent_to("B", m.MasterConfirmation)) >= 3
    assert c.sent_to("A", m.MasterConfirmation) == []


@pytest.mark.rows("CS-29")
def test_a_slave_that_follows_another_master_is_removed_although_its_heartbeats_arrive() -> None:
    """C agreed with a claim of B's that came to nothing. It would take no table of A's, and nobody would notice."""
    c = Cluster("ABC", publish_interval_ms=10**9)
    c.advance(2_000)
    c.hold_all()
    c.nodes["C"].membership.state.follow(c.id("B"))
    c.release()
    c.advance(13_000)
    assert c.view("A") == "ABC"
    c.advance(3_000)
    assert c.view("A") == "AB"
    assert c.events_of("A", MemberSuspected)[0].rule == "CS-29"
    c.advance(2_000)
    c.rejoin("C")
    assert c.views_of("ABC") == ["ABC"] * 3


@pytest.mark.rows("CS-30", "PD-13", "PD-02", "PD-10")
def test_a_silent_slave_is_removed_by_the_master() -> None:
    c = Cluster("ABCD")
    c.hang("B")
    c.advance(9_000)
    assert c.views_of("ACD") == ["ABCD"] * 3
    c.advance(2_500)
    assert c.views_of("ACD") == ["ACD"] * 3
    assert c.events_of("A", MemberSuspected)[0].rule == "CS-33 silence"


def test_a_member_that_was_away_suspects_nobody_for_what_it_could_not_hear() -> None:
    """Nothing of A comes to B before it goes on: of the silence that it finds then, it was away for the longest part."""
    c = Cluster("AB")
    c.advance(2_000)
    c.hang("B")
    c.hold("A", "B")
    c.advance(8_000)
    c.resume("B")
    c.advance(3_000)
    assert c.events_of("B", MemberSuspected) == []
    c.release()
    c.advance(1_000)
    assert c.views_of("AB") == ["AB"] * 2


@pytest.mark.rows("CS-32")
def test_silence_refused_connections_and_missing_confirmations_each_are_enough() -> None:
    for what, rule in (("silence", "CS-33 silence"), ("crash", "CS-33 connection"), ("other master", "CS-29")):
        c = Cluster("ABC", publish_interval_ms=10**9)
        c.advance(2_000)
        if what == "silence":
            c.hang("C")
        elif what == "crash":
            c.crash("C")
        else:
            c.nodes["C"].membership.state.follow(c.id("B"))
        c.advance(17_000)
        assert c.view("A") == "AB"
        assert c.events_of("A", MemberSuspected)[0].rule == rule


@pytest.mark.rows("CS-39", "CS-38")
def test_a_suspected_master_gets_no_confirmations() -> None:
    c = Lone("C", "ABC", 3)
    c.advance(2_000, hearing="AB")
    assert c.sent_to("A", m.MasterConfirmation) != []
    c.refuse("A", hearing="B")
    c.sent.clear()
    c.advance(5_000, hearing="B")
    assert c.sent_to("A", m.Heartbeat) == []
    assert c.sent_to("A", m.MasterConfirmation) == []
    assert c.sent_to("B", m.Heartbeat) != []


@pytest.mark.rows("CS-43", "CS-41")
def test_a_master_answers_the_confirmation_of_an_unknown_member_although_it_has_nothing_against_it() -> None:
    c = Cluster("AB")
    c.hold_all()
    c.start("Z", seeds="")
    view = c.nodes["Z"].membership.view
    assert view is not None
    c.say("Z", "A", m.MasterConfirmation(view.version, view.maker, 0))
    assert [told.about_maker for told in c.pending("A", "Z", m.ExplicitSuspicion)] == [c.id("Z")]
    assert c.events_of("A", ViewsDiverged)[-1].rule == "CS-43"
    c.say("Z", "A", m.Heartbeat(view.version, view.maker))
    assert [told.about_maker for told in c.pending("A", "Z", m.ExplicitSuspicion)] == [c.id("Z")] * 2
    assert c.events_of("A", ViewsDiverged)[-1].rule == "CS-44"
    c.say("Z", "B", m.MasterConfirmation(view.version, view.maker, 0))
    assert c.pending("B", "Z") == []


@pytest.mark.rows("PD-01")
def test_a_healthy_cluster_stays_as_it_is() -> None:
    c = Cluster("ABCD")
    c.assign()
    c.advance(2_000)
    before = len(c.events)
    c.advance(300_000)
    assert c.views_of("ABCD") == ["ABCD"] * 4
    assert len(c.events) == before


@pytest.mark.rows("PD-03", "PD-04")
def test_a_slave_without_a_link_to_the_master_is_removed_although_others_hear_it() -> None:
    c = Cluster("ABCD")
    c.cut("A", "B")
    c.advance(1_500)
    assert c.views_of("ACD") == ["ACD"] * 3
    c.advance(12_000)
    assert c.views_of("ACD") == ["ACD"] * 3
    assert "B" not in c.nodes or c.view("B") == "B"


@pytest.mark.rows("PD-05", "EL-44")
def test_the_next_oldest_takes_over_when_the_master_dies() -> None:
    """EL-44 by the safer reading: all older members must have failed; younger ones do not matter."""
    c = Cluster("ABCD")
    c.crash("AD")
    c.advance(3_000)
    assert c.views_of("BC") == ["BC", "BC"]
    assert c.master("C") == "B"
    assert not c.events_of("C", ClaimStarted)
