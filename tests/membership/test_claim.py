"""The mastership claim (docs/protocol/mastership.md): when it starts, whom it asks, who agrees, and what list ends it."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.view import MembersView
from phalanx.machine.effects import Send
from phalanx.membership.claim.mastership_claim import Claim, ClaimState
from phalanx.wire import messages as m
from phalanx.wire.suspicion_events import ClaimAnswered, ClaimEnded, ClaimStarted
from support.harness import Cluster, Lone, lone_context, lone_id, lone_view


def claims(lone: Lone) -> list[str]:
    """Whom the member has asked, each once, in order."""
    return list(dict.fromkeys(name for name, _ in lone.sent_of(m.MastershipClaim)))


def agree(lone: Lone, name: str, members: str, version: int, *, accepted: bool = True) -> None:
    claim_id = lone.sent_to(name, m.MastershipClaim)[-1].claim_id
    lone.hear(name, m.ClaimAnswer(claim_id, accepted, lone_view(members, version, maker="A")))


@pytest.mark.rows("CS-67", "CS-68", "CS-69", "CS-70", "CS-71", "CS-72", "CS-59", "CS-60", "CS-62", "CS-63", "CS-64",
                  "CS-65", "CS-66", "CS-53")  # fmt: skip
def test_the_example_of_six_members() -> None:
    """A v6 [A..F]; B v4 [A,B,C,D], suspects C; C v6; D v5 [A..E]; E v6 [A..F]; F v6, silent. A crashes."""
    b = Lone("B", "ABCD", 4)
    b.refuse("C", hearing="AD")
    assert claims(b) == []
    b.refuse("A", hearing="D")
    assert claims(b) == ["D"], "not C: it is suspected"
    agree(b, "D", "ABCDE", 5)
    assert claims(b) == ["D", "E"], "E was found in D's list"
    agree(b, "E", "ABCDEF", 6)
    assert claims(b) == ["D", "E", "F"]
    b.advance(9_000, hearing="DE")
    assert b.membership.is_claiming, "F has time to answer"
    b.sent.clear()
    b.advance(2_000, hearing="DE")
    assert b.membership.view == MembersView(7, lone_id("B"), (lone_id("B"), lone_id("D"), lone_id("E")))
    assert [(to, message.view.version) for to, message in b.sent_of(m.MembersUpdate)][:2] == [("D", 7), ("E", 7)]
    assert b.events_of(ClaimEnded)[0].left_out == (lone_id("F"),)
    assert {to for to, _ in b.sent_of(m.MembersUpdate)} == {"D", "E"}


@pytest.mark.rows("CS-53", "CS-54")
def test_a_member_claims_when_it_suspects_everybody_older_and_not_before() -> None:
    c = Lone("C", "ABCD", 4)
    c.refuse("A", hearing="BD")
    assert c.membership.suspicions.suspected.keys() == {lone_id("A")}
    assert claims(c) == []
    c.advance(5_000, hearing="BD")
    assert claims(c) == []
    c.refuse("B", hearing="D")
    assert claims(c) == ["D"]
    assert c.events_of(ClaimStarted)[0].suspected == (lone_id("A"), lone_id("B"))


@pytest.mark.rows("CS-53")
def test_a_younger_member_that_is_suspected_is_no_reason_to_claim() -> None:
    b = Lone("B", "ABC", 3)
    b.refuse("C", hearing="A")
    b.advance(3_000, hearing="A")
    assert claims(b) == []
    assert b.membership.master == lone_id("A")


@pytest.mark.rows("CS-56", "CS-55")
def test_a_claimer_follows_itself_first() -> None:
    c = Lone("C", "ABCD", 4)
    c.refuse("AB", hearing="D")
    assert c.membership.master == lone_id("C")
    assert c.membership.is_claiming
    assert not c.membership.is_master, "it decides nothing before the claim is over"
    assert c.membership.view == lone_view("ABCD", 4)


@pytest.mark.rows("CS-57", "CS-61")
def test_a_member_agrees_with_a_claim_when_it_suspects_all_older_ones_too() -> None:
    d = Lone("D", "ABCD", 4)
    d.refuse("AB", hearing="C")
    d.hear("C", m.MastershipClaim(5))
    assert d.membership.master == lone_id("C")
    memory = d.membership.majority.quorum.memory()
    assert d.sent_to("C", m.ClaimAnswer) == [m.ClaimAnswer(5, True, lone_view("ABCD", 4), memory=memory)]


@pytest.mark.rows("CS-58", "CS-55")
@pytest.mark.parametrize("suspected", ["", "A", "B"])
def test_a_member_that_does_not_suspect_all_older_ones_makes_the_claimer_try_again(suspected: str) -> None:
    d = Lone("D", "ABCD", 4)
    d.refuse(suspected, hearing="ABC".replace(suspected, "") if suspected else "ABC")
    d.hear("C", m.MastershipClaim(5))
    assert d.membership.master == lone_id("A")
    assert d.sent_to("C", m.ClaimAnswer) == [m.ClaimAnswer(5, False, None)]
    not_suspected = tuple(lone_id(name) for name in "AB" if name != suspected)
    assert d.events_of(ClaimAnswered)[0].not_suspected == not_suspected


@pytest.mark.rows("CS-58")
def test_a_claimer_asks_again_those_that_do_not_agree_yet() -> None:
    c = Lone("C", "ABCD", 4)
    c.refuse("AB", hearing="D")
    for _ in range(5):
        asked = len(c.sent_to("D", m.MastershipClaim))
        agree(c, "D", "ABCD", 4, accepted=False)
        assert c.membership.is_claiming
        c.advance(150, hearing="D")
        assert len(c.sent_to("D", m.MastershipClaim)) > asked
    agree(c, "D", "ABCD", 4)
    assert c.view() == "CD"
    assert c.membership.view is not None
    assert c.membership.view.version == 5


@pytest.mark.rows("CS-63")
def test_a_member_that_is_suspected_during_the_claim_is_not_waited_for() -> None:
    b = Lone("B", "ABCD", 4)
    b.refuse("A", hearing="CD")
    agree(b, "D", "ABCD", 4)
    b.refuse("C", hearing="D")
    b.advance(1_000, hearing="D")
    assert b.view() == "BD"


def test_a_member_that_agreed_and_is_suspected_then_is_not_in_the_final_list() -> None:
    b = Lone("B", "ABCD", 4)
    b.refuse("A", hearing="CD")
    agree(b, "D", "ABCD", 4)
    b.refuse("D", hearing="C")
    agree(b, "C", "ABCD", 4)
    assert b.view() == "BC"


@pytest.mark.rows("CS-65", "CS-25")
@pytest.mark.parametrize(("own", "answered"), [(4, 4), (4, 9), (9, 4)])
def test_the_final_version_is_above_every_version_seen(own: int, answered: int) -> None:
    b = Lone("B", "ABC", own)
    b.refuse("A", hearing="C")
    agree(b, "C", "ABC", answered)
    assert b.membership.view is not None
    assert b.membership.view.version == max(own, answered) + 1


@pytest.mark.rows("CS-66")
def test_the_final_list_keeps_the_order_of_age_with_the_claimer_first() -> None:
    b = Lone("B", "ABCDE", 5)
    b.refuse("A", hearing="CDE")
    for name in "ECD":
        agree(b, name, "ABCDEF", 6)
    agree(b, "F", "ABCDEF", 6)
    assert b.view() == "BCDEF"
    assert [to for to, _ in b.sent_of(m.MembersUpdate)] == list("CDEF")


@pytest.mark.rows("PX-32")
def test_the_claimers_order_of_age_decides_where_the_newest_list_comes_from_another_history() -> None:
    """PX-32: the claimer takes no list of another order either, also where it makes it itself."""
    b = Lone("B", "ABCD", 4)
    b.refuse("A", hearing="CD")
    agree(b, "C", "ABCD", 4)
    agree(b, "D", "ABDC", 6)
    assert b.view() == "BCD"
    assert b.membership.view is not None
    assert b.membership.view.version == 7


@pytest.mark.rows("CS-62", "CS-04")
def test_a_list_that_no_older_member_had_is_found_through_those_it_names() -> None:
    """D was told of E, E of F; B knows neither. Nobody is thrown out because the new master's list was old."""
    b = Lone("B", "ABD", 3)
    b.refuse("A", hearing="D")
    agree(b, "D", "ABDE", 4)
    agree(b, "E", "ABDEF", 5)
    agree(b, "F", "ABDEFG", 6)
    agree(b, "G", "ABDEFG", 6)
    assert b.view() == "BDEFG"


@pytest.mark.rows("CS-66")
@pytest.mark.parametrize("first", ["CD", "DC"])
def test_a_member_that_was_removed_meanwhile_is_not_taken_back_behind_younger_ones(first: str) -> None:
    """The master removed C, and D alone heard of it; C agrees with the list from before."""
    b = Lone("B", "ABCD", 4)
    b.refuse("A", hearing="CD")
    for name in first:
        agree(b, name, *{"C": ("ABCD", 4), "D": ("ABD", 5)}[name])
    assert b.view() == "BD"
    assert b.membership.view is not None
    assert b.membership.view.version == 6
    assert b.events_of(ClaimEnded)[0].left_out == (lone_id("C"),)


def test_an_answer_to_an_earlier_claim_is_none() -> None:
    b = Lone("B", "ABC", 3)
    b.refuse("A", hearing="C")
    claim = b.sent_to("C", m.MastershipClaim)[-1]
    b.hear("C", m.ClaimAnswer(claim.claim_id + 1, True, lone_view("ABC", 3)))
    b.hear("D", m.ClaimAnswer(claim.claim_id, True, lone_view("ABC", 3)))
    assert b.membership.is_claiming
    agree(b, "C", "ABC", 3)
    agree_again = m.ClaimAnswer(claim.claim_id, True, lone_view("ABC", 30))
    b.hear("C", agree_again)
    assert b.membership.view == lone_view("BC", 4)


@pytest.mark.rows("CS-55")
def test_a_claimer_gives_way_to_an_older_one() -> None:
    c = Lone("C", "ABCD", 4)
    c.refuse("AB", hearing="D")
    c.hear("B", m.MastershipClaim(1))
    assert not c.membership.is_claiming
    assert c.membership.master == lone_id("B")
    memory = c.membership.majority.quorum.memory()
    assert c.sent_to("B", m.ClaimAnswer) == [m.ClaimAnswer(1, True, lone_view("ABCD", 4), memory=memory)]
    c.hear("B", m.MembersUpdate(lone_view("BCD", 5)))
    assert c.view() == "BCD"


def test_a_claim_of_a_younger_member_or_a_stranger_is_not_agreed_with() -> None:
    c = Lone("C", "ABCD", 4)
    c.refuse("AB", hearing="D")
    for name in "DZ":
        c.hear(name, m.MastershipClaim(1))
    assert c.membership.master == lone_id("C")
    assert c.sent_of(m.ClaimAnswer) == []


def test_a_claim_alone_is_over_at_once() -> None:
    b = Lone("B", "AB", 2)
    b.refuse("A")
    assert b.membership.view == lone_view("B", 3)
    assert b.membership.is_master


def test_a_claimer_that_died_is_claimed_over_by_the_next() -> None:
    """D agreed with C; C dies before it has published. D is not bound to a dead claimer for ever."""
    d = Lone("D", "ABCDE", 5)
    d.refuse("AB", hearing="CE")
    d.hear("C", m.MastershipClaim(1))
    assert d.membership.master == lone_id("C")
    d.refuse("C", hearing="E")
    assert claims(d) == ["E"]
    agree(d, "E", "ABCDE", 5)
    assert d.view() == "DE"


def test_what_is_left_of_the_claim_is_told_for_people() -> None:
    local = lone_context("B")
    claim = Claim(local, 1, lone_view("ABC", 3), (100, 10))
    claim.ask_younger(lone_view("ABC", 3), (), 0)
    assert repr(claim) == "Claim(1, agreed=['B:5701/B1'], waiting_for=['C:5701/C1'])"
    assert [effect.to for effect in local.out.take() if isinstance(effect, Send)] == [lone_id("C")]
    assert not claim.is_over(99)
    assert claim.is_over(100)


@pytest.mark.rows("CS-59")
def test_only_younger_members_are_asked_whoever_is_suspected() -> None:
    """An older member that is heard again during the claim is not asked: it would have to follow a younger one."""
    local = lone_context("C")
    claim = Claim(local, 1, lone_view("ABCDE", 3), (100, 10))
    claim.ask_younger(lone_view("ABCDE", 3), (), 0)
    assert [effect.to for effect in local.out.take() if isinstance(effect, Send)] == [lone_id("D"), lone_id("E")]


@pytest.mark.rows("CS-65")
def test_a_list_that_comes_from_whoever_was_left_out_counts_for_the_version_and_no_more() -> None:
    claim = Claim(lone_context("B"), 2, lone_view("ABCD", 4), (100, 10))
    claim.ask_younger(lone_view("ABCD", 4), (), 0)
    claim.leave_out(lone_id("C"))
    claim.on_answer(lone_id("C"), m.ClaimAnswer(1, True, lone_view("ABCDE", 9)), (), 0)  # It was to an earlier claim.
    assert claim.final_view() == MembersView(5, lone_id("B"), (lone_id("B"),))
    claim.on_answer(lone_id("C"), m.ClaimAnswer(2, True, lone_view("ABCDE", 5)), (), 0)
    assert claim.final_view() == MembersView(6, lone_id("B"), (lone_id("B"),))
    assert claim.state_of(lone_id("E")) is ClaimState.UNKNOWN


@pytest.mark.rows("CS-73", "CS-64")
def test_the_setting_says_when_a_claim_is_over() -> None:
    b = Lone("B", "ABC", 3, claim_timeout_ms=2_000)
    b.refuse("A", hearing="C")
    b.advance(1_000, hearing="C")
    assert b.view() == "ABC"
    b.advance(1_000, hearing="C")
    assert b.view() == "B"


# --- in a cluster ---------------------------------------------------------------------------------------------------


@pytest.mark.rows("CS-23", "CS-22", "CS-21")
@pytest.mark.parametrize("gone", ["A", "AB", "ABC", "AC", "B", "ABD"])
def test_the_oldest_survivor_is_the_master_of_all_survivors(gone: str) -> None:
    c = Cluster("ABCDE")
    c.crash(gone)
    c.advance(3_000)
    left = "".join(name for name in "ABCDE" if name not in gone)
    assert c.views_of(left) == [left] * len(left)
    assert [c.master(name) for name in left] == [left[0]] * len(left)
    assert not c.finished


@pytest.mark.parametrize("first", "BC")
@pytest.mark.parametrize("second", ["before the claim", "during the claim", "after the claim"])
def test_masters_that_die_one_after_another_are_followed_by_the_next(first: str, second: str) -> None:
    c = Cluster("ABCDE")
    if second == "before the claim":
        c.crash("A" + first)
        c.advance(5_000)
    else:
        c.hold("E", "BC")
        c.crash("A")
        c.advance(450 if second == "during the claim" else 1_000)
        if second == "after the claim":
            c.release()
            c.advance(1_000)
        c.crash(first)
        c.release()
        c.advance(5_000)
    left = "".join(name for name in "BCDE" if name != first)
    assert c.views_of(left) == [left] * 3


def test_two_that_claim_at_the_same_time_end_in_one_list() -> None:
    """B and C both suspect everybody older: C has lost its link to B too, for a moment."""
    c = Cluster("ABCD")
    c.hold("B", "CD")
    c.hold("C", "BD")
    c.crash("A")
    c.lose_link("B", "C")
    c.cut("B", "C")
    c.advance(800)
    c.heal()
    c.release()
    c.advance(20_000)
    names = "".join(sorted(c.nodes))
    for name in [name for name in "BCD" if name not in names]:
        c.rejoin(name)
    c.advance(5_000)
    views = set(c.views_of("".join(sorted(c.nodes))))
    assert len(views) == 1, views


def test_versions_of_two_masters_are_told_apart_by_their_makers() -> None:
    """A.6-20: two claimers on two sides use one version; the views are different all the same."""
    assert lone_view("BD", 7) != lone_view("CD", 7)
    mine, other = lone_view("BD", 7, maker="B"), lone_view("BD", 7, maker="C")
    assert mine != other
    assert isinstance(mine.maker, str)
    assert MemberId(mine.maker) == lone_id("B")


def test_a_claim_does_not_wait_for_a_joiner_that_does_not_know_yet_that_it_was_admitted() -> None:
    c = Cluster("ABC")
    c.hold("A", "D")
    c.start("D")
    c.advance(1_000)
    c.crash("A")
    c.release()
    c.advance(1_500)
    assert c.views_of("BC") == ["BC", "BC"]
    c.join("E", seeds="C")
    assert c.views_of("BCE") == ["BCE"] * 3


@pytest.mark.rows("CS-66", "CS-63")
def test_a_member_that_the_newest_list_had_removed_does_not_come_back_by_a_claim() -> None:
    """A removed C, and only D has heard of it; then B, C and D suspect A, and C and D agree with B."""
    b = Lone("B", "ABCD", 4)
    b.refuse("A", hearing="CD")
    agree(b, "C", "ABCD", 4)
    agree(b, "D", "ABD", 5)
    assert b.membership.view == MembersView(6, lone_id("B"), (lone_id("B"), lone_id("D")))
    assert b.events_of(ClaimEnded)[0].left_out == (lone_id("C"),)


@pytest.mark.rows("EL-20", "EL-21")
def test_a_member_that_a_claim_leaves_out_never_comes_back_as_the_same_also_if_the_claimer_had_never_heard_of_it() -> (
    None
):
    """C knows D, the claimer B does not; D is still joining. Its late request asks B for an age that C's list denies."""
    b = Lone("B", "ABC", 3)
    b.refuse("A", hearing="C")
    agree(b, "C", "ABCD", 4)
    b.hear("D", m.ClaimAnswer(b.sent_to("D", m.MastershipClaim)[-1].claim_id, False, None, is_joining=True))
    assert b.membership.view == MembersView(5, lone_id("B"), (lone_id("B"), lone_id("C")))
    b.hear("D", m.JoinRequest(1, lone_id("D"), "phalanx", m.OLDEST_PROTOCOL_VERSION, 1))
    assert b.membership.view.version == 5
    assert b.sent_to("D", m.JoinRefused)[-1].come_back


@pytest.mark.rows("CS-65", "CS-25")
def test_the_final_version_is_above_the_list_of_one_that_agreed_and_was_left_out_since() -> None:
    b = Lone("B", "ABCD", 4)
    b.refuse("A", hearing="CD")
    agree(b, "C", "ABCD", 9)
    b.refuse("C", hearing="D")
    agree(b, "D", "ABCD", 4)
    assert b.membership.view == MembersView(10, lone_id("B"), (lone_id("B"), lone_id("D")))
