"""Histories in which memory, disks and logs give out: a member ends, or nothing happens; no half steps."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.reports.trace_rows import PROCESS_EVENT, TraceWriter
from phalanx_proof.sim.fault import AFTER, BEFORE, CARRYING, INSIDE, MASTER, Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from planted_bugs.driver import DRIVER_CANARIES
from support.planted import assert_found

NEEDS = {"go-on-half-done": FaultKind.MEMORY, "stop-at-full-disk": FaultKind.DISK}
FOUND_BY = {
    "go-on-half-done": {"the cluster becomes whole after healing", "no acknowledged write is lost"},
    "stop-at-full-disk": {"the cluster becomes whole after healing", "a view begins at its maker"},
}


def with_faults(*faults: Fault) -> HistoryOptions:
    """A small history in which nothing else goes wrong."""
    return msgspec.structs.replace(draw_options(3, Profile.FAILOVER), faults=faults, duration_ms=6_000)


@pytest.mark.parametrize("canary", sorted(DRIVER_CANARIES))
def test_a_planted_bug_of_the_driver_is_found(canary: str) -> None:
    drawn = {seed: draw_options(seed, Profile.FAILOVER) for seed in range(90)}
    seeds = [seed for seed, options in drawn.items() if any(each.kind is NEEDS[canary] for each in options.faults)]
    result = assert_found(canary, Profile.FAILOVER, seeds, FOUND_BY[canary])
    assert not run(drawn[result.seed]).violations


@pytest.mark.parametrize("point", [BEFORE, INSIDE, AFTER, CARRYING])
@pytest.mark.parametrize("host", [MASTER, 1], ids=["master", "slave"])
def test_a_member_that_runs_out_of_memory_ends_as_in_a_crash(point: str, host: int) -> None:
    options = with_faults(Fault(3_000, FaultKind.MEMORY, host, lasts_ms=500, what=point, nth=1))
    told = run(options, story=True)
    assert not told.violations
    assert told.counts["points reached"] == 1
    assert sum("--- crashed out of memory" in line for line in told.story) == 1


def test_a_disk_that_fails_changes_nothing_but_the_log() -> None:
    fails = Fault(2_000, FaultKind.DISK, 0, lasts_ms=1_300)
    crash = Fault(2_500, FaultKind.CRASH, 1, lasts_ms=800)
    whole, torn = TraceWriter("whole"), TraceWriter("torn")
    with_disk = run(with_faults(crash), trace=whole)
    without = run(with_faults(fails, crash), trace=torn)
    assert without.digest == with_disk.digest
    assert not without.violations
    gaps = [(row.member, msgspec.json.decode(row.fields)) for row in torn.rows if row.event == "EventsLost"]
    assert len(gaps) == 1
    member, gap = gaps[0]
    assert gap["missing"] == len(whole.rows) - (len(torn.rows) - 1) > 0
    assert gap["missing_ms"] <= 4_000
    left_out = [row for row in whole.rows if row.member == member and 2_000 <= row.at < 3_300]
    assert gap["missing"] == sum(row.event != PROCESS_EVENT for row in left_out)


def test_an_incarnation_whose_log_is_lost_tells_nothing() -> None:
    lost = (Fault(1_000, FaultKind.LOSE_LOG, 1), Fault(2_000, FaultKind.CRASH, 1, lasts_ms=300))
    kept = TraceWriter("kept")
    told = run(with_faults(*lost), trace=kept)
    assert told.digest == run(with_faults(lost[1])).digest
    silent = {row.member for row in kept.rows} - {row.member for row in kept.rows if row.event != PROCESS_EVENT}
    assert len(silent) == 1


def test_what_gives_out_is_drawn_beside_what_was_drawn_before() -> None:
    """From a stream of its own: all else in a history is what it would be without."""
    kinds = {FaultKind.MEMORY, FaultKind.DISK, FaultKind.LOSE_LOG}
    with_kind = dict.fromkeys(kinds, 0)
    for seed in range(60):
        drawn = draw_options(seed, Profile.MIGRATIONS)
        for kind in kinds & {fault.kind for fault in drawn.faults}:
            with_kind[kind] += 1
    assert min(with_kind.values()) > 0
    assert not any(fault.kind in kinds for fault in draw_options(1, Profile.TIMEOUTS).faults)
