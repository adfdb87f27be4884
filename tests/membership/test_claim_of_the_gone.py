"""A claim finds members in the lists of others that are long gone; it must not wait for them until it times out."""

from phalanx.machine.inputs import LinkRefused
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ClaimEnded
from support.harness import Lone, lone_id, lone_view


def test_a_member_that_only_an_older_list_has_is_not_asked() -> None:
    """X was removed by A's last view, of which D has not heard when A dies."""
    b = Lone("B", "ABD", 5)
    b.refuse("A", hearing="D")
    claim_id = b.sent_to("D", m.MastershipClaim)[-1].claim_id
    b.hear("D", m.ClaimAnswer(claim_id, True, lone_view("ABDX", 4, maker="A")))
    assert b.sent_to("X", m.MastershipClaim) == []
    assert b.view() == "BD"
    assert b.membership.view is not None
    assert b.membership.view.version == 6


def test_a_member_found_in_a_newer_list_is_left_out_when_its_address_refuses_for_the_grace_period() -> None:
    b = Lone("B", "ABD", 5)
    b.refuse("A", hearing="D")
    claim_id = b.sent_to("D", m.MastershipClaim)[-1].claim_id
    b.hear("D", m.ClaimAnswer(claim_id, True, lone_view("ABDX", 6, maker="A")))
    assert b.sent_to("X", m.MastershipClaim)
    b.feed(LinkRefused(lone_id("X"), "connection refused"))
    b.advance(250, hearing="D")
    assert b.membership.is_claiming, "one refusal is no proof"
    b.advance(60, hearing="D")
    b.feed(LinkRefused(lone_id("X"), "connection refused"))
    assert b.view() == "BD"
    assert b.events_of(ClaimEnded)[0].left_out == (lone_id("X"),)
