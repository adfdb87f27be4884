"""Histories in which members have little memory, while they crash, come and go, and are cut off (PX-24, PX-25)."""

import pytest

from phalanx_proof.sim.options import Profile
from planted_bugs.memory import MEMORY_CANARIES
from support.histories import count_all, play_all, ranges
from support.planted import assert_found


@pytest.mark.parametrize("seeds", ranges(range(8, 12), size=8, count=3))
def test_what_members_count_is_what_they_hold_and_what_they_refuse_changes_nothing(seeds: range) -> None:
    counts = count_all(seeds, Profile.MEMORY)
    assert counts["refused for want of memory"] > 100
    assert counts["measurements looked at"] > 1_000


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 20 * block, 1_020 + 20 * block), Profile.MEMORY)


FOUND_BY = {
    "take-copies-uncounted": {"a member counts what it takes"},
    "follow-uncounted": {"a member counts what it takes"},
    "count-data-once": {"the size of data is exact at rest"},
}


def test_every_bug_of_memory_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(MEMORY_CANARIES)


@pytest.mark.parametrize("canary", FOUND_BY)
def test_bugs_of_memory_are_found(canary: str) -> None:
    assert_found(canary, Profile.MEMORY, range(90), FOUND_BY[canary])
