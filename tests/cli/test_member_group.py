"""`phalanx member --processes N`: several members as one command."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.ids import address_of, parse_address
from processes import wait_for

COUNT = 3


class Group:
    """The command, and what it has printed."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        command = [sys.executable, "-m", "phalanx", "member", f"--processes={COUNT}", "--port=0", "--json", *options]
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0)

    def members(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.read_text().splitlines()]

    def wait_joined(self, count: int = COUNT) -> list[dict[str, Any]]:
        return wait_for(lambda: found if len(found := self.members()) >= count else None, f"{count} have joined")

    def end(self) -> None:
        """End the command, and so its members."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path, f"--event-log={tmp_path / 'events'}")
    yield made
    made.end()


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listed(address: str) -> list[str]:
    with Inquirer(parse_address(address)) as inquirer:
        return [address_of(member) for member in inquirer.members().view.members]


def test_members_of_one_command_form_one_cluster_and_one_signal_ends_all(group: Group, tmp_path: Path) -> None:
    members = group.wait_joined()
    addresses = [member["address"] for member in members]
    assert sorted(listed(addresses[0])) == sorted(addresses)
    assert len({member["pid"] for member in members}) == COUNT
    with phalanx.Client(addresses) as client:
        client.map("m").put_all({number: number for number in range(100)})
        assert client.map("m").size() == 100
    assert len(list((tmp_path / "events").iterdir())) == COUNT
    group.process.send_signal(signal.SIGTERM)
    assert group.process.wait(30) == 0
    assert not any(is_there(member["pid"]) for member in members)


def test_a_member_that_fails_is_started_again_and_nothing_is_lost(group: Group) -> None:
    members = group.wait_joined()
    with phalanx.Client([member["address"] for member in members]) as client:
        client.map("m").put_all({number: number for number in range(1_000)})
        os.kill(members[1]["pid"], signal.SIGKILL)
        again = group.wait_joined(COUNT + 1)[-1]
        assert client.map("m").size() == 1_000
    assert members[1]["address"] not in listed(again["address"]) or again["address"] == members[1]["address"]
    assert len(listed(again["address"])) == COUNT
    assert "has ended with status -9: it is started again in 1 s" in group.stderr.read_text()


def test_when_all_fail_at_once_they_are_one_cluster_again(group: Group) -> None:
    members = group.wait_joined()
    for member in members:
        os.kill(member["pid"], signal.SIGKILL)
    again = group.wait_joined(2 * COUNT)[COUNT:]
    assert len(listed(again[0]["address"])) == COUNT


def test_members_do_not_outlive_the_command(group: Group) -> None:
    members = group.wait_joined()
    group.process.kill()
    group.process.wait()
    wait_for(lambda: not any(is_there(member["pid"]) for member in members), "the members have ended")


def test_a_member_that_cannot_start_ends_the_command(tmp_path: Path) -> None:
    group = Group(tmp_path, "--seed=127.0.0.1:1", "--join-attempts=1")
    try:
        assert group.process.wait(60) == 1
        said = group.stderr.read_text()
        assert "could not be started: the others leave at once" in said
        assert group.members() == []
    finally:
        group.end()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--processes=3", "--port=65534"], "--processes 3 with --port 65534: there are no ports beyond 65535"),
        (["--processes=2", "--also-known-as=example:1"], "--also-known-as names one member"),
        (["--processes=0"], "--processes"),
    ],
)
def test_what_cannot_be_is_said(options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "phalanx", "member", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
