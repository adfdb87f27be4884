"""Histories in which programs lock and write with tokens, while members crash, hang, come and go, and are cut off."""

import pytest

from phalanx_proof.sim.options import Profile
from planted_bugs.locks import LOCK_CANARIES
from support.histories import blocks, count_all, play_all
from support.planted import assert_found


@pytest.mark.parametrize("block", blocks(3, in_brief=(1,)))
def test_one_holds_a_lock_and_tokens_grow_whatever_breaks(block: int) -> None:
    counts = count_all(range(5 * block, 5 * block + 5), Profile.LOCKS)
    assert counts["locks granted"] > 100
    assert counts["writes with tokens"] > 40
    assert counts["tokens refused, locks lost"] > 5


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 20 * block, 1_020 + 20 * block), Profile.LOCKS)


HOLDERS, TOKENS, WRITES = (
    "no more hold it at a time than are allowed",
    "a token only grows",
    "an older token is refused",
)
FOUND_BY = {
    "grant-before-backups": {HOLDERS, TOKENS},
    "end-leases-at-takeover": {HOLDERS},
    "hold-twice": {HOLDERS},
    "count-tokens": {TOKENS},
    "take-any-token": {WRITES},
    "forget-used-tokens": {WRITES},
    "forget-leases": {"the cluster becomes whole after healing"},
}


def test_every_bug_of_locks_has_an_expectation() -> None:
    assert set(FOUND_BY) == set(LOCK_CANARIES)


@pytest.mark.parametrize("canary", FOUND_BY)
def test_bugs_of_locks_are_found(canary: str) -> None:
    assert_found(canary, Profile.LOCKS, range(200), FOUND_BY[canary])
