"""Do the tests that cite a rule fail when it is broken? Each mutant breaks one rule on purpose.

tests/mutants/*.toml lists them: the rows (for a rule that is in no row: the test file that holds it), the file below its package, a text that it holds exactly once, what to put in
its place, and why that breaks the rows. A mutant is applied to a copy of the package; then the tests that cite its rows run
until each of the rows has seen one of its own fail. A test that cannot be imported, or that breaks by itself, proves
nothing: only a failed assertion, a violated invariant or a scenario that shows something else counts.

    ./run mutants [ROW…]        those of the rows (CS-14, EL), or all; exit status 1 if one survives or is out of date
    ./run mutants --stale       only see whether each still applies
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from .roots import ROOT, TESTS, find_module
from .rows import cited_rows, collect

KILLS = ("AssertionError", "Failed", "InvariantViolation", "Broken", "FalsifyingExample")
ORDER = ("membership", "common", "partition", "scenarios")
"""Folders whose tests are asked first: the smallest show best what a test holds."""
LAST = ("tests/grid/test_any_step.py", "tests/sim/", "tests/cuts/")
"""Tests that go through whole histories, or cut networks, are asked last: under a broken rule they may take minutes."""
LIMIT_S = 300


class Mutant(NamedTuple):
    """One rule broken."""

    rows: tuple[str, ...]
    file: str
    old: str
    new: str
    why: str

    @property
    def name(self) -> str:
        return f"{'+'.join(self.rows)} {self.file}: {self.why}"


def load(folder: Path = TESTS / "mutants", file: str = "*.toml") -> list[Mutant]:
    found: list[Mutant] = []
    for path in sorted(folder.glob(file)):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            found.append(Mutant(tuple(entry["rows"]), entry["file"], entry["old"], entry["new"], entry["why"]))
    return found


def staleness(mutant: Mutant, packages: list[Path] | None = None) -> str:
    """Return why the mutant does not apply to what there is now; empty if it does. `packages`: instead of those of the sources."""
    path = find_module(mutant.file, packages)
    if path is None:
        return f"there is no {mutant.file}"
    text = path.read_text(encoding="utf-8")
    if (times := text.count(mutant.old)) != 1:
        return f"the old text stands there {times} times, not once: let tests/mutants follow the code"
    try:
        compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    except SyntaxError as error:
        return f"the result is no Python: {error}"
    return ""


class Judge:
    """In the process that runs the tests: which test first failed for which row, and why; ends when all rows have one."""

    def __init__(self, rows: Iterable[str]) -> None:
        self.rows = list(rows)
        self.killed: dict[str, str] = {}
        self.broken: dict[str, str] = {}
        """Tests that failed otherwise than by what they check, with the error."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        yield
        error = call.excinfo
        if error is None or error.errisinstance(pytest.skip.Exception):
            return
        kind = error.type.__name__
        if call.when == "call" and kind in KILLS and "Timeout" not in str(error.value)[:20]:
            for row in {*cited_rows(item), item.nodeid.partition("::")[0]}.intersection(self.rows):
                self.killed.setdefault(row, item.nodeid)
        else:
            self.broken[item.nodeid] = f"{kind}: {error.value}"[:300]
        if len(self.killed) == len(self.rows):
            item.session.shouldstop = "each row has a test that fails"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken[report.nodeid] = str(report.longrepr)[-300:]


def judge(output: Path, package: str, rows: list[str], tests: list[str]) -> None:
    """Run the tests in a child process against the copy of the package that it was given."""
    source = importlib.import_module(package).__file__
    plugin = Judge(rows)
    pytest.main(["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--timeout=60", *tests], plugins=[plugin])
    told = {"source": source, "killed": plugin.killed, "broken": plugin.broken}
    output.write_text(json.dumps(told), encoding="utf-8")


def place(test: str) -> tuple[bool, int, str]:
    folder = test.split("/")[1]
    return (test.startswith(LAST), ORDER.index(folder) if folder in ORDER else len(ORDER), test)


def copy_mutated(mutants: list[Mutant], overlay: Path) -> str:
    """Copy the package that the mutants change into a folder, changed; return its name. All are of one package."""
    (package,) = {_package_of(mutant) for mutant in mutants}
    shutil.copytree(package, overlay / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for mutant in mutants:
        path = overlay / package.name / mutant.file
        path.write_text(path.read_text(encoding="utf-8").replace(mutant.old, mutant.new), encoding="utf-8")
    return package.name


def _package_of(mutant: Mutant) -> Path:
    path = find_module(mutant.file)
    if path is None:
        raise LookupError(f"there is no {mutant.file}")
    return path.parents[mutant.file.count("/")]


def try_out(mutant: Mutant, tests_of: dict[str, list[str]], folder: Path) -> dict[str, Any]:
    """Break the rule in a copy, run the tests, and tell what they said."""
    if untested := [row for row in mutant.rows if "/" not in row and row not in tests_of]:
        # Without the names of tests, all tests would run.
        return {"killed": {}, "broken": dict.fromkeys(untested, "no test cites it: name the test file instead")}
    overlay = folder / "src"
    package = copy_mutated([mutant], overlay)
    tests = sorted({test for row in mutant.rows for test in tests_of.get(row, [row] if "/" in row else [])}, key=place)
    environment = {**os.environ, "PYTHONPATH": f"{overlay}{os.pathsep}{TESTS}", "PYTHONDONTWRITEBYTECODE": "1"}
    module = f"{package}.{mutant.file.removesuffix('.py').replace('/', '.')}"
    imported = subprocess.run(
        [sys.executable, "-c", f"import {module}"], env=environment, capture_output=True, text=True, timeout=60
    )
    if imported.returncode:
        return {"killed": {}, "broken": {module: imported.stderr[-300:]}}
    output = folder / "judged.json"
    command = [sys.executable, "-m", "tests.support.mutation", "--judge", str(output), "--package", package]
    command += ["--rows", *mutant.rows, "--tests", *tests]
    try:
        subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"killed": {}, "broken": {"all": f"not over after {LIMIT_S} s"}}
    told: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    if not Path(told["source"]).is_relative_to(overlay):
        raise SystemExit(f"mutants: the tests ran against {told['source']}, not against the copy")
    return told


def run(mutants: list[Mutant], tests_of: dict[str, list[str]]) -> list[str]:
    """Print a table; the rows that stood although their rule was broken."""
    survived = []
    for mutant in mutants:
        begun = time.monotonic()
        print(f"{mutant.file}: {mutant.why}", flush=True)
        if stale := staleness(mutant):
            survived.append(f"{mutant.name}: {stale}")
            print(f"    OUT OF DATE  {stale}")
            continue
        with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
            told = try_out(mutant, tests_of, Path(folder))
        for row in mutant.rows:
            killer = told["killed"].get(row)
            print(f"    {row}  {killer.removeprefix('tests/') if killer else 'SURVIVES'}")
            if killer is None:
                survived.append(f"{row}: {mutant.name}")
        if not told["killed"]:
            for test, error in told["broken"].items():
                print(f"    no proof: {test}: {error}")
        print(f"    {time.monotonic() - begun:.1f} s", flush=True)
    return survived


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run mutants", description="Do tests fail when the rule they cite is broken?"
    )
    parser.add_argument("wanted", nargs="*", metavar="ROW", help="rows, or beginnings of them; default: all")
    parser.add_argument("--file", default="*.toml", metavar="NAME", help="only those of this file of tests/mutants")
    parser.add_argument("--stale", action="store_true", help="only see whether each mutant still applies")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--package", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rows", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--tests", nargs="*", default=[], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.judge:
        judge(arguments.judge, arguments.package, arguments.rows, arguments.tests)
        return 0
    wanted = tuple(arguments.wanted) or ("",)
    mutants = [mutant for mutant in load(file=arguments.file) if any(row.startswith(wanted) for row in mutant.rows)]
    if arguments.stale:
        stale = [f"{mutant.name}: {reason}" for mutant in mutants if (reason := staleness(mutant))]
        print("\n".join(stale) or f"all {len(mutants)} apply")
        return bool(stale)
    survived = run(mutants, collect())
    rows = {row for mutant in mutants for row in mutant.rows}
    print(f"\n{len(mutants)} mutants of {len(rows)} rows; {len(survived)} survive or are out of date")
    print("\n".join(survived))
    return bool(survived) or not mutants


if __name__ == "__main__":
    sys.exit(main())
