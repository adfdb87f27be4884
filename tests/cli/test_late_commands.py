"""What takes long to import is imported by the commands that need it: a member starts without the simulator and Spark."""

import inspect
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.testing
from typer.main import get_command

import phalanx
from phalanx.cli.late_commands import LATE, LateCommandGroup
from phalanx.cli.main import app
from phalanx.runtime.process.processes import start_member_process
from support.commands import Command

HEAVY = (
    "phalanx_proof",
    "phalanx_spark",
    "phalanx.archive",
    "phalanx.spark",
)
OUTSIDE = ("pyspark", "pyarrow", "numpy", "pandas", "networkx")
NOT_OF_A_MEMBER = (
    *(
        "phalanx.client.sync",
        "phalanx.client.aio",
        "phalanx.client.core.client_core",
        "phalanx.client.blocking.session_driver",
        "phalanx.client.ask",
    ),
    *("phalanx.cli.main", "phalanx.cli.app", "phalanx.cli.status", "phalanx.cli.maps", "phalanx.cli.output"),
    *("phalanx_protocols.hazelcast", "phalanx_protocols.resp", "phalanx.integrations", "phalanx.testing"),
    *(
        "phalanx.http.server",
        "phalanx.http.api",
        "phalanx.http.console",
        "phalanx.http.metrics",
        "phalanx.http.openapi",
    ),
)
NO_PACKAGES = (
    "typer",
    "click",
    "rich",
    "pydantic",
    "shellingham",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "opentelemetry",
)
TOLD = f"""
import atexit, json, sys
heavy = {(*HEAVY, *OUTSIDE)!r}
def tell():
    print(json.dumps([name for name in sys.modules if name.startswith(heavy)]), file=sys.stderr, flush=True)
atexit.register(tell)
sys.argv[0] = "phalanx"
from phalanx.cli.main import main
main()
"""


@pytest.mark.parametrize("arguments", [["--help"], ["member", "--help"], ["map", "list", "--help"], ["--version"]])
def test_help_imports_neither_the_simulator_nor_spark(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", TOLD, *arguments], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr) == []
    assert done.stdout


def test_the_simulator_would_be_noticed() -> None:
    """Else the tests here could not fail."""
    done = subprocess.run(
        [sys.executable, "-c", TOLD, "simulate", "--help"], capture_output=True, text=True, check=True
    )
    assert "phalanx_proof.sim.run" in json.loads(done.stderr)


def test_a_member_process_starts_where_they_cannot_be_imported(tmp_path: Path) -> None:
    """Nor what is there for those who ask a cluster, for help, and for ports that this one has not."""
    assert all(find_spec(name) for name in (*HEAVY, *NOT_OF_A_MEMBER)), "a module that is banned has another name now"
    program = f"""
import sys
class Ban:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({(*HEAVY, *OUTSIDE, *NOT_OF_A_MEMBER)!r}) or name in {NO_PACKAGES!r}:
            raise AssertionError(name + " is imported by a member")
sys.meta_path.insert(0, Ban())
sys.argv[0] = "phalanx"
from phalanx.__main__ import main
main()
"""
    with start_member_process(tmp_path / "log", program=[sys.executable, "-c", program]) as process:
        process.wait_ready()
        with phalanx.Client(process.address) as grid:
            grid.map("flights")["UA1"] = "EWR"
            assert grid.map("flights")["UA1"] == "EWR"


def test_all_commands_are_listed_with_the_help_that_they_have(phalanx_command: Command) -> None:
    group = get_command(app)
    assert isinstance(group, LateCommandGroup)
    shown = {name: command.get_short_help_str(1_000) for name, command in group.commands.items()}
    assert shown.keys() >= {late.name for late in LATE}
    group.load_all()
    for late in LATE:
        [first, *_] = inspect.cleandoc(group.commands[late.name].help or "").split("\n\n")
        assert " ".join(first.split()) == late.said
    text = " ".join(phalanx_command("--help").stdout.split())
    assert all(late.name in text for late in LATE)


def test_a_late_command_runs_and_refuses_as_others_do() -> None:
    runner = typer.testing.CliRunner()
    played = runner.invoke(app, ["simulate", "--seed", "7", "--profile", "membership"])
    assert (played.exit_code, json.loads(played.stdout.splitlines()[-1])["seed"]) == (0, 7)
    assert runner.invoke(app, ["simulate", "--no-such"]).exit_code == 2
    wrong = runner.invoke(app, ["advise", "nope"])
    assert (wrong.exit_code, "No such command 'nope'" in wrong.stderr) == (2, True)
    assert "Did you mean 'simulate'?" in runner.invoke(app, ["simulat"]).stderr
