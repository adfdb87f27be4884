"""Whole histories in which slaves cannot reach each other, with data and without backups: nothing is lost."""

from collections import Counter
from random import Random

import msgspec
import pytest

from phalanx_proof.sim.fault import Fault, FaultKind
from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run

IN_BRIEF, AT_LENGTH = range(4), range(12)


def draw(seed: int) -> HistoryOptions:
    """Host 0 forms the cluster, and is not cut: whom the master does not reach it removes at once."""
    rng = Random(f"partial cuts:{seed}")
    options = draw_options(seed, Profile.QUIET)
    members = rng.choice((3, 4, 4, 5, 5, 6, 7))
    faults = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        one, other = rng.sample(range(1, members), 2)
        kind = rng.choice((FaultKind.CUT, FaultKind.CUT, FaultKind.CUT_ONE_WAY))
        faults.append(Fault(rng.randrange(4_000, 9_000), kind, one, other, lasts_ms=rng.choice((3_000, 20_000))))
    return msgspec.structs.replace(
        options,
        members=members,
        hosts=members,
        start_at_ms=(0, *(1_000 + rng.randrange(500) for _ in range(members - 1))),
        backups=rng.choice((0, 0, 0, 1, 2)),
        traits=(),
        faults=tuple(faults),
        duration_ms=18_000,
        heartbeat_interval_ms=500,
        heartbeat_timeout_ms=2_500,
        connection_grace_ms=200,
        operations_per_second=30,
        stays_whole_ms=3_000,
    )


@pytest.mark.rows("PD-24", "PD-28", "PD-33", "PN-05")
@pytest.mark.parametrize("seeds", [IN_BRIEF, pytest.param(AT_LENGTH, marks=pytest.mark.long)], ids=len)
def test_partial_cuts_lose_nothing(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        result = run(draw(seed))
        assert not result.violations, (seed, result.violations[0])
        seen.update(result.events)
    assert seen["ResolutionDecided"] > len(seeds) // 2
    assert seen["EvacuationStarted"] > len(seeds) // 4
    assert seen["PartitionLost"] == 0
