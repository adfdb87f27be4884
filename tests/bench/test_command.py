"""How `./run bench` is called: its cases by name, and what it says of names that it does not know."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.command import CASES, app
from support.roots import ROOT


def test_an_unknown_case_is_refused_with_the_list() -> None:
    command = [sys.executable, "-m", "benchmarks", "--only", "client,dance"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no case dance; there are {', '.join(CASES)}" in done.stderr
    assert done.stderr.endswith("see ./run bench --help\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["membership", "migration", "planning", "connectivity", "eviction", "audit", "simulate", "spark"]
)
def test_each_study_is_a_command_of_its_own(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert "--json" in shown.stdout
