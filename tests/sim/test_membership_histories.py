"""Whole clusters in which everything can go wrong between members: nothing that must hold was ever violated."""

import msgspec
import pytest

from phalanx_proof.sim.durations import distribution
from phalanx_proof.sim.fault import FaultKind
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import repeat_command
from phalanx_proof.sim.run import run
from phalanx_proof.sim.shrink import shrink
from planted_bugs import CANARIES
from support.histories import ranges


@pytest.mark.rows("CS-21", "CS-22", "CS-24", "CS-25")
@pytest.mark.parametrize("seeds", ranges(range(90, 105), size=30, count=5))
def test_members_that_are_cut_off_paused_and_told_twice_agree_in_the_end(seeds: range) -> None:
    results = [run(draw_options(seed, Profile.MEMBERSHIP)) for seed in seeds]
    for result in results:
        told = "\n".join(f"{v.at_ms} ms: {v.what}: {v.story}" for v in result.violations)
        assert not result.violations, f"{told}\nrepeat with: {repeat_command(result)}"
    happened = set().union(*(result.faults for result in results))
    assert {FaultKind.CUT_ONE_WAY, FaultKind.PAUSE, FaultKind.CRASH, FaultKind.JOIN} <= happened
    assert sum(result.events.get("ClaimEnded", 0) for result in results) > 5
    assert sum(result.events.get("OtherSideFound", 0) for result in results) > 5


def test_a_history_shrinks_to_the_faults_that_it_needs() -> None:
    options, planted = draw_options(1, Profile.MEMBERSHIP), CANARIES["claim-without-asking"]
    smallest = shrink(options, planted)
    wanted = run(options, planted).violations[0].what
    assert wanted in {violation.what for violation in run(smallest, planted).violations}
    assert len(smallest.faults) < len(options.faults)
    for index in range(len(smallest.faults)):
        faults = smallest.faults[:index] + smallest.faults[index + 1 :]
        found = run(msgspec.structs.replace(smallest, faults=faults), planted).violations
        assert wanted not in {violation.what for violation in found}


def test_a_history_without_violation_stays_as_it_is() -> None:
    options = draw_options(0, Profile.MEMBERSHIP)
    assert shrink(options) == options


def test_the_crash_of_a_member_is_noticed_in_measured_time() -> None:
    results = [run(draw_options(seed, Profile.MEMBERSHIP)) for seed in range(4)]
    detected = [each for result in results for each in result.detected_after_ms]
    assert detected
    assert all(each >= 0 for each in detected)


def test_a_distribution_is_told_by_its_median_and_its_end() -> None:
    assert distribution([]) == {"count": 0}
    assert distribution([5]) == {"count": 1, "median": 5, "p99": 5, "max": 5}
    assert distribution(range(101)) == {"count": 101, "median": 50, "p99": 99, "max": 100}
