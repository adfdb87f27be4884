"""Histories in which replicas move all the time, and who takes part is hurt at some step of it."""

from collections import Counter

import pytest

from phalanx_proof.sim.fault import MIGRATION_KINDS, FaultKind
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import Result
from support.histories import play_all, ranges


def play(seeds: range) -> list[Result]:
    return play_all(seeds, Profile.MIGRATIONS)


@pytest.mark.rows("DL-11", "DL-16", "DL-21", "DL-22", "DL-29", "DL-59")
@pytest.mark.parametrize("seeds", ranges(range(10), size=20, count=5))
def test_whoever_is_hurt_while_replicas_move_no_acknowledged_write_is_lost(seeds: range) -> None:
    results, many = play(seeds), len(seeds)
    events: Counter[str] = Counter()
    for result in results:
        events.update(result.events)
    assert events["MigrationCommitted"] > 20 * many
    assert events["MigrationRolledBack"] > many // 2
    assert events["PartitionSealed"] > 5 * many
    # Where something may be lost with all its replicas, there is less to find.
    strict = [
        result for result in results if not result.counts["excused losses"] and not result.counts.get("lost partitions")
    ]
    assert len(strict) >= 0.6 * many


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_the_same_in_many_more_histories(block: int) -> None:
    play(range(1_000 + 100 * block, 1_100 + 100 * block))


def test_a_fault_waits_for_the_migration_that_it_is_about() -> None:
    drawn = [fault for seed in range(200) for fault in draw_options(seed, Profile.MIGRATIONS).faults]
    assert {fault.during for fault in drawn} == {"", *MIGRATION_KINDS}
    at_a_step = {FaultKind.CRASH_ON, FaultKind.CRASH_SENDING, FaultKind.CUT_ON, FaultKind.PAUSE_ON}
    while_another_is_slow = {FaultKind.CRASH, FaultKind.LEAVE}
    assert {fault.kind for fault in drawn if fault.during} == at_a_step | while_another_is_slow
