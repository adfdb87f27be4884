"""Addresses of `--at` where nobody is: told at once, or within seconds, and no delay where another one answers."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import Command
from support.processes import Cluster, free_port
from support.raw_peers import swallowing


@pytest.fixture
def silent() -> Iterator[str]:
    with swallowing() as address:
        yield address


def test_a_silent_address_beside_a_live_one_costs_no_time(
    phalanx_command: Command, cluster: Cluster, silent: str
) -> None:
    first, second = cluster.start(2)

    def seconds(*arguments: str, status: int = 0) -> float:
        began = time.monotonic()
        result = phalanx_command(*arguments, "--cluster", cluster.name)
        assert result.exit_code == status, result.stderr
        return time.monotonic() - began

    alone = seconds("members", "--at", silent, status=1)
    for command in (
        ["members"],
        ["partitions"],
        ["map", "settings"],
        ["map", "put", "m", "k", "1"],
        ["map", "size", "m"],
    ):
        # Asked one after the other, the two silent ones would add twice what one costs alone.
        without = seconds(*command, "--at", first.address)
        assert seconds(*command, "--at", f"{silent},{silent},{first.address}") < without + alone, command
    asked = phalanx_command("members", "--json", "--at", f"{second.address},{first.address}", "--cluster", cluster.name)
    assert json.loads(asked.stdout)["asked"] == second.member


@pytest.mark.parametrize(
    "command",
    [["members"], ["partitions"], ["safe"], ["why", "1"], ["what-if"], ["map", "get", "m", "k"], ["export", "{folder}/x"]],
    ids=lambda command: command[0],
)  # fmt: skip
def test_where_nobody_listens_is_told_in_one_line_with_what_to_do(
    phalanx_command: Command, tmp_path: Path, command: list[str]
) -> None:
    at = f"127.0.0.1:{free_port()}"
    result = phalanx_command(*(word.format(folder=tmp_path) for word in command), "--at", at)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert f"{at}: Connection refused; check the address" in result.stderr
