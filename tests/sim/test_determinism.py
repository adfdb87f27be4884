"""A seed is a history: the same every time, on every interpreter."""

import os
import subprocess
import sys

import msgspec
import pytest

from phalanx.sim.drawing import draw_options
from phalanx.sim.options import Options, Profile
from phalanx.sim.run import digest_of_all, run, run_many

PRINT_DIGEST = """
from phalanx.sim.options import Profile
from phalanx.sim.run import digest_of_all, run_many
of_others = [*run_many(range(2), Profile.FAILOVER), *run_many(range(2), Profile.CUTS)]
print(digest_of_all([*run_many(range(4)), *of_others, *run_many(range(20), Profile.MEMBERSHIP)]))
"""


@pytest.mark.parametrize("profile", [Profile.DEFAULT, Profile.FAILOVER, Profile.CUTS, Profile.MEMBERSHIP])
def test_a_seed_repeats_its_history(profile: Profile) -> None:
    first, second = (digest_of_all(run_many(range(5, 8), profile)) for _ in range(2))
    assert first == second


def test_different_seeds_are_different_histories() -> None:
    assert len({result.digest for result in run_many(range(4), Profile.QUIET)}) == 4


def test_the_order_of_sets_and_dicts_of_an_interpreter_does_not_matter() -> None:
    digests = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PRINT_DIGEST]
        digests.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests[0].strip()) == 32
    assert digests[0] == digests[1]


def test_the_printed_options_are_the_whole_history() -> None:
    for options in (draw_options(12, Profile.FAILOVER), draw_options(12, Profile.MEMBERSHIP)):
        again = msgspec.json.decode(msgspec.json.encode(options), type=Options)
        assert again == options
        assert run(again).digest == run(options).digest


def test_telling_the_story_changes_nothing() -> None:
    options = draw_options(3)
    told = run(options, story=True)
    assert told.story
    assert told.digest == run(options).digest
