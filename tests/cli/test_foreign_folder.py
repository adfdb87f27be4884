"""A command that is started in a folder of others runs nothing that lies there, unless it is told to, and nobody else can write into it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.common.errors import UsageError
from phalanx.reports import module_folder
from phalanx.reports.module_folder import find_modules_here
from phalanx.runtime.process.processes import PHALANX, start_member_process
from phalanx.runtime.settings.load_config import load_member_config

SCRIPT = (str(Path(sys.executable).with_name("phalanx")),)
AS_MODULE = (sys.executable, "-m", "phalanx")
STOCK = "def take(value, many):\n    return value\n"
NAMES = ("uvicorn", "starlette", "h11", "prometheus_client", "stock")
"""Packages that a member imports late, and one that is somebody's own."""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of downloads, with files that note that they have run."""
    folder = tmp_path / "downloads"
    folder.mkdir(mode=0o755)
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n{STOCK}")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


@pytest.mark.parametrize("program", [SCRIPT, AS_MODULE, PHALANX], ids=["script", "-m", "own"])
@pytest.mark.parametrize("named", [False, True])
def test_a_member_runs_no_file_that_is_named_like_a_package(
    foreign: Path, tmp_path: Path, program: tuple[str, ...], named: bool
) -> None:
    options = ["--http-port", "0", *(["--functions", "stock"] if named else [])]
    with start_member_process(tmp_path / "log", options=options, program=program) as process:
        process.wait_ready()
    ran = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
    assert ran == ("stock " if named else "")


def test_even_what_python_imports_at_once_is_not_taken_from_there(foreign: Path, tmp_path: Path) -> None:
    (foreign / "msgspec.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('msgspec ')")
    for program in (SCRIPT, PHALANX):
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith("phalanx ")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("mode", "who"), [(0o777, "everybody"), (0o1777, "everybody"), (0o775, "its group")])
def test_modules_are_not_taken_from_where_others_can_write(
    foreign: Path, monkeypatch: pytest.MonkeyPatch, mode: int, who: str
) -> None:
    monkeypatch.setattr(module_folder, "_is_own_group", lambda status: False)
    before = list(sys.path)
    foreign.chmod(mode)
    said = rf"functions: modules are looked for in {foreign}, into which {who} can write \(mode {mode & 0o1777:o}\).*PYTHONPATH={foreign}"
    with pytest.raises(UsageError, match=said):
        load_member_config(None, {"functions": ["stock"]})
    load_member_config(None, {"port": 0})
    assert sys.path == before
    monkeypatch.setattr(sys, "path", [*sys.path, str(foreign)])
    find_modules_here("functions")  # it was named, and so is meant


def test_a_folder_of_another_user_is_his_to_write(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder to another user: run this test as root")
    os.chown(foreign, 12_345, 12_345)
    with pytest.raises(UsageError, match="its owner, another user, can write"):
        find_modules_here("functions")
    os.chown(foreign, 0, 0)
    monkeypatch.setattr(sys, "path", list(sys.path))
    foreign.chmod(0o775)
    find_modules_here("functions")  # the group root is of the user root alone
    assert sys.path[-1] == str(foreign), "behind all other places"
