"""Histories in which processes come back with their folders: one by one, all together, and all together while the cluster is split."""

from collections import Counter

import pytest

from phalanx_proof.sim.options import Profile
from support.histories import blocks, count_all, play_all, ranges

SEEDS = {Profile.RESTART: 1_400, Profile.OUTAGE: 1_400, Profile.POWER_CUTS: 0}
"""Profiles, to the first seed of their blocks."""


@pytest.mark.rows("DU-07")
@pytest.mark.parametrize("profile", SEEDS)
@pytest.mark.parametrize("block", blocks(10, in_brief=(0,)))
def test_processes_come_back_with_their_folders_and_nothing_is_lost(profile: Profile, block: int) -> None:
    first = SEEDS[profile] + 8 * block
    results = play_all(range(first, first + 8), profile)
    counts = sum((Counter(result.counts) for result in results), Counter[str]())
    assert counts["judged removals"] > 0
    assert counts["orderly ends"] > 0
    assert profile is not Profile.RESTART or counts["judged logs"] > 0
    assert profile is Profile.RESTART or sum(result.faults.get("outage", 0) for result in results) > 3


@pytest.mark.parametrize("seeds", ranges(range(30, 34), size=16, count=10, first=30))
def test_restored_clusters_stay_apart_from_those_of_their_backups(seeds: range) -> None:
    """DU-23: the folders of all are backed up, and restored beside a cluster that is switched off, or whose members come back one by one."""
    assert count_all(seeds, Profile.RESTORED)["restored members that serve"] > 0.75 * len(seeds)
