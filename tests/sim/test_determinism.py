"""A seed is a history: the same every time, on every interpreter."""

import os
import subprocess
import sys

import msgspec
import pytest

from phalanx_proof.sim.options import HistoryOptions, Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.result import digest_of_all
from phalanx_proof.sim.run import run, run_many

PRINT_DIGEST = """
import sys
from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.result import digest_of_all
from phalanx_proof.sim.run import run_many
results = []
for argument in sys.argv[1:]:
    profile, first, last = argument.split(":")
    results += run_many(range(int(first), int(last)), Profile(profile))
print(digest_of_all(results))
"""
IN_BRIEF = ("default:0:1", "failover:5:6", "cuts:1:2", "membership:0:4", "staging:0:1", "journal:4:5")
AT_LENGTH = (
    "default:0:4", "failover:0:2", "cuts:0:2", "membership:0:20", "migrations:0:4", "staging:0:4", "journal:0:4",
    "bounded:0:4",
)  # fmt: skip
"""Profiles, each with the first seed and the one behind the last."""

REPEATED = (Profile.DEFAULT, Profile.FAILOVER, Profile.CUTS, Profile.MEMBERSHIP)


def repeats(profile: Profile, seeds: range) -> bool:
    first, second = (digest_of_all(run_many(seeds, profile)) for _ in range(2))
    return first == second


@pytest.mark.parametrize("profile", REPEATED)
def test_a_seed_repeats_its_history(profile: Profile) -> None:
    assert repeats(profile, range(5, 6))


@pytest.mark.long
@pytest.mark.parametrize("profile", REPEATED)
def test_more_seeds_repeat_their_histories(profile: Profile) -> None:
    assert repeats(profile, range(5, 25))


def test_different_seeds_are_different_histories() -> None:
    assert len({result.digest for result in run_many(range(4), Profile.QUIET)}) == 4


@pytest.mark.parametrize("played", [IN_BRIEF, pytest.param(AT_LENGTH, marks=pytest.mark.long)], ids=["brief", "long"])
def test_the_order_of_sets_and_dicts_of_an_interpreter_does_not_matter(played: tuple[str, ...]) -> None:
    digests = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PRINT_DIGEST, *played]
        digests.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests[0].strip()) == 32
    assert digests[0] == digests[1]


def test_the_printed_options_are_the_whole_history() -> None:
    for options in (draw_options(5, Profile.FAILOVER), draw_options(12, Profile.MEMBERSHIP)):
        again = msgspec.json.decode(msgspec.json.encode(options), type=HistoryOptions)
        assert again == options
        assert run(again).digest == run(options).digest


def test_telling_the_story_changes_nothing() -> None:
    options = draw_options(4)
    told = run(options, story=True)
    assert told.story
    assert told.digest == run(options).digest
