"""The drawing of faults: the same seed draws the same, and nothing is drawn that backups do not allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.errors import UsageError
from phalanx_proof.chaos.plan import (
    ACCEPTABLE_PAUSE_MS,
    HEARTBEAT_TIMEOUT_MS,
    HURTING,
    MOST_AT_ONCE,
    ChaosKind,
    ChaosOptions,
    draw_plan,
)

drawn_options = st.builds(
    lambda seed, backups, more, seconds: ChaosOptions(
        seed=seed, seconds=seconds, members=max(3, backups + 2) + more, backups=backups
    ),
    seed=st.integers(0, 10**9),
    backups=st.integers(0, 6),
    more=st.integers(0, 4),
    seconds=st.integers(10, 300),
)


def test_a_seed_draws_the_same_plan_every_time_and_another_seed_another() -> None:
    assert draw_plan(ChaosOptions(seed=7)) == draw_plan(ChaosOptions(seed=7))
    assert draw_plan(ChaosOptions(seed=7)) != draw_plan(ChaosOptions(seed=8))


@given(drawn_options)
def test_never_more_are_hurt_at_once_than_there_are_backups(options: ChaosOptions) -> None:
    plan = draw_plan(options)
    assert all(1 <= len(fault.ranks) <= options.backups for fault in plan.hurting)
    assert {fault.kind for fault in plan.hurting} <= HURTING.keys()
    assert not {fault.kind for fault in plan.gentle} & HURTING.keys()


@given(st.integers(0, 10**9))
def test_without_backups_members_only_stop_and_join(seed: int) -> None:
    plan = draw_plan(ChaosOptions(seed=seed, backups=0))
    assert plan.hurting == ()
    assert {fault.kind for fault in plan.gentle} <= {ChaosKind.STOP, ChaosKind.JOIN}


@given(drawn_options)
def test_faults_are_in_order_and_strike_different_members_within_the_time(options: ChaosOptions) -> None:
    plan = draw_plan(options)
    for lane in (plan.hurting, plan.gentle):
        times = [fault.at_s for fault in lane]
        assert times == sorted(times)
        assert all(0 < at_s < options.seconds for at_s in times)
        assert all(len(set(fault.ranks)) == len(fault.ranks) for fault in lane)
    assert len(plan.lines()) == len(plan.hurting) + len(plan.gentle)


@given(drawn_options)
def test_a_pause_is_shorter_than_what_raises_suspicion_and_a_hang_is_longer(options: ChaosOptions) -> None:
    plan = draw_plan(options)
    for fault in (*plan.hurting, *plan.gentle):
        if fault.kind is ChaosKind.PAUSE:
            assert 0 < fault.lasts_s * 1000 <= ACCEPTABLE_PAUSE_MS / 2
            assert len(fault.ranks) == 1
        elif fault.kind is ChaosKind.HANG:
            assert fault.lasts_s * 1000 > HEARTBEAT_TIMEOUT_MS
        else:
            assert fault.lasts_s == 0


def test_ten_minutes_hold_every_kind_several_at_once_and_the_oldest_among_them() -> None:
    plan = draw_plan(ChaosOptions(seed=1, seconds=600, backups=2))
    drawn = [*plan.hurting, *plan.gentle]
    assert {fault.kind for fault in drawn} == set(ChaosKind)
    assert {len(fault.ranks) for fault in plan.hurting} == {1, 2}
    stops = [fault for fault in plan.gentle if fault.kind is ChaosKind.STOP]
    assert {len(fault.ranks) for fault in stops} == set(range(1, MOST_AT_ONCE + 1))
    assert any(0 in fault.ranks and len(fault.ranks) > 1 for fault in stops)
    assert sum(0 in fault.ranks for fault in drawn) > len(drawn) / 4


@pytest.mark.parametrize(("members", "backups"), [(2, 0), (2, 1), (3, 2), (7, 6)])
def test_a_member_that_goes_must_leave_enough_for_all_replicas(members: int, backups: int) -> None:
    with pytest.raises(UsageError, match=f"--members {members} are too few for --backups {backups}"):
        ChaosOptions(members=members, backups=backups)
    assert ChaosOptions(members=members + 1, backups=backups).fewest == members
