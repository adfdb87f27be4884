"""Commands and members find the cluster's secret in the file that they are given, or that the environment names."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from phalanx.cli.late_commands import LateCommandGroup
from phalanx.cli.main import app
from phalanx.net.secret import SECRET_FILE_VARIABLE
from phalanx.runtime.settings.load_config import load_config
from support.commands import Command
from support.processes import Cluster


def test_a_member_is_asked_with_the_secret_only(
    phalanx_command: Command, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    file = tmp_path / "secret"
    file.write_text("a secret of this cluster\n")
    file.chmod(0o600)
    (member,) = cluster.start(wait=False, options=("--secret-file", str(file)))
    at = ("--at", member.address, "--cluster", cluster.name)

    put = phalanx_command("map", "put", "m", "k", "1", *at, "--secret-file", str(file))
    assert put.exit_code == 0
    for command in (["members"], ["partitions"], ["safe"], ["why", member.address], ["map", "size", "m"]):
        refused = phalanx_command(*command, *at)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert (
            "the cluster has a secret, and the connecting side gave none: give it the cluster's secret file"
            in refused.stderr
        )
        assert phalanx_command(*command, *at, "--secret-file", str(file)).stderr == ""

    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(file))
    got = phalanx_command("map", "get", "m", "k", *at, "--json")
    assert json.loads(got.stdout)["value"] == 1


def commands(group: Any) -> list[Any]:
    """All commands below this one."""
    return [
        each
        for command in group.commands.values()
        for each in (commands(command) if hasattr(command, "commands") else [command])
    ]


def test_every_command_that_asks_a_cluster_takes_the_file() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, LateCommandGroup)
    group.load_all()
    options = [{option for parameter in each.params for option in parameter.opts} for each in commands(group)]
    asking = [each for each in options if "--at" in each]
    assert len(asking) >= 11
    assert all("--secret-file" in each for each in asking)


def test_a_file_that_is_not_there_is_named_by_its_option(phalanx_command: Command, tmp_path: Path) -> None:
    result = phalanx_command("members", "--at", "127.0.0.1:1", "--secret-file", tmp_path / "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--secret-file: cannot read {tmp_path / 'none'}: No such file" in result.stderr


def test_a_secret_is_no_argument(phalanx_command: Command) -> None:
    """Everybody on the machine reads arguments (ps)."""
    result = phalanx_command("member", "--port", 0, "--set", "secret=a secret of this cluster")
    assert result.exit_code == 2
    assert "--set secret: all users of this machine can read a command line" in result.stderr
    assert "give --secret-file FILE, or set PHALANX_SECRET_FILE" in result.stderr
    assert "a secret of" not in result.stderr


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_configuration_with_a_secret_is_a_secret_file(phalanx_command: Command, tmp_path: Path, mode: int) -> None:
    file = tmp_path / "member.toml"
    file.write_text('secret = "a secret of this cluster"\nport = 0\n')
    file.chmod(mode)
    result = phalanx_command("member", "--config", file)
    assert result.exit_code == 2
    assert f"member.toml: secret: it is open to other users (mode {mode:o})" in result.stderr
    assert "a secret of" not in result.stderr
    file.chmod(0o600)
    assert load_config(file).find_secret() is not None
    file.write_text("port = 0\n")
    file.chmod(mode)
    assert load_config(file).port == 0
