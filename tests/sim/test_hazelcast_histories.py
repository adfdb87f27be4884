"""Histories in which Hazelcast clients speak to members that crash, hang, come and go."""

import msgspec

from phalanx.sim.options import Profile
from phalanx.sim.profiles.drawing import draw_options
from phalanx.sim.run import run


def test_no_acknowledged_write_is_lost_or_done_twice_and_no_answer_is_wrong() -> None:
    commands = 0
    for seed in range(6):
        result = run(msgspec.structs.replace(draw_options(seed, Profile.REDIS), hazelcast=True))
        assert result.violations == []
        commands += result.counts["commands of Redis clients"]
    assert commands > 300
