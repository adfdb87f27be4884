"""Which side has the majority of the last stable view, and what each member knows of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId
from phalanx.common.quorum import (
    QuorumRecord,
    QuorumView,
    VoterHistory,
    accept_view,
    after_master_loss,
    combine_records,
    find_lacking,
    first_record,
    next_record,
    present_in,
    stable_record,
    voters_of,
)
from phalanx.common.store import StoreStart
from phalanx.common.traits import Traits
from phalanx.common.versions import this_release
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.machine.outbox import Outbox
from phalanx.membership.quorum.quorum_state import QuorumState


def view(members: str, version: int) -> MembersView:
    ids = tuple(map(MemberId, members))
    return MembersView(version, ids[0], ids)


def names(stable: QuorumView) -> str:
    return "".join(stable.voters)


def stable_of(members: str, number: int = 5) -> QuorumRecord:
    ids = tuple(map(MemberId, members))
    return QuorumRecord(MemberId("A"), QuorumView(number, number, ids[0], ids), number)


@pytest.mark.rows("EL-50", "EL-63")
@pytest.mark.parametrize(
    ("before", "after", "has_majority"),
    [("ABCDE", "ABC", True), ("ABCDE", "CDE", True), ("ABCDE", "AB", False), ("ABCD", "AB", False), ("ABCD", "BCD", True),
     ("AB", "A", False), ("A", "AB", True), ("ABC", "ABCDEFGH", True), ("ABC", "ADEFGH", False)],
)  # fmt: skip
def test_more_than_half_of_the_stable_views_members_must_be_there_however_many_others_are(
    before: str, after: str, has_majority: bool
) -> None:
    footing = next_record(stable_of(before), view(after, 6), ())
    assert footing.has_majority is has_majority
    assert not footing.is_stable


@pytest.mark.rows("EL-63")
def test_a_side_shrinks_in_steps_once_each_view_is_stable() -> None:
    three = next_record(stable_of("ABCDE"), view("ABC", 6), ())
    assert not next_record(three, view("AB", 7), ()).has_majority, "C may not have it: two of five"
    two = next_record(stable_record(three, view("ABC", 6)), view("AB", 7), ())
    assert two.has_majority
    assert names(stable_record(two, view("AB", 7)).stable) == "AB"


@pytest.mark.rows("EL-63")
def test_a_view_that_only_some_have_seen_gives_neither_side_a_majority_that_the_other_has_too() -> None:
    five = stable_of("ABCDE")
    three = next_record(five, view("ABC", 6), ())
    # A and B have it, and C does not: it will never be stable, as A knows.
    assert not next_record(three, view("AB", 7), ()).has_majority
    assert next_record(five, view("CDE", 7), ()).has_majority
    # A and C have it, and whether B has it only A knows: C brings it along, and D and E alone have no majority of it.
    brought = combine_records([after_master_loss(three, view("ABC", 6)), five])
    assert [names(each) for each in (brought.stable, *brought.pending)] == ["ABCDE", "ABC"]
    assert not next_record(brought, view("CDE", 8), ()).has_majority
    assert next_record(brought, view("BCDE", 8), ()).has_majority


def test_a_later_stable_view_ends_all_doubts_about_earlier_ones() -> None:
    three = after_master_loss(next_record(stable_of("ABCDE"), view("ABC", 6), ()), view("ABC", 6))
    later = combine_records([three, stable_of("BCD", 9)])
    assert (names(later.stable), later.pending) == ("BCD", ())
    # One as late is kept: of two accounts that do not know of each other both must hold.
    rival = combine_records([stable_of("ABC", 9), stable_of("BCD", 9)])
    assert len(rival.pending) == 1


@pytest.mark.rows("EL-21")
def test_a_process_that_comes_back_votes_for_its_former_identity_and_a_new_one_does_not() -> None:
    four = stable_of("ABCD")
    assert not next_record(four, view("AB", 6), ()).has_majority
    former = ((MemberId("X"), MemberId("C")), (MemberId("Y"), MemberId("D")))
    whole = next_record(four, view("ABXY", 7), former)
    assert whole.has_majority
    assert names(stable_record(whole, view("ABXY", 7)).stable) == "ABCD"
    assert not next_record(four, view("ABXY", 7), ()).has_majority


def test_members_that_hold_no_data_do_not_vote_but_keep_the_vote_that_they_had() -> None:
    lite = ((MemberId("C"), Traits(lite=True)),)
    mixed = MembersView(6, MemberId("A"), tuple(map(MemberId, "ABC")), lite)
    assert voters_of(mixed, ()) == ("A", "B")
    assert find_lacking(stable_of("CDE"), present_in(mixed, ())) is not None
    assert find_lacking(stable_of("ACE"), present_in(mixed, ())) is None
    only = MembersView(6, MemberId("C"), (MemberId("C"),), lite)
    assert first_record(only).stable.voters == ("C",)


@pytest.mark.rows("EL-63")
def test_a_leaver_is_counted_by_the_master_that_it_has_left() -> None:
    assert not next_record(stable_of("AB"), view("A", 6), ()).has_majority
    assert next_record(stable_of("AB"), view("A", 6), (), left=[MemberId("B")]).has_majority


def test_an_operator_makes_the_present_view_the_stable_one_above_all_that_was_known() -> None:
    brought = combine_records([after_master_loss(next_record(stable_of("ABCDE"), view("ABC", 6), ()), view("ABC", 6))])
    alone = next_record(brought, view("D", 9), ())
    assert not alone.has_majority
    taken = accept_view(alone, view("D", 9))
    assert taken.is_stable
    assert names(taken.stable) == "D"
    assert combine_records([taken, brought]).stable == taken.stable


members = st.sets(st.sampled_from("ABCDEFG"), min_size=1).map(lambda some: "".join(sorted(some)))


@given(members, members, members)
def test_no_two_views_without_a_common_member_both_have_the_majority(before: str, one: str, other: str) -> None:
    if not set(one) & set(other):
        sides = [next_record(stable_of(before), view(side, 6), ()).has_majority for side in (one, other)]
        assert sides != [True, True]


def test_an_old_folder_brings_no_vote_to_a_living_side() -> None:
    """DU-56: A is left alone of {A,B}. B comes back with a folder of before its last start: A does not get the majority by it."""
    ids = (MemberId("A"), MemberId("B"))
    folders = tuple((each, StoreStart(each * 4, 4)) for each in ids)
    both = MembersView(2, ids[0], ids, stores=folders)
    for start, votes in ((3, False), (5, True)):
        quorum = QuorumState(LocalContext(ids[0], NodeConfig(), this_release(), Outbox()), None)
        quorum.on_view_made(both)
        alone = both.with_change(ids[0], frozenset(ids[1:]), ())
        quorum.on_view_made(alone)
        assert not quorum.has_majority
        memory = VoterHistory(ids[1], first_record(both))
        back = MemberId("B2")
        quorum.learn_history(back, memory, None, start)
        quorum.on_view_made(
            alone.with_change(ids[0], frozenset(), (back,), (), None, [(back, StoreStart("B" * 4, start))])
        )
        assert quorum.has_majority is votes


@pytest.mark.rows("DU-29")
def test_who_comes_back_votes_by_the_name_that_its_folder_gave_it() -> None:
    a, b, back = MemberId("A"), MemberId("B"), MemberId("B2")
    quorum = QuorumState(LocalContext(a, NodeConfig(), this_release(), Outbox()), None)
    assert quorum.voters_besides(()) == set()
    both = view("AB", 1)
    quorum.on_view_made(both)
    quorum.learn_history(back, VoterHistory(b, first_record(both)), None)
    quorum.on_view_made(both.with_change(a, frozenset([b]), (back, MemberId("C"))))
    assert quorum.voters_besides(()) == {"A", "B", "C"}
    assert quorum.voters_besides([back]) == {"A", "C"}


@pytest.mark.rows("DU-24")
@pytest.mark.parametrize(
    ("folders", "has_folder", "here", "missing"),
    [((1, 1, 0), False, "CD", "AB"), ((), True, "CD", "AB"), ((), False, "CD", None), ((1, 1, 1), True, "BCD", None)],
    ids=["others have folders", "this member has one", "nobody has one", "the majority is here"],
)
def test_who_has_read_nothing_knows_who_is_missing_that_can_have(
    folders: tuple[int, ...], has_folder: bool, here: str, missing: str | None
) -> None:
    stable = stable_of("ABC").stable
    footing = QuorumRecord(MemberId("A"), QuorumView(5, 5, stable.maker, stable.voters, folders), 5)
    store = StoreStart("d", 1) if has_folder else None
    quorum = QuorumState(LocalContext(MemberId("D"), NodeConfig(), this_release(), Outbox(), store=store), None)
    present = view(here, 6)
    quorum.adopt(present, next_record(footing, present, ()), is_master=False)
    assert quorum.missing_voters() == (None if missing is None else tuple(missing))
