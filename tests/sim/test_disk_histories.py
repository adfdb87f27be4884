"""Histories in which disks of members fail, or are full for a while, while they crash, come and go, and are cut off (DU-41, 42, 45)."""

import pytest

from phalanx_proof.sim.options import Profile
from support.histories import blocks, count_all, play_all


@pytest.mark.parametrize("block", blocks(3, in_brief=(1,)))
def test_members_without_disks_acknowledge_nothing_and_hand_over_what_they_hold(block: int) -> None:
    counts = count_all(range(8 * block, 8 * block + 8), Profile.DISKS)
    assert counts["failed disks"] > 3
    assert counts["members that left a failed disk"] > 1


def test_what_is_being_copied_when_a_disk_fails_is_not_cleared() -> None:
    """The targets of rows that do not move first are those that their migrations lead to."""
    play_all(range(80, 81), Profile.DISKS)


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_the_same_in_many_more_histories(block: int) -> None:
    play_all(range(1_000 + 20 * block, 1_020 + 20 * block), Profile.DISKS)
