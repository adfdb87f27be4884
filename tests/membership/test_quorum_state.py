"""Which side has the majority of the last stable view, and what each member knows of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.ids import MemberId
from phalanx.common.quorum import (
    Footing,
    StableView,
    accepted,
    closed,
    found,
    gathered,
    lacking,
    present_in,
    settled,
    step,
    voters_of,
)
from phalanx.common.traits import Traits
from phalanx.common.view import MembersView


def view(members: str, version: int) -> MembersView:
    ids = tuple(map(MemberId, members))
    return MembersView(version, ids[0], ids)


def names(stable: StableView) -> str:
    return "".join(stable.voters)


def stable_of(members: str, number: int = 5) -> Footing:
    ids = tuple(map(MemberId, members))
    return Footing(MemberId("A"), StableView(number, number, ids[0], ids), number)


@pytest.mark.rows("EL-50", "EL-63")
@pytest.mark.parametrize(
    ("before", "after", "has_majority"),
    [("ABCDE", "ABC", True), ("ABCDE", "CDE", True), ("ABCDE", "AB", False), ("ABCD", "AB", False), ("ABCD", "BCD", True),
     ("AB", "A", False), ("A", "AB", True), ("ABC", "ABCDEFGH", True), ("ABC", "ADEFGH", False)],
)  # fmt: skip
def test_more_than_half_of_the_stable_views_members_must_be_there_however_many_others_are(
    before: str, after: str, has_majority: bool
) -> None:
    footing = step(stable_of(before), view(after, 6), ())
    assert footing.has_majority is has_majority
    assert not footing.is_stable


@pytest.mark.rows("EL-63")
def test_a_side_shrinks_in_steps_once_each_view_is_stable() -> None:
    three = step(stable_of("ABCDE"), view("ABC", 6), ())
    assert not step(three, view("AB", 7), ()).has_majority, "C may not have it: two of five"
    two = step(settled(three, view("ABC", 6)), view("AB", 7), ())
    assert two.has_majority
    assert names(settled(two, view("AB", 7)).stable) == "AB"


@pytest.mark.rows("EL-63")
def test_a_view_that_only_some_have_seen_gives_neither_side_a_majority_that_the_other_has_too() -> None:
    five = stable_of("ABCDE")
    three = step(five, view("ABC", 6), ())
    # A and B have it, and C does not: it will never be stable, as A knows.
    assert not step(three, view("AB", 7), ()).has_majority
    assert step(five, view("CDE", 7), ()).has_majority
    # A and C have it, and whether B has it only A knows: C brings it along, and D and E alone have no majority of it.
    brought = gathered([closed(three, view("ABC", 6)), five])
    assert [names(each) for each in (brought.stable, *brought.pending)] == ["ABCDE", "ABC"]
    assert not step(brought, view("CDE", 8), ()).has_majority
    assert step(brought, view("BCDE", 8), ()).has_majority


def test_a_later_stable_view_ends_all_doubts_about_earlier_ones() -> None:
    three = closed(step(stable_of("ABCDE"), view("ABC", 6), ()), view("ABC", 6))
    later = gathered([three, stable_of("BCD", 9)])
    assert (names(later.stable), later.pending) == ("BCD", ())
    # One as late is kept: of two accounts that do not know of each other both must hold.
    rival = gathered([stable_of("ABC", 9), stable_of("BCD", 9)])
    assert len(rival.pending) == 1


@pytest.mark.rows("EL-21")
def test_a_process_that_comes_back_votes_for_its_former_identity_and_a_new_one_does_not() -> None:
    four = stable_of("ABCD")
    assert not step(four, view("AB", 6), ()).has_majority
    former = ((MemberId("X"), MemberId("C")), (MemberId("Y"), MemberId("D")))
    whole = step(four, view("ABXY", 7), former)
    assert whole.has_majority
    assert names(settled(whole, view("ABXY", 7)).stable) == "ABCD"
    assert not step(four, view("ABXY", 7), ()).has_majority


def test_members_that_hold_no_data_do_not_vote_but_keep_the_vote_that_they_had() -> None:
    lite = ((MemberId("C"), Traits(lite=True)),)
    mixed = MembersView(6, MemberId("A"), tuple(map(MemberId, "ABC")), lite)
    assert voters_of(mixed, ()) == ("A", "B")
    assert lacking(stable_of("CDE"), present_in(mixed, ())) is not None
    assert lacking(stable_of("ACE"), present_in(mixed, ())) is None
    only = MembersView(6, MemberId("C"), (MemberId("C"),), lite)
    assert found(only).stable.voters == ("C",)


@pytest.mark.rows("EL-63")
def test_a_leaver_is_counted_by_the_master_that_it_has_left() -> None:
    assert not step(stable_of("AB"), view("A", 6), ()).has_majority
    assert step(stable_of("AB"), view("A", 6), (), left=[MemberId("B")]).has_majority


def test_an_operator_makes_the_present_view_the_stable_one_above_all_that_was_known() -> None:
    brought = gathered([closed(step(stable_of("ABCDE"), view("ABC", 6), ()), view("ABC", 6))])
    alone = step(brought, view("D", 9), ())
    assert not alone.has_majority
    taken = accepted(alone, view("D", 9))
    assert taken.is_stable
    assert names(taken.stable) == "D"
    assert gathered([taken, brought]).stable == taken.stable


members = st.sets(st.sampled_from("ABCDEFG"), min_size=1).map(lambda some: "".join(sorted(some)))


@given(members, members, members)
def test_no_two_views_without_a_common_member_both_have_the_majority(before: str, one: str, other: str) -> None:
    if not set(one) & set(other):
        sides = [step(stable_of(before), view(side, 6), ()).has_majority for side in (one, other)]
        assert sides != [True, True]
