"""The bookkeeping of rows, the rules that tests must hold: every id is checked, and only tests that can fail hold a row."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.roots import ROOT, TESTS
from support.rows import RowsPlugin, load_rows, load_titles, report_held

pytest_plugins = ["pytester"]


def collect_in(pytester: pytest.Pytester, source: str) -> tuple[pytest.ExitCode | int | None, RowsPlugin]:
    pytester.makepyfile(source)
    plugin = RowsPlugin({"CS-01": "first", "CS-02": "second"})
    status = pytester.inline_run("--collect-only", "-p", "no:cacheprovider", plugins=[plugin]).ret
    return status, plugin


def test_the_rules_of_the_designs_are_complete_and_those_of_phalanx_itself_count_too() -> None:
    counts = Counter(row.partition("-")[0] for row in load_rows())
    assert counts.pop("PX") > 40
    assert counts.pop("DU") > 40
    assert counts == {"CS": 77, "PD": 33, "PN": 13, "EL": 63, "DL": 86, "D": 20}


def test_a_row_listed_twice_is_refused(tmp_path: Path) -> None:
    for page in ("a", "b"):
        (tmp_path / f"{page}.md").write_text('* <a id="cs-01"></a>**CS-01: first.** *In* `common/view.py`.\n')
    with pytest.raises(ValueError, match=r"CS-01 stands in a.md and in b.md"):
        load_rows(tmp_path)


def test_rows_are_listed_by_prefix_and_number() -> None:
    rows = list(load_rows())
    assert rows[:2] == ["CS-01", "CS-02"]
    assert rows.index("CS-77") + 1 == rows.index("PD-01")
    assert rows.index("D-20") + 1 == rows.index("PX-01")


def test_parametrised_cases_count_once_and_skipped_tests_not_at_all(pytester: pytest.Pytester) -> None:
    status, plugin = collect_in(
        pytester,
        """
        import pytest

        @pytest.mark.rows("CS-01")
        @pytest.mark.parametrize("n", [1, 2])
        def test_held(n): ...

        @pytest.mark.skip
        @pytest.mark.rows("CS-02")
        def test_skipped(): ...
        """,
    )
    assert status == pytest.ExitCode.OK
    assert list(plugin.tests_of) == ["CS-01"]
    assert len(plugin.tests_of["CS-01"]) == 1


def test_a_reading_of_the_designs_may_be_cited_and_need_not_be() -> None:
    assert "A.6-4" in load_titles()
    assert "A.6-4" not in load_rows()
    assert load_titles().items() > load_rows().items()


def test_an_unknown_row_stops_the_collection(pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]) -> None:
    status, _ = collect_in(pytester, "import pytest\n@pytest.mark.rows('CS-99')\ndef test_it(): ...\n")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "test_it cites 'CS-99'" in "".join(capfd.readouterr())


def test_the_report_names_what_no_test_holds(capsys: pytest.CaptureFixture[str]) -> None:
    report_held({"CS-01": "first", "CS-02": "second"}, {"CS-01": ["test_a"]})
    assert capsys.readouterr().out.splitlines() == [
        "CS-02  second",
        "",
        "CS: 1 of 2 rows held",
        "all: 1 of 2 rows held, 1 by no test",
    ]


def test_a_row_is_held_quickly_by_a_case_that_is_not_long(pytester: pytest.Pytester) -> None:
    _, plugin = collect_in(
        pytester,
        """
        import pytest

        @pytest.mark.rows("CS-01")
        @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.long), 2])
        def test_in_brief_too(n): ...

        @pytest.mark.long
        @pytest.mark.rows("CS-02")
        def test_at_length(): ...
        """,
    )
    assert plugin.held_quickly == {"CS-01"}
    assert set(plugin.tests_of) == {"CS-01", "CS-02"}


def test_each_row_is_held_by_a_test_that_is_not_left_to_the_long_command(request: pytest.FixtureRequest) -> None:
    plugin = request.config.pluginmanager.get_plugin("rows")
    assert isinstance(plugin, RowsPlugin)
    if plugin.files >= set(TESTS.rglob("test_*.py")):
        assert [row for row in load_rows() if row not in plugin.held_quickly] == []
        return
    # This run collected a part of the suite only. In a process of its own, for this test is a part of what it collects.
    command = [sys.executable, "-m", "tests.support.rows", "--quickly"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
