"""Defects that are known and not mended yet: each history must still show its own, and nothing else may hide behind it."""

import pytest

from histories import KNOWN
from phalanx.sim.drawing import draw_options
from phalanx.sim.options import Profile
from phalanx.sim.run import run


@pytest.mark.long
@pytest.mark.parametrize(("profile", "seed"), sorted(KNOWN, key=str))
def test_a_known_defect_is_the_only_one_of_its_history(profile: Profile, seed: int) -> None:
    found = {violation.what for violation in run(draw_options(seed, profile)).violations}
    assert found == {KNOWN[profile, seed]}, "mended? then take it out of the list"
