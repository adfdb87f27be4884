"""In CI a skipped test fails the run; elsewhere it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.roots import ROOT, TESTS
from support.skips import NoSkips

pytest_plugins = ["pytester"]

PLANTED = """
import pytest

def test_passed(): ...

@pytest.mark.skip(reason="by its mark")
def test_marked(): ...

def test_in_the_middle(): pytest.skip("by its code")

@pytest.fixture
def missing(): pytest.skip("by its fixture")

def test_of_a_fixture(missing): ...

@pytest.mark.xfail
def test_expected_to_fail(): assert False
"""


def test_each_way_to_skip_a_test_is_a_failure_with_its_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PLANTED)
    result = pytester.inline_run("-p", "no:cacheprovider", plugins=[NoSkips()])
    passed, skipped, failed = result.listoutcomes()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert [report.nodeid.partition("::")[2] for report in passed] == ["test_passed"]
    assert [report.nodeid.partition("::")[2] for report in skipped] == ["test_expected_to_fail"]
    told = {report.nodeid.partition("::")[2]: report.longreprtext for report in failed}
    assert told.keys() == {"test_marked", "test_in_the_middle", "test_of_a_fixture"}
    for name, reason in (("test_marked", "mark"), ("test_in_the_middle", "code"), ("test_of_a_fixture", "fixture")):
        assert f"by its {reason}" in told[name]


def test_a_file_that_skips_all_its_tests_is_a_failure(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\npytest.importorskip('nowhere_to_be_found')\ndef test_it(): ...\n")
    result = pytester.inline_run("-p", "no:cacheprovider", plugins=[NoSkips()])
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (report,) = result.getfailedcollections()
    assert "could not import 'nowhere_to_be_found'" in report.longreprtext


@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_the_conftest_of_this_project_allows_no_skip_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, status: int
) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED)
    monkeypatch.setenv("CI", ci)
    options = ["-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)]
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=100)
    assert ended.returncode == status, ended.stdout + ended.stderr
