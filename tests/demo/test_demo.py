"""The whole demo as people run it: that it holds, that it sees when something does not, and that it leaves nothing."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.client.sync import Client
from phalanx_spark.demo import dataset
from phalanx_spark.demo.cluster import CLUSTER
from phalanx_spark.demo.report import DemoReport
from phalanx_spark.demo.story import DemoStory
from phalanx_spark.demo.writer import Writer
from support.processes import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

MARK = "MARK_OF_A_PHALANX_TEST"


class Demo:
    """`phalanx demo` in a process of its own. All that it starts inherits a mark, and its own folder for files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.mark = uuid.uuid4().hex
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.story = folder / "story.txt"
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}
        command = [sys.executable, "-m", "phalanx", "demo", *arguments]
        with self.story.open("w") as story:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=story, env=environment, text=True, process_group=0
            )

    def read_line(self) -> str:
        """The next line of its output; empty at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def marked(self) -> list[str]:
        """Command lines of the processes that the demo started and that still run, itself included."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes()
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if f"{MARK}={self.mark}".encode() in environment:
                found.append(command)
        return found

    def assert_nothing_is_left(self) -> None:
        wait_for(lambda: not self.marked(), f"no process is left of {self.marked()}")
        assert [path.name for path in self.temporary.iterdir() if path.name.startswith("phalanx-demo")] == []


def test_all_of_it_holds(tmp_path: Path) -> None:
    before = set(os.listdir())
    demo = Demo(tmp_path, "--json")
    out, _ = demo.process.communicate(timeout=390)
    story = demo.story.read_text()
    assert demo.process.returncode == 0, story
    assert out.count("\n") == 1
    report = json.loads(out)
    assert report["ok"] is True
    assert report["differences"] == []
    assert {entry["name"]: entry["rows_read"] for entry in report["maps"]} == {
        "airlines": 16, "airports": 1_458, "planes": 3_322, "weather": 26_115, "flights": 336_776,
    }  # fmt: skip
    assert all(entry["equal"] for entry in report["maps"])
    assert (report["member_list"]["size"], report["member_list"]["version"]) == (3, 3)
    assert report["member_list"]["lines"][0] == "Members {size:3, ver:3} ["
    [fall] = report["falls"]
    assert (fall["member_list"]["size"], fall["member_list"]["version"]) == (2, 4)
    assert fall["owned"] >= 90
    assert 0 < fall["list_ms"] <= fall["owners_ms"] <= fall["redundant_ms"]
    assert 0 < report["ms_to_write"] < 10_000  # half a second where nothing else runs; a call that is lost takes 30
    assert report["writer"]["missing"] == report["writer"]["wrong"] == 0
    assert report["writer"]["acknowledged"] > 500
    assert report["question"]["equal"] is True
    assert report["question"]["groups"] > 50
    assert report["rows_per_s_in"] > 0
    assert report["rows_per_s_out"] > 0
    assert "Members {size:2, ver:4} [" in story
    assert "All of it held." in story
    assert re.search(r"\d+ s, of which Spark took \d+ s to start", story)
    assert 0 < report["spark_start_s"] < report["seconds"]
    assert "Traceback" not in story
    demo.assert_nothing_is_left()
    assert set(os.listdir()) == before


@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [
        ("1  3 members", signal.SIGINT, 130),
        ("2  Spark writes", signal.SIGTERM, 143),
        ("3  A program keeps writing", signal.SIGINT, 130),
    ],
)
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, moment: str, number: signal.Signals, status: int) -> None:
    demo = Demo(tmp_path)
    # Without a terminal the story goes to stdout; it is read until the moment has come.
    line = ""
    while moment not in line:
        line = demo.read_line()
        assert line, demo.story.read_text()
    time.sleep(0.5)
    assert len(demo.marked()) > 1
    os.killpg(demo.process.pid, number) if number == signal.SIGINT else demo.process.send_signal(number)
    rest, _ = demo.process.communicate(timeout=60)
    told = demo.story.read_text()
    assert demo.process.returncode == status, rest + told
    assert "Traceback" not in rest + told
    demo.assert_nothing_is_left()


def test_killed_it_leaves_no_process_behind(tmp_path: Path) -> None:
    demo = Demo(tmp_path)
    line = ""
    while "2  Spark writes" not in line:
        line = demo.read_line()
        assert line, demo.story.read_text()
    wait_for(lambda: any("java" in command for command in demo.marked()), "Spark has started")
    demo.process.kill()
    demo.process.communicate(timeout=30)
    wait_for(lambda: not demo.marked(), "no process is left")


class Sabotaged(DemoStory):
    """While nobody looks, one row changes, one goes, and one acknowledged write is lost."""

    def _write_while_members_die(self) -> Writer:
        writer = super()._write_while_members_die()
        with Client(self._cluster.addresses, cluster=CLUSTER) as grid:
            planes, airlines, bookings = grid.map("planes"), grid.map("airlines"), grid.map("bookings")
            planes["N1"] = {**planes["N1"], "seats": 56}
            del airlines["B6"]
            self.lost = next(iter(writer.values))
            del bookings[self.lost]
        return writer


def test_what_does_not_hold_is_told(tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "find_files", lambda: source)
    report = DemoReport(members=2, killed=1, backup_count=1, partitions=31)
    folder = tmp_path / "demo"
    folder.mkdir()
    story = Sabotaged(Console(stderr=True), folder, report)
    story.run()
    assert report.ok is False
    assert {entry.name: entry.equal for entry in report.maps} == {
        "airlines": False, "airports": True, "planes": False, "weather": True, "flights": True,
    }  # fmt: skip
    told = "\n".join(report.differences)
    assert "airlines: 2 rows in the file, 1 in the map" in told
    assert "airlines: only in the file: {'carrier': 'B6', 'name': 'JetBlue Airways'}" in told
    for side, seats in (("file", 55), ("map", 56)):
        assert re.search(rf"planes: only in the {side}: .*'tailnum': 'N1'.*'seats': {seats},", told)
    assert any(line.startswith("mean delay of JetBlue Airways") for line in report.differences)
    assert report.question is not None
    assert report.question.equal is False
    assert f"bookings: 1 acknowledged keys are missing, such as {story.lost}" in report.differences
    assert report.writer is not None
    assert (report.writer.missing, report.writer.wrong) == (1, 0)
    assert report.falls[0].redundant_ms is not None
