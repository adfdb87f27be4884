"""The checker of successions is no rubber stamp: each wrong way to the mastership is found, the right ones are not."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.wire.messages import ClaimAnswer
from phalanx.wire.suspicion_events import ClaimAnswered, ClaimStarted, MemberSuspected, SuspicionRemoved
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.mastership_checker import MastershipChecker


class Checked:
    """Members that are named by one letter; `ABC` have installed view 3 of A."""

    def __init__(self) -> None:
        self.findings = Findings()
        self.checker = MastershipChecker(self.findings)
        self.install("A", 1, "A")
        for who in "ABC":
            self.install(who, 3, "ABC")

    def install(self, who: str, version: int, members: str, maker: str = "A") -> None:
        event = ViewInstalled(version, MemberId(maker), MemberId(members[0]), tuple(map(MemberId, members)), "test")
        self.checker.on_event(ObservedEvent(MemberId(who), event, 0))

    def suspect(self, who: str, *suspects: str) -> None:
        for suspect in suspects:
            self.checker.on_event(ObservedEvent(MemberId(who), MemberSuspected(MemberId(suspect), "", ""), 0))

    def forgive(self, who: str, suspect: str) -> None:
        self.checker.on_event(ObservedEvent(MemberId(who), SuspicionRemoved(MemberId(suspect), ""), 0))

    def claim(self, who: str, claim_id: int = 1) -> None:
        self.checker.on_event(ObservedEvent(MemberId(who), ClaimStarted(claim_id, 3, (), ""), 0))

    def agree(self, who: str, claimer: str, *, accepted: bool = True, arrives: bool = True, claim_id: int = 1) -> None:
        self.checker.on_event(ObservedEvent(MemberId(who), ClaimAnswered(MemberId(claimer), accepted, (), ""), 0))
        if arrives:
            self.checker.on_claim_answer(MemberId(claimer), MemberId(who), ClaimAnswer(claim_id, accepted, None))

    @property
    def found(self) -> list[str]:
        return [violation.what for violation in self.findings.violations]


def test_a_crash_of_the_master_and_a_claim_are_in_order() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B")
    c.agree("C", "B", accepted=False)
    c.suspect("C", "A")
    c.agree("C", "B")
    c.install("B", 4, "BC", maker="B")
    c.install("C", 4, "BC", maker="B")
    assert c.found == []


def test_a_hand_over_and_what_the_new_master_makes_is_in_order() -> None:
    c = Checked()
    c.install("B", 4, "BC")
    c.install("C", 4, "BC")
    c.install("B", 5, "BCD", maker="B")
    c.install("C", 5, "BCD", maker="B")
    c.install("D", 5, "BCD", maker="B")
    assert c.found == []


def test_a_list_of_a_claimer_to_whoever_suspects_all_older_ones_is_in_order() -> None:
    c = Checked()
    c.suspect("C", "A")
    c.install("C", 5, "BC", maker="B")
    assert c.found == []


def test_a_claim_past_a_trusted_older_member_is_found() -> None:
    c = Checked()
    c.suspect("C", "A")
    c.claim("C")
    assert c.found == ["who claims suspects everybody older"]


def test_a_suspicion_that_was_taken_back_does_not_count() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.forgive("B", "A")
    c.claim("B")
    assert c.found == ["who claims suspects everybody older"]


def test_an_agreement_without_the_suspicion_is_found() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B")
    c.agree("C", "B")
    assert c.found == ["who agrees suspects everybody older"]


def test_a_view_of_a_slave_is_found() -> None:
    c = Checked()
    c.install("B", 4, "BC", maker="B")
    assert c.found == ["who makes a view is the master"]


def test_a_claimers_list_with_somebody_who_never_agreed_is_found() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B")
    c.agree("C", "B", accepted=False)
    c.install("B", 4, "BC", maker="B")
    assert c.found == ["a claimer's list has those that agreed"]


def test_an_agreement_with_an_earlier_claim_does_not_count() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B")
    c.suspect("C", "A")
    c.agree("C", "B")
    c.claim("B", 2)
    c.install("B", 4, "BC", maker="B")
    assert c.found == ["a claimer's list has those that agreed"]


def test_a_late_answer_to_an_earlier_claim_does_not_count() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B", 2)
    c.suspect("C", "A")
    c.agree("C", "B", claim_id=1)
    c.install("B", 4, "BC", maker="B")
    assert c.found == ["a claimer's list has those that agreed"]


def test_a_claimers_list_with_somebody_whose_agreement_never_came_is_found() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B")
    c.suspect("C", "A")
    c.agree("C", "B", arrives=False)
    c.install("B", 4, "BC", maker="B")
    assert c.found == ["a claimer's list has those that agreed"]


def test_a_version_of_which_no_answer_told_the_claimer_may_be_the_one_of_its_list() -> None:
    """A hands over to B, only C hears of it, and a cut keeps the answer of C: B cannot know of that list."""
    c = Checked()
    c.install("C", 4, "BC")
    c.suspect("B", "A")
    c.claim("B")
    c.agree("C", "B", arrives=False)
    c.install("B", 4, "B", maker="B")
    assert c.found == []


@pytest.mark.parametrize("members", ["BC", "B"])
def test_a_claimers_version_that_somebody_already_had_is_found(members: str) -> None:
    """Also if that one was left out since."""
    c = Checked()
    c.install("A", 4, "ABCD")
    c.install("C", 4, "ABCD")
    c.suspect("B", "A")
    c.claim("B")
    c.suspect("C", "A")
    c.agree("C", "B")
    c.install("B", 4, members, maker="B")
    assert c.found == ["a claimer's version is above all"]


@pytest.mark.parametrize("members", ["BC", "XC"])
def test_a_list_of_somebody_who_is_not_the_master_is_found(members: str) -> None:
    c = Checked()
    c.install("C", 4, members, maker=members[0])
    assert c.found == ["a list is the master's"]


def test_whoever_agreed_with_a_claim_takes_no_list_of_the_old_master() -> None:
    c = Checked()
    c.suspect("B", "A")
    c.claim("B")
    c.suspect("C", "A")
    c.agree("C", "B")
    c.forgive("C", "A")
    c.suspect("C", "B")
    c.install("C", 4, "BC", maker="A")
    assert c.found == ["a list is the master's"]


def test_a_first_view_of_others_that_a_member_made_itself_is_found() -> None:
    c = Checked()
    c.install("D", 1, "D", maker="D")
    c.install("E", 1, "EF", maker="E")
    assert c.found == ["who is new makes no view of others"]
