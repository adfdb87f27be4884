"""`phalanx chaos` as people run it: real processes, a minute of faults, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import phalanx
from phalanx.cli.main import app
from phalanx_proof.chaos.ledger import COUNTERS, UNIQUE
from support.processes import wait_for

MARK = "MARK_OF_A_PHALANX_TEST"


class Chaos:
    """The command in a process of its own. All that it starts inherits a mark, and its own folder for files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.story = folder / "story.txt"
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}
        command = [sys.executable, "-m", "phalanx", "chaos", "--json", *arguments]
        with self.story.open("w") as story:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=story, env=environment, text=True, process_group=0
            )

    def marked(self) -> dict[int, bytes]:
        """Return the processes that the command started and that still run, itself included, with their command lines."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment, line = (folder / "environ").read_bytes(), (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environment:
                found[int(folder.name)] = line
        return found

    def assert_nothing_is_left(self) -> None:
        wait_for(lambda: not self.marked(), "no process is left")
        assert [path.name for path in self.temporary.iterdir() if path.name.startswith("phalanx-chaos")] == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seconds", "members", "backups", "seed"), [(60, 4, 1, 10), (30, 4, 0, 7)], ids=["a-minute", "without-backups"]
)
def test_the_ledger_holds(tmp_path: Path, seconds: int, members: int, backups: int, seed: int) -> None:
    chaos = Chaos(tmp_path, f"--seconds={seconds}", f"--members={members}", f"--backups={backups}", f"--seed={seed}")
    out, _ = chaos.process.communicate(timeout=500)
    story = chaos.story.read_text()
    assert chaos.process.returncode == 0, story
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["ok"] is True
    assert report["violations"] == []
    assert report["outcomes"]["acknowledged"] > seconds * 20
    assert report["keys"] > seconds * 5
    assert report["faults"]["stop"] > 0
    assert report["faults"]["join"] > 0
    if backups:
        assert {"kill", "restart", "hang", "pause"} <= report["faults"].keys()
        assert report["until_whole_s"]["count"] >= 4
    assert report["masters_struck"] > 0
    assert "The ledger holds" in story
    assert "Traceback" not in story
    chaos.assert_nothing_is_left()


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_while_members_are_stopped_it_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    chaos = Chaos(tmp_path, "--seconds=60", "--seed=12")
    wait_for(lambda: re.search(r" s  \w+ m\d", chaos.story.read_text()), "a fault has struck", deadline_s=60)
    members = [pid for pid, line in chaos.marked().items() if b"\0member\0" in line]
    assert members
    for pid in members:
        with suppress(ProcessLookupError):  # the fault has ended it
            os.kill(pid, signal.SIGSTOP)
    chaos.process.send_signal(number)
    assert chaos.process.wait(60) == status, chaos.story.read_text()
    assert "Traceback" not in chaos.story.read_text()
    chaos.assert_nothing_is_left()


def test_too_few_members_are_refused_before_anything_is_started() -> None:
    result = CliRunner().invoke(app, ["chaos", "--members", "2", "--backups", "1"])
    assert result.exit_code == 2
    assert "--members 2 are too few for --backups 1: give at least 3" in result.stderr


@pytest.mark.long
@pytest.mark.timeout(200)
def test_what_a_stranger_does_to_the_maps_is_found(tmp_path: Path) -> None:
    """A write that is lost, one that is done twice and one that nobody made, planted by another client."""
    logs = tmp_path / "logs"
    chaos = Chaos(tmp_path, "--seconds=10", "--backups=0", "--seed=5", "--writers=1", f"--keep-logs={logs}")
    address = wait_for(lambda: ready_address(logs), "the first member has joined")
    with phalanx.Client(address, cluster=f"chaos-5-{chaos.process.pid}") as grid:
        unique, counters = grid.map(UNIQUE), grid.map(COUNTERS)
        lost = wait_for(lambda: sorted(unique)[:1], "a key is written")[0]
        wait_for(lambda: counters.get("counter-0"), "a counter is raised")
        del unique[lost]
        unique["ghost"] = "boo"
        for _ in range(3):  # those that lose against the writer change nothing
            wait_for(
                lambda: counters.compare_and_set("counter-0", (number := counters["counter-0"]), number + 1), "raised"
            )
    out, _ = chaos.process.communicate(timeout=150)
    story = chaos.story.read_text()
    assert chaos.process.returncode == 1, story
    found = {(violation["what"], violation["key"]) for violation in json.loads(out)["violations"]}
    assert found == {
        ("an acknowledged write is missing", lost),
        ("a key that nobody wrote", "ghost"),
        ("increments were done twice", "counter-0"),
    }
    assert f"an acknowledged write is missing: unique[{lost}]: expected '{lost} ..." in story
    assert "drawn again by: phalanx chaos --seed 5" in story
    chaos.assert_nothing_is_left()


def ready_address(logs: Path) -> str | None:
    """Where the first member listens, when it has formed its cluster."""
    log = logs / "m0.log"
    text = log.read_text() if log.exists() else ""
    found = re.search(r"Member \[127\.0\.0\.1\]:(\d+) - \S+ this", text)
    return f"127.0.0.1:{found[1]}" if found else None


def test_a_folder_with_the_logs_of_another_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m0.log").touch()
    result = CliRunner().invoke(app, ["chaos", "--keep-logs", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not empty" in result.stderr
