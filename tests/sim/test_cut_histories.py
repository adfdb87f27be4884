"""Histories in which the network breaks in parts, all sides write, and it heals: nothing acknowledged is missing."""

from collections import Counter

import pytest

from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result
from support.histories import blocks, play_all


def play(seeds: range) -> list[Result]:
    return play_all(seeds, Profile.CUTS)


@pytest.mark.rows("EL-58", "EL-59", "EL-60", "EL-61", "EL-62", "EL-63", "PD-25", "PD-28")
@pytest.mark.parametrize("block", blocks(4, in_brief=(3,)))
def test_whatever_is_cut_and_heals_there_is_one_cluster_with_the_latest_of_both_sides(block: int) -> None:
    results = play(range(16 * block, 16 * block + 16))
    events: Counter[str] = Counter()
    for result in results:
        events.update(result.events)
    assert events["OtherSideFound"] > 10
    assert events["MergeEnded"] > 10
    assert events["MergeConflicts"] > 5
    # Where something may be gone with its last process, there is less to find.
    assert sum(not result.counts["excused losses"] for result in results) >= 6


@pytest.mark.long
@pytest.mark.parametrize("block", range(8))
def test_the_same_in_many_more_histories(block: int) -> None:
    play(range(1_000 + 50 * block, 1_050 + 50 * block))


def test_cuts_of_every_shape_are_drawn() -> None:
    drawn = [draw_options(seed, Profile.CUTS) for seed in range(300)]
    kinds = Counter(fault.kind for options in drawn for fault in options.faults)
    assert {FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.JOIN, FaultKind.LEAVE, FaultKind.PAUSE} <= set(kinds)
    lasting = sum(any(fault.lasts_ms > options.duration_ms for fault in options.faults) for options in drawn)
    assert 100 < lasting < 300
    assert 30 < sum(any(each.lite for each in options.traits) for options in drawn) < 150
