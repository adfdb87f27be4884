"""Locks from the command line: who holds them, and commands that run while they are held."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import Ask, Command
from support.processes import Cluster, wait_for


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("one"), "locked")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def ask(phalanx_command: Command, one: Cluster) -> Ask:
    """Runs a command; its lines, or what it said when it failed."""

    def run(*arguments: object, status: int = 0) -> object:
        where = ("--at", one.members[0].address, "--cluster", one.name)
        result = phalanx_command(*arguments[:2], *where, *arguments[2:])
        assert result.exit_code == status, (result.stdout, result.stderr)
        return result.stderr if status else result.stdout.splitlines()

    return run


def test_who_holds_a_lock_is_shown(ask: Ask, one: Cluster) -> None:
    assert ask("lock", "show", "a") == ["free"]
    with one.client() as client:
        with client.lock("a") as lock, client.map("m").semaphore(7, 3):
            [line] = ask("lock", "show", "a")
            assert f"token {lock.token}, for 29." in line
            [line] = ask("lock", "show", "7", "--map", "m", "--key-type", "int", "--permits", "3", "--json")
            found = json.loads(line)
            assert (found["name"], found["map"], found["permits"], found["waiting"]) == ("7", "m", 3, 0)
            assert found["holders"][0]["token"] == found["token"]
        assert ask("lock", "show", "a") == ["free"]


def test_a_command_runs_while_the_lock_is_held(ask: Ask, one: Cluster) -> None:
    with one.client() as client:
        ask("lock", "run", "b", "--", sys.executable, "-c", "import os; assert int(os.environ['FENCING_TOKEN']) > 0")
        ask("lock", "run", "b", "--", sys.executable, "-c", "raise SystemExit(3)", status=3)
        with client.lock("b"):
            told = ask("lock", "run", "b", "--wait", "0.1", "--", "false", status=1)
            assert "lock 'b' was held by others for 0.1 s" in told
        assert "no-such-command: No such file" in ask("lock", "run", "b", "--", "no-such-command", status=2)
        assert client.lock("b", wait=0).acquire()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_ends_the_command_line_ends_the_command_and_then_frees_the_lock(
    one: Cluster, tmp_path: Path, number: signal.Signals
) -> None:
    where, name = ("--at", one.members[0].address, "--cluster", one.name), number.name
    order = tmp_path / "order"
    command = (
        "import signal, sys, time\n"
        f"def end(*_):\n    time.sleep(0.5); open({str(order)!r}, 'w').write('ended'); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, end); open({str(order)!r}, 'w').write('begun'); time.sleep(60)"
    )
    holding = subprocess.Popen(
        [sys.executable, "-m", "phalanx", "lock", "run", name, *where, "--", sys.executable, "-c", command],
        start_new_session=True,
    )
    try:
        wait_for(lambda: order.exists() and order.read_text() == "begun", "the command to begin")
        holding.send_signal(number)
        with one.client() as client, client.lock(name):
            assert order.read_text() == "ended"
        assert holding.wait(30) == 128 + number
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(holding.pid, signal.SIGKILL)
        holding.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_told_to_end_while_it_waits_ends_at_once_and_holds_nothing(one: Cluster, number: signal.Signals) -> None:
    where = ("--at", one.members[0].address, "--cluster", one.name)
    with one.client() as client:
        with client.lock("waited for"):
            waiting = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "phalanx",
                    "lock",
                    "run",
                    "waited for",
                    *where,
                    "--wait",
                    "60",
                    "--",
                    "echo",
                    "ran",
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                wait_for(lambda: client.lock("waited for").status().waiting, "it to wait")
                waiting.send_signal(number)
                assert waiting.communicate(timeout=30)[0] == "", "the command has not run"
                assert waiting.returncode in (128 + number, -number)
            finally:
                waiting.kill()
                waiting.wait()
            wait_for(lambda: not client.lock("waited for").status().waiting, "its place to be free")
        assert client.lock("waited for", wait=0).acquire()


def test_a_command_ends_when_the_lock_is_lost_because_no_member_is_left(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "gone")
    try:
        (member,) = cluster.start()
        begun = tmp_path / "begun"
        command = f"open({str(begun)!r}, 'w').close(); import time; time.sleep(60)"
        where = ("--at", member.address, "--cluster", cluster.name, "--lease", "1")
        holding = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "lock", "run", "a", *where, "--", sys.executable, "-c", command],
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for(begun.exists, "the command to begin")
        cluster.kill(member)
        _, told = holding.communicate(timeout=30)
        assert "lock 'a' was lost while the command ran" in told
        assert holding.returncode == 70
    finally:
        cluster.stop()


def test_who_kills_the_command_line_frees_the_lock_when_its_lease_ends(one: Cluster) -> None:
    where = ("--at", one.members[0].address, "--cluster", one.name)
    sleeper = (sys.executable, "-c", "import time; time.sleep(60)")
    with one.client() as client:
        holding = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "lock", "run", "c", *where, "--lease", "1", "--", *sleeper],
            start_new_session=True,
        )
        try:
            until = time.monotonic() + 30
            while not client.lock("c").status().holders and time.monotonic() < until:
                time.sleep(0.05)
            assert not client.lock("c", wait=0).acquire()
        finally:
            os.killpg(holding.pid, signal.SIGKILL)
            holding.wait()
        assert client.lock("c", wait=30).acquire()
