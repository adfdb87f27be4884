"""What commands and members write is for their user and group at most, and for fewer where the umask says so."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.runtime.logs.rotating_log import RotatingLogFile
from phalanx.runtime.process.processes import PHALANX, start_member_process
from support.processes import Cluster, wait_for

MODES = [(0o000, 0o640), (0o022, 0o640), (0o077, 0o600)]


@pytest.fixture(params=MODES, ids=lambda each: f"umask {each[0]:03o}")
def mode(request: pytest.FixtureRequest) -> Iterator[int]:
    """The mode that files must have under the umask of this process."""
    umask, wanted = request.param
    before = os.umask(umask)
    yield wanted
    os.umask(before)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("one"), "modes")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def modes_in(folder: Path) -> set[int]:
    return {stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*") if each.is_file()}


def test_all_parts_of_an_event_log(tmp_path: Path, mode: int) -> None:
    file = RotatingLogFile(tmp_path / "a.jsonl", 10, 0, 0)
    file.open()
    for number in range(4):
        file.write(b"line %d, long enough\n" % number)
        time.sleep(0.0001)  # parts are named by the microsecond
    file.open()
    wait_for(lambda: len(list(tmp_path.glob("*.gz"))) == 4, "all to be compressed")
    wait_for(lambda: len(list(tmp_path.iterdir())) == 5, "what was compressed to go")
    assert modes_in(tmp_path) == {mode}


def test_the_event_log_of_a_member_in_a_program_and_of_one_alone(tmp_path: Path, mode: int) -> None:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, event_log=str(tmp_path / "inside"))):
        pass
    with start_member_process(tmp_path / "log", event_log=tmp_path / "alone") as process:
        process.wait_ready()
    assert modes_in(tmp_path / "inside") == modes_in(tmp_path / "alone") == {mode}


def test_an_export_and_what_other_commands_write(tmp_path: Path, mode: int, one: Cluster) -> None:
    with one.client() as grid:
        grid.map("m")["k"] = "v"
    where = ("--at", one.members[0].address, "--cluster", one.name)
    subprocess.run([*PHALANX, "export", str(tmp_path / "archive"), *where], check=True, capture_output=True)
    save = ("simulate", "--seed", "5", "--profile", "quiet", "--save", str(tmp_path / "saved" / "history.json"))
    (tmp_path / "saved").mkdir()
    subprocess.run([*PHALANX, *save], check=True, capture_output=True)
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 1
    assert modes_in(tmp_path / "archive") == modes_in(tmp_path / "saved") == {mode}


def test_what_a_command_under_a_lock_writes_is_its_own_affair(one: Cluster) -> None:
    where = ("--at", one.members[0].address, "--cluster", one.name)
    command = [sys.executable, "-c", "import os; print(oct(os.umask(0)))"]
    done = subprocess.run(
        [*PHALANX, "lock", "run", "a", *where, "--", *command],
        check=True, capture_output=True, text=True, umask=0o002,
    )  # fmt: skip
    assert done.stdout.strip() == "0o2"
