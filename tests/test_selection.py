"""What `./run quick` plays and passes over, and that a read of which a digest does not know is told."""

import json
import os
import py_compile
import subprocess
import sys
from importlib.util import cache_from_source, source_from_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import selection
from support.distribution import PURE
from support.opened_files import find_unknown
from support.roots import ROOT, TESTS, find_module, find_package
from support.selection import HISTORIES, Passes, choose, closure, digest

READS_A_PAGE = "tests/wire/test_limits.py"


@pytest.fixture(scope="module")
def passed() -> dict[str, str]:
    """All tests of pure code have passed as they are."""
    files = [file for folder in PURE if folder != HISTORIES for file in (TESTS / folder).glob("test_*.py")]
    return {file.relative_to(ROOT).as_posix(): digest(file) or "" for file in files}


def change(monkeypatch: pytest.MonkeyPatch, *names: str) -> tuple[str, ...]:
    """Let these files have other texts than before."""
    real, changed = selection._text_digest, {ROOT / name for name in names}
    monkeypatch.setattr(selection, "_text_digest", lambda file: "other" if file in changed else real(file))
    return names


def test_where_nothing_has_changed_only_those_are_played_that_may_read_anything(passed: dict[str, str]) -> None:
    played = choose([], passed)
    assert READS_A_PAGE in played
    assert "tests/membership/test_transitions.py" in played, "it starts a process"
    assert len(played) < len(passed) / 10
    assert sorted(choose([], {})) == sorted(passed)


def test_a_change_of_a_leaf_selects_its_tests_first_and_passes_over_others(
    monkeypatch: pytest.MonkeyPatch, passed: dict[str, str]
) -> None:
    played = choose(change(monkeypatch, "packages/phalanx/src/phalanx/maps/async_map.py"), passed)
    assert played[0].startswith("tests/maps/")
    assert "tests/maps/test_traced_maps.py" in played
    assert not {"tests/grid/test_idle.py", "tests/common/test_clock.py"} & set(played)


def test_a_change_of_a_page_selects_who_reads_it(monkeypatch: pytest.MonkeyPatch, passed: dict[str, str]) -> None:
    assert READS_A_PAGE in choose(change(monkeypatch, "docs/configuration.md"), passed)


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("tests/support/harness.py", "tests/grid/test_idle.py"),
        ("tests/conftest.py", "tests/common/test_clock.py"),
        ("tests/common/test_clock.py", "tests/common/test_clock.py"),
        ("packages/phalanx/src/phalanx/__init__.py", "tests/common/test_clock.py"),
        ("packages/phalanx/src/phalanx/http/console/hub.py", "tests/http/test_console.py"),
        ("tests/cli/test_losses.py", "tests/cli/test_losses.py"),
    ],
)
def test_a_change_selects(monkeypatch: pytest.MonkeyPatch, passed: dict[str, str], changed: str, test: str) -> None:
    assert test in choose(change(monkeypatch, changed), passed)


def test_what_is_imported_when_its_name_is_asked_for_belongs_to_who_asks() -> None:
    client = find_module("client/sync.py")
    assert client in closure(TESTS / "client" / "test_once.py"), "phalanx.Client"
    assert client not in closure(find_package("phalanx") / "__init__.py")


def test_what_passes_is_kept_unless_the_run_was_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(selection, "PASSED", tmp_path / "cache" / "passed.json")
    good, bad = "tests/common/test_clock.py", "tests/common/test_ids.py"

    def end(status: int, shouldstop: str | bool = False) -> None:
        passes = Passes([good, READS_A_PAGE])
        passes._digests[bad] = "digest"
        report: Any = SimpleNamespace(failed=True, nodeid=f"{bad}::test_a[1]")
        passes.pytest_runtest_logreport(report)
        session: Any = SimpleNamespace(shouldfail=False, shouldstop=shouldstop)
        passes.pytest_sessionfinish(session, status)

    end(pytest.ExitCode.INTERRUPTED)
    end(pytest.ExitCode.TESTS_FAILED, "after the first failure")
    assert not selection.PASSED.exists()
    end(pytest.ExitCode.TESTS_FAILED)
    assert json.loads(selection.PASSED.read_text()) == {good: digest(ROOT / good)}


def test_files_of_the_tree_that_no_digest_has_are_unknown() -> None:
    test = TESTS / "common" / "test_clock.py"
    cached = [cache_from_source(find_package("phalanx") / "common" / name) for name in ("clock.py", "view.py")]
    opened = [str(test), "/etc/hosts", sys.executable, *cached, str(ROOT / "README.md"), str(ROOT / "<unknown>")]
    for each in cached:
        py_compile.compile(source_from_cache(each), each)
    assert find_unknown(opened, [test]) == ["README.md", "packages/phalanx/src/phalanx/common/view.py"]
    assert find_unknown(opened, [test, ROOT / READS_A_PAGE]) == []


@pytest.mark.parametrize("reads", [False, True])
def test_a_read_that_is_not_known_fails_and_names_the_test_and_the_file(tmp_path: Path, reads: bool) -> None:
    (tmp_path / "planted.py").write_text(
        f"def pytest_runtest_call(item): {reads} and open({str(ROOT / 'README.md')!r}).close()"
    )
    test = "tests/common/test_clock.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "planted", "-p", "no:cacheprovider", "--opened-files", test]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == reads, ended.stdout
    told = [line for line in ended.stdout.splitlines() if line.startswith(f"{test} opened what")]
    assert [line.endswith(": README.md") for line in told] == [True] * reads
