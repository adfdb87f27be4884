"""With leases no two owners acknowledge at the same time, whatever breaks; without, there is a window, and it is found."""

from __future__ import annotations

import msgspec
import pytest

from phalanx_proof.sim.fault import Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result
from phalanx_proof.sim.run import run
from planted_bugs import CANARIES
from planted_bugs.leases import LEASE_CANARIES
from support.histories import play_all

NEVER_HEALS = 60_000
CONFLICT = "no two owners acknowledge at the same time"


def play(seeds: range, profile: Profile = Profile.LEASE) -> list[Result]:
    """The results of histories; with leases, in which nobody acknowledged what another one owned."""
    judged = (CONFLICT, "each stable view has the majority of the one before it")
    return play_all(seeds, profile, lambda violation: violation.what in judged)


def staged(*deaf_to: tuple[int, int], profile: Profile = Profile.LEASE) -> HistoryOptions:
    """Four members with leases of twice the heartbeat timeout; from then on nothing arrives on these ways."""
    faults = tuple(
        Fault(3_000, FaultKind.CUT_ONE_WAY, sender, receiver, lasts_ms=NEVER_HEALS) for sender, receiver in deaf_to
    )
    return msgspec.structs.replace(
        draw_options(3, profile), members=4, hosts=4, start_at_ms=(0, 700, 700, 700), backups=1, partitions=8,
        heartbeat_timeout_ms=1_200, claim_timeout_ms=1_200, latency_ms=(1, 2), clock_ppm=(), traits=(), duration_ms=9_000,
        lease_ms=2_400 if profile is Profile.LEASE else 0, faults=faults, operations_per_second=60, registers=8,
        failure_detector="deadline", wall_ms=(), stays_whole_ms=2_400,
    )  # fmt: skip


MASTER_NOT_HEARD = ((0, 1), (0, 2), (0, 3))
"""The master hears all others, and they do not hear it: they go on without it before it notices."""
SLAVE_NOT_HEARD = ((3, 0), (3, 1), (3, 2))
"""A slave hears all others: it is removed and does not know it."""


@pytest.mark.rows("EL-50", "EL-63")
def test_with_leases_no_two_owners_acknowledge_at_the_same_time() -> None:
    results = play(range(4))
    assert sum(result.counts["acknowledgements looked at"] for result in results) > 1_500
    assert sum(result.counts["conflicting acknowledgements"] for result in results) == 0


def test_a_crashed_owner_is_none_any_more_when_its_side_has_joined_another_one() -> None:
    """1. A cut; an owner on the side of the many answers, and crashes. 2. The side joins the other one, whose owner goes on."""
    (result,) = play(range(277, 278))
    assert result.counts["conflicting acknowledgements"] == 0


def test_an_owner_whose_process_has_merged_elsewhere_is_none_any_more() -> None:
    """1. A cut; an owner on the side of the many answers. 2. Its process joins the other side, and merges what it held. 3. Who is
    left alone on the side of the many names it still, and the other side, which has the votes of those that came, answers."""
    (result,) = play(range(997_299, 997_300))
    assert result.counts["conflicting acknowledgements"] == 0


@pytest.mark.rows("PX-33")
def test_nobody_owns_what_a_removed_member_held_before_the_majority_knows_of_the_removal() -> None:
    """1. The master removes C, and B never hears of it. 2. B claims with C, which goes on as the owner that it was."""
    (result,) = play(range(900_020, 900_021))
    assert result.counts["conflicting acknowledgements"] == 0


@pytest.mark.long
@pytest.mark.parametrize("block", range(4))
def test_the_same_in_many_more_histories(block: int) -> None:
    play(range(1_000 + 50 * block, 1_050 + 50 * block))


@pytest.mark.rows("EL-50")
@pytest.mark.parametrize("ways", [MASTER_NOT_HEARD, SLAVE_NOT_HEARD])
def test_without_leases_there_is_a_window_and_with_them_there_is_none(ways: tuple[tuple[int, int], ...]) -> None:
    window = run(staged(*ways, profile=Profile.WINDOW)).counts
    assert window["conflicting acknowledgements"] > 0
    assert 100 < window["longest window ms"] < 10_000
    closed = run(staged(*ways)).counts
    assert closed["conflicting acknowledgements"] == 0
    assert closed["acknowledgements looked at"] > 500


CAUGHT_BY = {
    "grant-too-long": SLAVE_NOT_HEARD,
    "promote-too-early": SLAVE_NOT_HEARD,
    "majority-by-count": MASTER_NOT_HEARD,
}
DRAWN_CAUGHT_BY = {"serve-without-lease": 21, "removals-at-once": 900_020}
"""Canary to the seed of a history."""


@pytest.mark.rows("EL-50", "PX-33")
@pytest.mark.parametrize("canary", LEASE_CANARIES)
def test_a_planted_bug_lets_two_owners_acknowledge(canary: str) -> None:
    seed = DRAWN_CAUGHT_BY.get(canary)
    options = draw_options(seed, Profile.LEASE) if seed is not None else staged(*CAUGHT_BY[canary])
    result = run(options, CANARIES[canary])
    assert CONFLICT in {violation.what for violation in result.violations}
