"""Which version of a key remains when two sides come together: the properties of each policy, on all versions."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from phalanx.common.clock import COUNTER_BITS, with_stamp
from phalanx.common.map_settings import DEFAULT_MERGE_POLICY, MERGE_POLICIES
from phalanx.grid.replica.merge_policies import COUNTING, POLICIES, Verdict, Version, decide, merge

TEXT = b"\xff\xff\xff\xf5"
SYMMETRIC = ("latest-update", "latest-access", "higher-hits", "expiration-time")

few_stamps = st.integers(1, 4)
values = st.builds(
    lambda stamp, text, ttl_ms, accessed, hits: Version(with_stamp(stamp, TEXT + text), ttl_ms, accessed, hits),
    few_stamps,
    st.sampled_from((b"a", b"b")),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
)
removals = st.builds(lambda stamp: Version(with_stamp(stamp, b"")), few_stamps)
versions = st.one_of(values, values, removals)
perhaps = st.one_of(st.none(), versions)
policies = st.sampled_from(POLICIES)


def value(stamp: int, text: bytes = b"v", **statistics: int) -> Version:
    return Version(with_stamp(stamp, TEXT + text), **statistics)


def removal(stamp: int) -> Version:
    return Version(with_stamp(stamp, b""))


def stored(version: Version | None) -> bytes | None:
    return version.stored if version is not None else None


# --- algebra --------------------------------------------------------------------------------------------------------


@given(policies, versions)
def test_every_policy_is_idempotent(policy: str, version: Version) -> None:
    assert merge(policy, version, version) is version


@given(policies, versions, versions)
def test_what_a_merge_has_decided_it_decides_again(policy: str, kept: Version, here: Version) -> None:
    once = merge(policy, kept, here)
    assert stored(merge(policy, kept, once)) == stored(once)


@given(st.sampled_from(SYMMETRIC), perhaps, perhaps)
def test_of_these_it_does_not_matter_which_side_goes_on(
    policy: str, one: Version | None, other: Version | None
) -> None:
    one_way, other_way = merge(policy, one, other), merge(policy, other, one)
    if stored(one) == stored(other):
        return  # One write: what was read of it may differ.
    assert one_way == other_way


@given(st.sampled_from(("latest-update", "put-if-absent", "discard")), perhaps, perhaps, perhaps)
def test_with_these_the_order_in_which_three_sides_merge_does_not_matter(
    policy: str, a: Version | None, b: Version | None, c: Version | None
) -> None:
    one_way = merge(policy, c, merge(policy, b, a))
    other_way = merge(policy, merge(policy, c, b), a)
    assert stored(one_way) == stored(other_way)


@given(policies, values, values, values)
def test_nor_does_it_with_any_policy_among_values(
    policy: str, a: Version | None, b: Version | None, c: Version | None
) -> None:
    assume(len({stored(each) for each in (a, b, c)}) == 3)
    one_way = merge(policy, c, merge(policy, b, a))
    other_way = merge(policy, merge(policy, c, b), a)
    assert stored(one_way) == stored(other_way)


@given(st.sampled_from(SYMMETRIC), perhaps, perhaps, perhaps)
def test_nor_where_no_removal_lies_between_two_writes(
    policy: str, a: Version | None, b: Version | None, c: Version | None
) -> None:
    there = [each for each in (a, b, c) if each is not None]
    assume(len({each.stored for each in there}) == len(there))
    written = [each.stamp for each in there if not each.is_removal]
    removed = [each.stamp for each in there if each.is_removal]
    assume(not written or all(at < min(written) or at >= max(written) for at in removed))
    one_way = merge(policy, c, merge(policy, b, a))
    other_way = merge(policy, merge(policy, c, b), a)
    assert stored(one_way) == stored(other_way)


@pytest.mark.parametrize("policy", ["latest-access", "higher-hits", "expiration-time"])
def test_more_cannot_be_had_with_statistics(policy: str) -> None:
    """Each of the three wins against the next, so no order of all versions can be behind the policy."""
    popular = value(1, b"v", ttl_ms=0, accessed_ms=99, hits=99)
    removed, unread = removal(2), value(3, b"w", ttl_ms=1)
    assert merge(policy, popular, unread) is popular
    assert merge(policy, unread, removed) is unread
    assert merge(policy, removed, popular) is removed


# --- what each is for -----------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-11")
def test_the_newer_write_wins_on_either_side() -> None:
    older, newer = value(1), value(2, b"w")
    assert merge("latest-update", newer, older) is merge("latest-update", older, newer) is newer


def test_of_one_stamp_the_removal_wins_and_then_the_greater_bytes() -> None:
    a, b, gone = value(1, b"a"), value(1, b"b"), removal(1)
    for policy in SYMMETRIC:
        assert merge(policy, a, b) is merge(policy, b, a) is b
        assert merge(policy, gone, b) is merge(policy, b, gone) is gone


def test_the_value_that_was_read_last_wins_and_a_write_counts_as_a_reading() -> None:
    read, written = value(1, accessed_ms=70), value(50 << COUNTER_BITS, b"w")
    assert merge("latest-access", read, written) is merge("latest-access", written, read) is read
    read_earlier = value(1, accessed_ms=49)
    assert merge("latest-access", read_earlier, written) is written


def test_the_value_that_was_read_more_often_wins() -> None:
    often = value(1, hits=5)
    assert merge("higher-hits", often, value(2, b"w", hits=4)) == often
    assert merge("higher-hits", value(2, b"w", hits=4), often) == often


def test_the_value_that_lives_longer_wins_and_for_ever_is_longest() -> None:
    long, short, for_ever = value(1, b"l", ttl_ms=20), value(3, b"s", ttl_ms=10), value(2, b"e")
    assert merge("expiration-time", short, long) is merge("expiration-time", long, short) is long
    assert merge("expiration-time", for_ever, long) is merge("expiration-time", long, for_ever) is for_ever


@given(versions, versions)
def test_put_if_absent_and_discard_leave_what_is_here(kept: Version, here: Version) -> None:
    assert merge("put-if-absent", kept, here) is here
    assert merge("discard", kept, here) is here


@given(versions)
def test_what_is_nowhere_here_comes_in_unless_it_is_discarded(kept: Version) -> None:
    for policy in POLICIES:
        assert merge(policy, kept, None) is (None if policy == "discard" else kept)
        assert merge(policy, None, kept) is kept


@given(values, values)
def test_pass_through_takes_what_was_kept(kept: Version, here: Version) -> None:
    assert stored(merge("pass-through", kept, here)) == kept.stored


# --- removals -------------------------------------------------------------------------------------------------------


@pytest.mark.rows("EL-60", "PX-13")
@given(policies, values, few_stamps)
def test_no_policy_brings_back_what_was_removed_here_after_it_was_written(
    policy: str, kept: Version, later: int
) -> None:
    here = removal(kept.stamp + later)
    assert merge(policy, kept, here) is here


@given(
    st.sampled_from([policy for policy in POLICIES if policy not in ("put-if-absent", "discard")]), values, few_stamps
)
def test_a_removal_on_the_other_side_ends_what_was_written_before_it(policy: str, here: Version, later: int) -> None:
    kept = removal(here.stamp + later)
    assert merge(policy, kept, here) is kept


@given(st.sampled_from([policy for policy in POLICIES if policy != "discard"]), removals, few_stamps)
def test_a_removal_ends_nothing_that_was_written_after_it(policy: str, removed: Version, later: int) -> None:
    written = value(removed.stamp + later)
    assert merge(policy, removed, written) is written


# --- the verdict ----------------------------------------------------------------------------------------------------


@pytest.mark.rows("PX-11")
@given(policies, versions)
def test_sides_that_wrote_nothing_change_nothing(policy: str, version: Version) -> None:
    assert decide(policy, version, version, version.stamp, 0) is Verdict.SAME


@pytest.mark.rows("EL-60")
@given(policies, versions, st.integers(1, 5))
def test_what_was_written_here_after_the_other_side_ended_stays(policy: str, kept: Version, later: int) -> None:
    here = value(kept.stamp + later, b"here")
    assert decide(policy, kept, here, kept.stamp, 0) is Verdict.LATE


@pytest.mark.rows("EL-60", "PX-13")
@given(policies, values, st.integers(0, 3))
def test_an_entry_that_may_have_been_removed_too_long_ago_is_not_brought_back(
    policy: str, kept: Version, later: int
) -> None:
    assert decide(policy, kept, None, 9, kept.stamp + later) is Verdict.TOO_OLD
    assert not Verdict.TOO_OLD.is_taken


@given(values, st.integers(1, 3))
def test_one_that_is_newer_than_all_forgotten_removals_is(kept: Version, earlier: int) -> None:
    assert decide("put-if-absent", kept, None, 9, kept.stamp - earlier) is Verdict.ALONE


@given(removals, st.integers(0, 3))
def test_a_removal_that_is_forgotten_here_says_nothing_new(kept: Version, later: int) -> None:
    assert decide("latest-update", kept, None, 9, kept.stamp + later) is Verdict.SAME


@given(policies, versions, versions)
def test_both_winners_are_conflicts_and_only_one_is_taken(policy: str, kept: Version, here: Version) -> None:
    assume(kept.stored != here.stored)
    verdict = decide(policy, kept, here, 9, 0)
    assert verdict.is_conflict
    assert verdict.is_taken == (merge(policy, kept, here) is kept)


def test_every_policy_that_a_map_may_have_is_known_here() -> None:
    assert set(MERGE_POLICIES) == set(POLICIES)
    assert DEFAULT_MERGE_POLICY in POLICIES
    assert set(POLICIES) > COUNTING
