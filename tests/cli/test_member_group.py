"""`phalanx member --processes N`: several members as one command."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.cli.member_group import MemberGroup
from phalanx.client.ask import Inquirer
from phalanx.common.ids import address_of, parse_address
from support.processes import Cluster, wait_for

COUNT = 3


class Group:
    """The command, and what it has printed."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`stdout`: a descriptor to print to, instead of the file."""
        self.stdout, self.stderr = folder / "stdout", folder / "stderr"
        command = [sys.executable, "-m", "phalanx", "member", f"--processes={COUNT}", "--port=0", "--json", *options]
        with self.stdout.open("wb") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=out if stdout is None else stdout,
                stderr=err,
                process_group=0,
                cwd=folder,
                env=None if environment is None else os.environ | environment,
            )

    def lines(self) -> list[str]:
        return self.stdout.read_text().splitlines()

    def members(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines() if line.startswith("{")]

    def processes(self) -> list[int]:
        """List the member processes that have been started and have not ended."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]

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
        assert "could not be started: the others hand over their data and leave" in said
        assert group.members() == []
    finally:
        group.end()


def test_a_port_that_is_taken_costs_the_cluster_that_is_joined_nothing(tmp_path: Path, cluster: Cluster) -> None:
    """The members that have joined hold replicas by then, and each other's backups."""
    [first] = cluster.start(1)
    with cluster.client() as client, socket.socket() as taken:
        client.map("m").put_all({number: bytes(100) for number in range(10_000)})
        taken.bind(("127.0.0.1", 0))
        last = taken.getsockname()[1]
        joins = (f"--seed={first.address}", f"--cluster={cluster.name}")
        group = Group(tmp_path, f"--port={last - COUNT + 1}", *joins)
        try:
            assert group.process.wait(60) == 1
        finally:
            group.end()
        assert "hand over their data and leave" in group.stderr.read_text()
        assert client.map("m").size() == 10_000


def test_a_terminal_that_is_closed_costs_the_cluster_that_was_joined_nothing(tmp_path: Path, cluster: Cluster) -> None:
    """Signals come as from the system and from the shell."""
    [first] = cluster.start(1)
    with cluster.client() as client:
        group = Group(tmp_path, f"--seed={first.address}", f"--cluster={cluster.name}")
        try:
            group.wait_joined()
            client.map("m").put_all({number: bytes(100) for number in range(3_000)})
            group.process.send_signal(signal.SIGHUP)
            group.process.send_signal(signal.SIGHUP)
            assert group.process.wait(60) == 0
        finally:
            group.end()
        assert client.map("m").size() == 3_000


def test_one_that_is_killed_before_it_has_joined_ends_the_command_with_a_status_of_its_own(tmp_path: Path) -> None:
    group = Group(tmp_path, "--seed=127.0.0.1:1")
    try:
        wait_for(lambda: "cannot reach the seed" in group.stderr.read_text(), "the first member seeks its seed")
        [first] = group.processes()
        os.kill(first, signal.SIGKILL)
        assert group.process.wait(30) == 1
    finally:
        group.end()


def test_a_signal_before_the_members_have_joined_is_no_failure(tmp_path: Path) -> None:
    group = Group(tmp_path)
    try:
        wait_for(group.processes, "a member process has been started")
        group.process.send_signal(signal.SIGTERM)
        assert group.process.wait(30) == 0
    finally:
        group.end()


def test_the_end_of_stdin_ends_all_where_that_is_wanted(tmp_path: Path) -> None:
    group = Group(tmp_path, "--stop-with-stdin", stdin=subprocess.PIPE)
    try:
        members = group.wait_joined()
        assert group.process.stdin is not None
        group.process.stdin.close()
        assert group.process.wait(30) == 0
        assert not any(is_there(member["pid"]) for member in members)
    finally:
        group.end()


def test_the_members_go_on_when_nobody_reads_what_they_print(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    group = Group(tmp_path, stdout=writer)
    os.close(writer)
    try:
        with os.fdopen(reader) as lines:
            first = json.loads(lines.readline())
        wait_for(lambda: len(listed(first["address"])) == COUNT, "all have joined")
        wait_for(lambda: "cannot write to stdout" in group.stderr.read_text(), "it is said")
        group.process.send_signal(signal.SIGTERM)
        assert group.process.wait(30) == 0
    finally:
        group.end()


def test_functions_may_print(tmp_path: Path) -> None:
    """More than a pipe holds: a member would hang in `print` if nobody took it."""
    (tmp_path / "loud.py").write_text(
        "import phalanx\n\nprint('imported')\n\n\ndef loud(value):\n    print('x' * 200_000)\n    return phalanx.REMOVE\n"
    )
    group = Group(tmp_path, "--functions=loud")
    try:
        members = group.wait_joined()
        with phalanx.Client([member["address"] for member in members]) as client:
            for key in range(10):
                client.map("m").update(key, "loud")
        assert "imported" in group.lines()
        wait_for(lambda: len([line for line in group.lines() if line == "x" * 200_000]) >= 10, "all is passed on")
        group.process.send_signal(signal.SIGTERM)
        assert group.process.wait(30) == 0
    finally:
        group.end()


def test_the_service_manager_hears_from_the_command_when_all_have_joined(tmp_path: Path) -> None:
    """systemd listens to the main process of a service only."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(30)
        group = Group(tmp_path, environment={"NOTIFY_SOCKET": str(path)})
        try:
            assert manager.recv(4096) == b"READY=1\nSTATUS=3 members of one command have joined"
            assert len(group.members()) == COUNT
            group.process.send_signal(signal.SIGTERM)
            assert manager.recv(4096) == b"STOPPING=1\nSTATUS=3 members of one command hand over their data and leave"
            assert group.process.wait(30) == 0
        finally:
            group.end()


def test_where_the_system_starts_no_process_a_member_that_was_there_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("phalanx.cli.member_group.MemberProcess", refuse)
    group = MemberGroup(1, 0, [], [], tells=False)
    [place] = group._places
    assert group._start(place) == 1
    place.has_ever_joined, place.start_at = True, 0.0
    assert group._start(place) == 0
    assert not group._may_start(place)
    place.start_at = 0.0
    assert group._may_start(place)


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
