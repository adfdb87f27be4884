"""The histories by which planted bugs are found are sound without them."""

import pytest

from phalanx_proof.sim.options import Profile
from support.planted import SEEDS, is_sound


@pytest.mark.long
@pytest.mark.parametrize(("profile", "seed"), SEEDS.all_known())
def test_nothing_is_violated_without_the_bug(profile: Profile, seed: int) -> None:
    assert is_sound(seed, profile)
