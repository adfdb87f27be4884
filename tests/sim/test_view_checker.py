"""The checker of views is no rubber stamp: histories that break a property are rejected, the ones that keep it are not."""

import pytest

from phalanx.common.ids import MemberId
from phalanx.common.store import StoreStart
from phalanx.common.view import MembersView
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.view_checker import ViewChecker


class Checked:
    def __init__(self) -> None:
        self.findings = Findings()
        self.checker = ViewChecker(self.findings)

    def install(self, who: str, version: int, members: str, maker: str = "A") -> None:
        event = ViewInstalled(version, MemberId(maker), MemberId(members[0]), tuple(map(MemberId, members)), "test")
        self.checker.on_view(MemberId(who), event, 0)

    def rest(self, **final: str) -> None:
        self.checker.check_agreement({MemberId(w): tuple(map(MemberId, v)) for w, v in final.items()}, 0)

    @property
    def found(self) -> list[str]:
        return [violation.what for violation in self.findings.violations]


def test_a_join_a_crash_and_a_claim_are_in_order() -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 3, "ABC")
    c.install("A", 4, "AC")
    c.install("C", 4, "AC")
    c.install("C", 5, "C", maker="C")
    c.rest(C="C")
    assert c.found == []


def test_a_list_with_one_folder_twice_is_found() -> None:
    """DU-22."""
    c = Checked()
    a, b = MemberId("A"), MemberId("B")
    for version, of_b in ((1, "other"), (2, "store")):
        view = MembersView(version, a, (a, b), stores=((a, StoreStart("store", 1)), (b, StoreStart(of_b, 1))))
        c.checker.on_event(ObservedEvent(a, ViewInstalled(version, a, a, (a, b), "test"), 0, view))
        assert c.found == ["no two members have one folder"] * (version == 2)


def test_views_in_opposite_orders_are_found() -> None:
    c = Checked()
    c.install("A", 3, "ABC")
    c.install("A", 4, "AB")
    c.install("B", 4, "AB")
    c.install("B", 3, "ABC")
    assert "M1 view order" in c.found
    assert "views only move on" in c.found


def test_a_view_without_its_installer_is_found() -> None:
    c = Checked()
    c.install("A", 4, "AC")
    c.install("B", 4, "AC")
    assert c.found == ["M3 view integrity"]


def test_a_circle_of_views_through_several_members_is_found() -> None:
    c = Checked()
    c.install("A", 3, "ABC")
    c.install("A", 4, "ABC")
    c.install("B", 4, "ABC")
    c.install("B", 4, "BC", maker="B")
    assert "M1 view order" not in c.found  # no step up, but nobody went the other way
    c.install("C", 4, "BC", maker="B")
    c.install("C", 3, "ABC")
    assert c.found.count("M1 view order") == 1
    (story,) = [violation.story for violation in c.findings.violations if violation.what == "M1 view order"]
    assert "A installed (3, 'A'), then (4, 'A'), B installed (4, 'A'), then (4, 'B')" in story


def test_a_member_that_installs_the_same_view_again_is_found() -> None:
    c = Checked()
    c.install("A", 3, "AB")
    c.install("A", 3, "AB")
    assert c.found == ["views only move on", "M1 view order"]


def test_two_meanings_of_one_view_are_found() -> None:
    c = Checked()
    c.install("A", 4, "ABC")
    c.install("B", 4, "AB")
    assert c.found == ["view identity"]


def test_one_version_of_two_makers_is_two_views() -> None:
    c = Checked()
    c.install("A", 4, "AB")
    c.install("C", 4, "CD", maker="C")
    assert c.found == []


@pytest.mark.parametrize("later", ["BAC", "DABC"])
def test_members_that_change_places_are_found(later: str) -> None:
    c = Checked()
    c.install("C", 4, "ABC")
    c.install("C", 5, later)
    assert "age order" in c.found


def test_a_view_that_its_maker_does_not_have_is_found() -> None:
    c = Checked()
    c.install("A", 3, "ABC")
    c.install("B", 3, "ABC")
    c.install("B", 4, "AB")
    assert c.found == ["a view begins at its maker"]


@pytest.mark.parametrize(
    ("members", "found"), [("BC", []), ("BCD", ["a view begins at its maker"]), ("CB", ["a view begins at its maker"])]
)
def test_a_master_hands_over_exactly_the_list_without_itself(members: str, found: list[str]) -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 3, "ABC")
    c.install("B" if "B" in members else "C", 4, members)
    assert [what for what in c.found if what != "age order"] == found


def test_nobody_hands_over_but_the_master() -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 3, "ABC")
    c.install("C", 4, "AC", maker="B")
    assert c.found == ["a view begins at its maker"]


def test_a_member_that_is_named_twice_is_found() -> None:
    c = Checked()
    c.install("A", 2, "ABB")
    assert c.found == ["a list names nobody twice"]


def test_a_member_that_had_joined_and_comes_back_under_its_name_is_found() -> None:
    c = Checked()
    for who in "ABC":
        c.install(who, 3, "ABC")
    c.install("A", 4, "AB")
    c.install("A", 5, "ABD")
    c.install("A", 6, "ABDC")
    assert c.found == ["who is gone does not come back"]


def test_a_joiner_that_had_not_heard_of_its_admission_may_ask_again() -> None:
    c = Checked()
    c.install("A", 3, "ABC")
    c.install("A", 4, "AB")
    c.install("A", 5, "ABC")
    c.install("C", 5, "ABC")
    assert c.found == []


def test_a_member_whose_view_is_none_that_it_installed_is_found() -> None:
    c = Checked()
    c.install("A", 2, "AB")
    c.install("B", 2, "AB")
    c.rest(A="AB", B="ABC")
    assert c.found == ["M2 view agreement"]


def test_a_member_that_never_installed_a_view_and_was_never_left_out_is_found() -> None:
    c = Checked()
    c.install("A", 2, "AB")
    c.install("B", 2, "AB")
    c.install("A", 3, "ABC")
    c.install("C", 3, "ABC")
    c.rest(A="ABC", B="AB", C="ABC")
    assert c.found == ["M2 view agreement"] * 2  # A and C installed it, B did not


def test_a_missed_view_is_made_good_by_a_later_one() -> None:
    c = Checked()
    c.install("A", 2, "AB")
    c.install("B", 2, "AB")
    c.install("A", 3, "ABC")
    c.install("A", 4, "ABCD")
    for who in "BCD":
        c.install(who, 4, "ABCD")
    c.rest(A="ABCD", B="ABCD", C="ABCD", D="ABCD")
    assert c.found == []


def test_a_member_that_was_left_out_needs_no_view() -> None:
    c = Checked()
    c.install("A", 2, "AB")
    c.install("A", 3, "A")
    c.rest(A="A")
    assert c.found == []
