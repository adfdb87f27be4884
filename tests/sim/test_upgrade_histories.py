"""Histories in which members of the last release and of this tree live in one cluster, and change from one to the other (PX-42 to
PX-46): with crashes, cuts, migrations and masters that end in the middle. `tests/support/upgrading.py` says how."""

import os
import subprocess
import sys
from typing import Any

import pytest

from phalanx_proof.sim.options import Profile
from phalanx_proof.sim.profiles.drawing import draw_options
from phalanx_proof.sim.run import run
from support.roots import ROOT
from support.upgrading import CANARIES, PLANS, MixedWorld

BRIEF = 3
LONG = 40
PROFILES = (Profile.DEFAULT, Profile.FAILOVER, Profile.MIGRATIONS, Profile.CUTS, Profile.MEMBERSHIP, Profile.LOCKS)


def play(seeds: range, profile: Profile, plan: str) -> None:
    told = []
    for seed in seeds:
        for violation in run(draw_options(seed, profile), CANARIES[plan]).violations[:1]:
            again = f"phalanx simulate --seed {seed} --profile {profile} --canary tests.support.upgrading:{plan}"
            told.append(f"{violation.at_ms} ms: {violation.what}: {violation.story}\nrepeat with: {again}")
    assert not told, "\n".join(told)


@pytest.mark.parametrize("plan", PLANS)
def test_the_command_finds_a_plan_by_its_name(plan: str) -> None:
    """In a process of its own: this one finds more modules."""
    program = f"from phalanx_proof.sim.planted_bug import load_planted_bug; load_planted_bug({CANARIES[plan].name!r})"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def cases(count: int) -> list[Any]:
    """A case of each profile, with plans in turn."""
    return [pytest.param(range(count), profile, PLANS[place % len(PLANS)]) for place, profile in enumerate(PROFILES)]


@pytest.mark.parametrize(("seeds", "profile", "plan"), cases(BRIEF))
def test_nothing_is_lost_in_an_upgrade(seeds: range, profile: Profile, plan: str) -> None:
    before = MixedWorld.seen.copy()
    play(seeds, profile, plan)
    seen = MixedWorld.seen - before
    assert seen["views of members of both releases"]
    assert bool(seen["views at the newer version"]) == (plan != "held")


@pytest.mark.parametrize(
    ("seed", "profile", "plan"),
    [(30, Profile.CUTS, "upgrade"), (11, Profile.CUTS, "upgrade"), (33, Profile.JOURNAL, "rollback")],
)
def test_a_member_that_was_cut_off_is_let_in_although_all_that_saw_it_were_upgraded(
    seed: int, profile: Profile, plan: str
) -> None:
    """PX-44: else it is refused for its release, or two sides never become one."""
    before = MixedWorld.seen["refused for their release"]
    play(range(seed, seed + 1), profile, plan)
    assert MixedWorld.seen["refused for their release"] == before


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("profile", [*PROFILES, Profile.JOURNAL, Profile.STAGING, Profile.BOUNDED, Profile.LEASE])
def test_nothing_is_lost_in_many_upgrades(profile: Profile, plan: str) -> None:
    play(range(BRIEF, LONG), profile, plan)
    assert MixedWorld.seen["masters changed by crash"]
