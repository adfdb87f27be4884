"""The grid's clock: stamps that only grow, one time for all who hear each other, one rate on both sides of a cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.clock import (
    COUNTER_BITS,
    MAX_AHEAD_MS,
    MAX_STAMP,
    GridClock,
    stamp_of,
    value_of,
    with_stamp,
)

HOURS = 4 * 3_600_000
OFFSETS = st.integers(1_700_000_000_000 - HOURS, 1_700_000_000_000 + HOURS) | st.just(0)
STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["stamp", "observe", "read"]), st.integers(0, 2**62)), max_size=60
)  # fmt: skip


STAMPS = st.integers(0, MAX_AHEAD_MS << COUNTER_BITS)


def ms(stamp: int) -> int:
    return stamp >> COUNTER_BITS


@pytest.mark.rows("EL-63")
@given(OFFSETS, STEPS)
def test_stamps_only_grow_and_are_above_all_that_was_taken_in(offset: int, steps: list[tuple[int, str, int]]) -> None:
    clock, now, greatest = GridClock(offset), 1_000, 0
    for passed, what, other in steps:
        now += passed
        if what == "stamp":
            stamp = clock.stamp(now)
            assert stamp > greatest
            assert ms(stamp) >= now + offset
            greatest = stamp
        elif what == "observe" and clock.observe(other, now):
            greatest = max(greatest, other)
        assert clock.read(now) >= greatest
    assert clock.stamp(now) > greatest


@pytest.mark.rows("EL-63")
@given(st.lists(OFFSETS, min_size=2, max_size=6), st.integers(0, 100_000), st.integers(0, 3_600_000))
def test_who_hears_one_another_comes_to_the_greatest_clock_and_keeps_its_rate_after_a_cut(
    offsets: list[int], now: int, later: int
) -> None:
    clocks = [GridClock(offset) for offset in offsets]
    for told in [clock.read(now) for clock in clocks]:
        for clock in clocks:
            assert clock.observe(told, now)
    assert {ms(clock.read(now)) for clock in clocks} == {now + max(offsets)}
    # Nobody hears anybody from here on.
    assert {ms(clock.read(now + later)) for clock in clocks} == {now + later + max(offsets)}


@pytest.mark.rows("EL-63")
@given(
    st.tuples(OFFSETS, OFFSETS),
    st.lists(st.tuples(st.integers(0, 1), st.integers(2, 10_000)), min_size=2, max_size=40),
    st.booleans(),
)
def test_after_a_cut_the_later_write_has_the_greater_stamp_whatever_the_wall_clocks_show(
    offsets: tuple[int, int], writes: list[tuple[int, int]], writes_before: bool
) -> None:
    """Apart from a millisecond: members may hear the other's clock at its end."""
    sides = [GridClock(offset) for offset in offsets]
    now = 50_000
    if writes_before:
        # What was stored, and not heartbeats alone, raises a clock.
        stamp = sides[0].stamp(now)
        assert sides[1].observe(stamp, now)
        assert sides[0].observe(sides[1].read(now), now)
    else:
        for one, other in ((0, 1), (1, 0)):
            assert sides[one].observe(sides[other].read(now), now)
    last = 0
    for side, pause in writes:
        now += pause
        stamp = sides[side].stamp(now)
        assert stamp > last
        last = stamp


def test_a_full_counter_carries_into_the_milliseconds() -> None:
    clock = GridClock()
    first = clock.stamp(10)
    assert (ms(first), first & 0xFFFF) == (10, 0)
    last = [clock.stamp(10) for _ in range(1 << COUNTER_BITS)][-1]
    assert (ms(last), last & 0xFFFF) == (11, 0)
    assert clock.stamp(11) == last + 1
    assert clock.read(11) == last + 1
    assert ms(clock.stamp(12)) == 12


@pytest.mark.rows("EL-63")
def test_nonsense_moves_no_clock() -> None:
    clock, now = GridClock(1_700_000_000_000), 1_000
    before = clock.read(now)
    in_microseconds = (1_700_000_000_000_000 << COUNTER_BITS) & (2**64 - 1)
    for nonsense in (-1, MAX_STAMP + 1, 2**64 - 1, in_microseconds, before + ((MAX_AHEAD_MS + 1) << COUNTER_BITS)):
        assert not clock.observe(nonsense, now), nonsense
        assert clock.read(now) == before
    assert clock.observe(before + (MAX_AHEAD_MS << COUNTER_BITS), now)
    assert clock.offset_ms == 1_700_000_000_000 + MAX_AHEAD_MS


def test_a_machine_that_begins_in_1970_comes_to_the_time_of_the_others() -> None:
    young = GridClock()
    assert young.observe(GridClock(1_800_000_000_000).read(5), 5)
    assert ms(young.stamp(7)) == 1_800_000_000_007
    assert GridClock(-1_000).stamp(5) == 1, "before its beginning is its beginning"


def test_an_older_clock_is_heard_and_changes_nothing() -> None:
    clock = GridClock(5_000)
    stamp = clock.stamp(10)
    assert clock.observe(stamp - 1, 10)
    assert clock.observe(0, 10)
    assert clock.offset_ms == 5_000
    assert clock.stamp(10) == stamp + 1


@given(STAMPS, STAMPS, st.binary(max_size=20), st.binary(max_size=20))
def test_stored_values_stand_in_the_order_of_their_stamps(one: int, other: int, value: bytes, another: bytes) -> None:
    stored, beside = with_stamp(one, value), with_stamp(other, another)
    assert (stamp_of(stored), value_of(stored)) == (one, value)
    if one != other:
        assert (stored < beside) == (one < other)
    clock = GridClock()
    clock.observe_stored([stored, beside], 0)
    assert clock.read(0) >= max(one, other)


@given(STEPS)
def test_the_short_way_gives_the_same_stamps(steps: list[tuple[int, str, int]]) -> None:
    clock, twin, now = GridClock(7), GridClock(7), 1_000
    for passed, what, other in steps:
        now += passed
        if what == "observe":
            assert clock.observe(other, now) == twin.observe(other, now)
        else:
            assert clock.stamped(b"value", now) == with_stamp(twin.stamp(now), b"value")


@given(st.integers(-(10**10), 10**10), st.integers(0, 10**6))
def test_who_joins_goes_by_the_clock_of_the_cluster_and_takes_nobody_along(ahead_ms: int, now: int) -> None:
    cluster, joiner = GridClock(1_700_000_000_000), GridClock(1_700_000_000_000 + ahead_ms)
    shown = cluster.read(now)
    joiner.adopt(shown, now)
    assert ms(joiner.read(now)) == ms(shown)
    assert cluster.observe(joiner.read(now + 500), now + 500)
    assert ms(cluster.read(now + 500)) == ms(shown) + 500
    assert joiner.stamp(now) > shown
