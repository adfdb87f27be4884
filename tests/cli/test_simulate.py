"""`phalanx simulate`: what it prints last, and how it ends."""

import json
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from phalanx.common.errors import UsageError
from phalanx.membership.claim.succession import Succession
from phalanx_proof.cli.simulate import simulate
from phalanx_proof.sim.exploration import fair_schedule

app = typer.Typer()
app.command()(simulate)


def call(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, result.stdout.splitlines()


def test_one_seed_ends_in_a_line_of_json_that_is_the_same_every_time() -> None:
    status, lines = call("--seed", "8")
    assert status == 0
    summary = json.loads(lines[-1])
    assert summary["seed"] == 8
    assert summary["violations"] == []
    assert summary["options"]["seed"] == 8
    assert summary["operations"] > 0
    assert summary["simulated_s_per_core_s"] > 0
    _, again = call("--seed", "8", "--json")
    assert len(again) == 1
    assert json.loads(again[0])["digest"] == summary["digest"]


def test_several_seeds_end_in_one_line_with_totals() -> None:
    status, lines = call("--seeds", "0:3", "--profile", "quiet")
    summary = json.loads(lines[-1])
    assert status == 0
    assert (summary["seeds"], summary["violations"], summary["failing_seeds"]) == ("0:3", 0, [])
    assert len(summary["digest"]) == 32


def test_two_processes_find_the_same() -> None:
    command = [sys.executable, "-m", "phalanx", "simulate", "--seeds", "0:4", "--profile", "quiet", "--json"]
    one, two = (
        json.loads(subprocess.run([*command, "--jobs", jobs], capture_output=True, text=True, check=True).stdout)
        for jobs in ("1", "2")
    )
    assert one["digest"] == two["digest"]
    assert one["messages"] == two["messages"]


def test_a_violation_is_told_with_the_command_that_repeats_it() -> None:
    arguments = ("--profile", "failover", "--canary", "tests.planted_bugs:drop-replica-early")
    status, lines = call("--seeds", "0:4", *arguments)
    summary = json.loads(lines[-1])
    assert status == 1
    assert summary["violations"]
    seed = summary["failing_seeds"][0]
    assert any(line.startswith("VIOLATION at ") for line in lines)
    (repeat,) = [line for line in lines if f"--seed {seed} " in line]
    assert repeat.split("phalanx simulate ")[1].split() == [
        "--seed", str(seed), "--profile", "failover", "--canary", "tests.planted_bugs:drop-replica-early", "--story",
    ]  # fmt: skip
    status, lines = call(*repeat.split("phalanx simulate ")[1].split())
    assert status == 1
    assert any("ViewInstalled" in line for line in lines)
    assert json.loads(lines[-1])["violations"]


def test_an_exploration_ends_in_a_line_with_what_it_went_through() -> None:
    status, lines = call("--explore", "3", "--depth", "4", "--limits", "crashes=1,times=0")
    summary = json.loads(lines[-1])
    assert status == 0
    assert summary["states"] == sum(each["states"] for each in summary["explored"]) > 100
    assert {each["start"] for each in summary["explored"]} > {"agreed", "behind"}
    assert summary["explored"][0]["limits"]["crashes"] == 1
    assert summary["explored"][0]["depth"] == 4


def test_a_violation_of_an_exploration_is_told_with_the_steps_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave_it_to_others(self: Succession, now: int) -> None:
        """Planted: nobody claims the mastership."""

    monkeypatch.setattr(Succession, "claim_if_due", leave_it_to_others)
    # A schedule that never ends in agreement is told after so many moves; those that do end take fewer.
    monkeypatch.setattr(fair_schedule, "MOST_MOVES", 300)
    status, lines = call("--explore", "3", "--start", "agreed", "--depth", "2")
    assert status == 1
    assert any(line.startswith("VIOLATION: ") for line in lines)
    (repeat,) = [line for line in lines if line.startswith("repeat with: ")]
    status, lines = call(*shlex.split(repeat.split("phalanx simulate ")[1]))
    assert status == 1
    assert any("BROKEN" in line for line in lines)
    assert json.loads(lines[-1])["findings"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--explore", "9"), "from 2 to 6"),
        (("--explore", "3", "--seed", "1"), "leave out --seed"),
        (("--explore", "3", "--start", "nowhere"), "there is no start"),
        (("--explore", "3", "--limits", "floods=1"), "expected NAME=NUMBER"),
        (("--explore", "3", "--replay", "crash A"), "say with --start"),
        (("--explore", "3", "--start", "agreed", "--replay", "fly A"), "is not a step"),
        ((), "give either"),
        (("--seed", "1", "--seeds", "0:2"), "give either"),
        (("--seeds", "2:2"), "is not a range"),
        (("--seeds", "a:b"), "is not a range"),
        (("--seed", "1", "--canary", "sparrow"), "expected MODULE:NAME, for example tests.planted_bugs:"),
        (("--seed", "1", "--canary", "..:sparrow"), "expected MODULE:NAME"),
        (("--seed", "1", "--canary", "no.such.aviary:sparrow"), "cannot import no.such.aviary .*PYTHONPATH"),
        (
            ("--seed", "1", "--canary", "tests.planted_bugs:sparrow"),
            "no planted bug 'sparrow' .* there are acknowledge-early,",
        ),
        (("--seed", "1", "--canary", "phalanx_proof.sim.run:sparrow"), "there are none"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        call(*arguments)
