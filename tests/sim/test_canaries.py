"""The simulator is not blind: a bug planted in the members is found."""

import pytest

from phalanx.sim.canaries import CANARIES
from phalanx.sim.drawing import draw_options
from phalanx.sim.options import Profile
from phalanx.sim.run import Result, repeat_command, run

SEEDS = range(90)
"""Histories that one canary may survive before it counts as not found."""

FOUND_BY = {
    "acknowledge-early": {"no acknowledged write is lost", "reads by the owner are not stale"},
    "install-older-views": {"M1 view order", "views only move on", "age order"},
    "promote-without-table": {"a member never fails", "the cluster becomes whole after healing"},
    "drop-replica-early": {
        "no acknowledged write is lost", "reads by the owner are not stale", "replicas are equal at rest",
    },
    "commit-copy-early": {"no acknowledged write is lost", "reads by the owner are not stale"},
    "skip-table-search": {"one owner per partition and version"},
    "retry-once-only": {"a counter is raised once by a call", "reads by the owner are not stale"},
    "resend-nothing": {
        "the cluster becomes whole after healing", "no acknowledged write is lost", "reads by the owner are not stale",
    },
    "claim-too-soon": {"age order", "the cluster becomes whole after healing", "a member never fails"},
}  # fmt: skip


def find(canary: str) -> Result:
    for profile in (Profile.FAILOVER, Profile.DEFAULT):
        for seed in SEEDS:
            result = run(draw_options(seed, profile), canary)
            if result.violations:
                return result
    raise AssertionError(f"{canary} was planted and not found in {2 * len(SEEDS)} histories")


def test_every_canary_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(CANARIES)


@pytest.mark.parametrize("canary", CANARIES)
def test_a_planted_bug_is_found(canary: str) -> None:
    result = find(canary)
    assert result.violations[0].what in FOUND_BY[canary]
    assert f"--seed {result.seed}" in repeat_command(result)
    assert f"--canary {canary}" in repeat_command(result)
