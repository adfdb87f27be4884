"""Which rules of the protocol the tests hold.

The rules of the published designs are *rows*, and so are the failures of others with data on disk (`D-1`), and the rules of Phalanx itself
(`PX-09`, `DU-01`): each must be held by a test. A test cites the rows it holds: `@pytest.mark.rows("CS-21", "CS-22")`. It may cite the
others (`A.6-4`, `C-1`), too. docs/protocol states all rules; the mark of another id is an error at collection. A test that is
skipped or expected to fail holds nothing.

    ./run rows           counts per prefix, and the rows that no test holds
    ./run rows --cited   each row with the tests that hold it
    ./run rows --quickly without the tests that are marked long

The exit status is 1 where no test holds a row.
"""

import argparse
import contextlib
import io
import sys
from collections import Counter
from pathlib import Path

import pytest

from .protocol_pages import PAGES, read_rules

PREFIXES = ("CS", "PD", "PN", "EL", "DL", "D", "PX", "DU")
"""Prefixes of the rows, in the order in which they are listed."""
NOT_HOLDING = ("skip", "skipif", "xfail")


def load_rows(pages: Path = PAGES) -> dict[str, str]:
    """All rows, id to title, in the order of their prefixes and numbers; raises ValueError for an id that stands twice."""
    rules = read_rules(pages)
    ordered = sorted(
        (PREFIXES.index(prefix), int(number), row) for row, prefix, number in map(_parts, rules) if prefix in PREFIXES
    )
    return {row: rules[row].title for _, _, row in ordered}


def load_titles(pages: Path = PAGES) -> dict[str, str]:
    """All that a test may cite, id to title."""
    return {rule.id: rule.title for rule in read_rules(pages).values()}


def _parts(row: str) -> tuple[str, str, str]:
    prefix, _, number = row.partition("-")
    return row, prefix, number


def cited_rows(item: pytest.Item) -> list[str]:
    return [row for mark in item.iter_markers("rows") for row in mark.args]


class RowsPlugin:
    """Checks every cited id at collection and remembers which test cites which row."""

    def __init__(self, rows: dict[str, str], not_holding: tuple[str, ...] = NOT_HOLDING) -> None:
        self.rows = rows
        self.not_holding = not_holding
        self.tests_of: dict[str, list[str]] = {}  # row -> test names, parametrised cases as one, in collection order
        self.held_quickly: set[str] = set()
        """Rows that are held by a test that is not marked long."""
        self.files: set[Path] = set()
        """What was collected."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "rows(id, ...): the rules of docs/protocol that this test holds")

    @pytest.hookimpl(tryfirst=True)  # before -m and -k deselect: a wrong id is an error in any run
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        unknown = []
        for item in items:
            self.files.add(item.path)
            name = item.nodeid.partition("[")[0]
            holds = not any(item.get_closest_marker(marker) for marker in self.not_holding)
            for row in cited_rows(item):
                if row not in self.rows:
                    unknown.append(f"{name} cites {row!r}")
                elif holds:
                    if item.get_closest_marker("long") is None:
                        self.held_quickly.add(row)
                    if name not in self.tests_of.setdefault(row, []):
                        self.tests_of[row].append(name)
        if unknown:
            listed = "\n  ".join(dict.fromkeys(unknown))
            raise pytest.UsageError(f"no such row in docs/protocol:\n  {listed}")


def collect(not_holding: tuple[str, ...] = NOT_HOLDING) -> dict[str, list[str]]:
    """Collects the whole suite without running it: row -> the tests that hold it."""
    plugin = RowsPlugin(load_titles(), not_holding)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider"], plugins=[plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"{output.getvalue()}\nrows: the tests cannot be collected (pytest status {int(status)})")
    rows = load_rows()
    return {row: tests for row, tests in plugin.tests_of.items() if row in rows}


def report_held(rows: dict[str, str], tests_of: dict[str, list[str]]) -> None:
    total = Counter(row.partition("-")[0] for row in rows)
    held = Counter(row.partition("-")[0] for row in tests_of)
    missing = [row for row in rows if row not in tests_of]
    for row in missing:
        print(f"{row}  {rows[row]}")
    if missing:
        print()
    for prefix, count in total.items():
        print(f"{prefix}: {held[prefix]} of {count} rows held")
    print(f"all: {len(tests_of)} of {len(rows)} rows held, {len(missing)} by no test")


def report_cited(rows: dict[str, str], tests_of: dict[str, list[str]]) -> None:
    for row, title in rows.items():
        if row in tests_of:
            print(f"{row}  {title}")
            for test in tests_of[row]:
                print(f"       {test}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run rows", description="The rules of the protocol that the tests hold.")
    parser.add_argument("--cited", action="store_true", help="list each held row with its tests")
    parser.add_argument("--quickly", action="store_true", help="leave out the tests that are marked long")
    arguments = parser.parse_args()
    report = report_cited if arguments.cited else report_held
    rows, held = load_rows(), collect((*NOT_HOLDING, "long") if arguments.quickly else NOT_HOLDING)
    report(rows, held)
    return int(len(held) < len(rows))


if __name__ == "__main__":
    sys.exit(main())
