"""Histories in which maps are bounded, and their bounds are changed, while members crash, hang, come and go, and are cut off."""

import pytest

from phalanx_proof.sim.options import Profile
from planted_bugs.eviction import EVICTION_CANARIES
from support.histories import blocks, count_all, play_all
from support.planted import assert_found


@pytest.mark.parametrize("block", blocks(3, in_brief=(2,)))
def test_no_more_is_evicted_than_must_and_readers_of_journals_are_told_once_whatever_breaks(block: int) -> None:
    counts = count_all(range(6 * block, 6 * block + 6), Profile.BOUNDED)
    assert counts["entries evicted"] > 500
    assert counts["events read"] > 1_000


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 20 * block, 1_020 + 20 * block), Profile.BOUNDED)


FOUND_BY = {
    "evict-unheard": {"who is given a replica has it", "replicas are equal at rest"},
    "evict-one-more": {"no more is evicted than must"},
    "evict-newest": {"what was written first is evicted first"},
    "evict-what-is-over": {"an event tells what has happened"},
    "tell-evictions-as-ends": {"journals are equal at rest", "an event stays what it was"},
    "forget-reads-of-many": {"an owner knows what was read"},
    "evict-what-was-used-since": {"what is used least is evicted first", "what was written first is evicted first"},
    "miscount-what-is-overwritten": {"a member never fails", "bytes are counted as they are"},
    "leave-it-to-the-next-write": {"a bounded map keeps to its bound"},
}


def test_every_bug_of_bounded_maps_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(EVICTION_CANARIES)


@pytest.mark.parametrize("canary", FOUND_BY)
def test_bugs_of_bounded_maps_are_found(canary: str) -> None:
    assert_found(canary, Profile.BOUNDED, range(90), FOUND_BY[canary])
