"""What `./run quick` plays: tests of what has changed, and tests of pure code that may end otherwise than when they passed last.

`python -m tests.support.selection` gives them to pytest, with its own arguments. The digest of a file of tests is of all modules
of this tree that it imports, directly or not, of its conftest, and of what the environment was made of. What has none is always
played: a test that starts a process, or reads files of the tree. `./run soak` compares with what tests open (`OpenedFiles`).
"""

import ast
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from phalanx import _LATER

from .distribution import PURE, SHARE_SPARK
from .roots import ROOT, SOURCES, TESTS, find_package

PASSED = ROOT / ".pytest_cache" / "passed.json"
"""The digests with which files of tests have passed last."""
HISTORIES = "sim"
"""A folder of pure tests that play many histories: not for `quick`."""
READS = re.compile(r"\b(subprocess|__file__|read_text|read_bytes|roots)\b|\bopen\(")
"""What only tests and helpers have that start processes or read files."""
DOTTED = re.compile(r"(phalanx\w*|support|planted_bugs)(\.\w+)+")
LAZY = find_package("phalanx") / "__init__.py"
"""What it imports later, it does for the names that are asked of it."""


@cache
def find_file(module: str) -> Path | None:
    """Return the file of a module of this tree; None: it is of none."""
    for root in (*SOURCES, TESTS, ROOT):
        path = root / module.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


def _nodes(tree: ast.AST, *, at_once: bool) -> Iterator[ast.AST]:
    """Walk over what is executed: not what only checkers of types read. `at_once`: nor what functions do later."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            left += node.orelse
        elif not at_once or not isinstance(node, ast.FunctionDef):
            left += ast.iter_child_nodes(node)


def _names(file: Path, text: str, *, at_once: bool) -> Iterator[str]:
    """Yield the dotted names in a module that may be, or may begin with, the names of modules."""
    has_strings = file != LAZY and (file.is_relative_to(TESTS) or "import_module" in text)
    for node in _nodes(ast.parse(text), at_once=at_once):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                root = next(root for root in (*SOURCES, TESTS, ROOT) if file.is_relative_to(root))
                base = ".".join((*file.parents[node.level - 1].relative_to(root).parts, *filter(None, [node.module])))
            yield from (f"{base}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "phalanx":
            yield f"phalanx.{node.attr}"
        elif has_strings and isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (found[0] for found in [DOTTED.match(node.value)] if found)


@cache
def imports(file: Path, *, at_once: bool = False) -> frozenset[Path]:
    """Return the modules of this tree that a module imports itself, at once or also later."""
    found = set()
    for name in _names(file, file.read_text(encoding="utf-8"), at_once=at_once):
        first, _, rest = name.partition(".")
        for each in (name, _LATER.get(rest, "") if first == "phalanx" else ""):
            parts = each.split(".")
            found |= {find_file(".".join(parts[:length])) for length in range(1, len(parts) + 1)}
    return frozenset(each for each in found if each is not None)


def closure(*files: Path, at_once: bool = False) -> set[Path]:
    """Return these modules, and all that they import directly or not."""
    found: set[Path] = set()
    left = set(files)
    while left:
        found |= left
        left = {each for file in left for each in imports(file, at_once=at_once)} - found
    return found


@cache
def _text_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@cache
def _surroundings() -> str:
    stamp = Path(sys.prefix, ".stamp")
    made_of = stamp.read_text(encoding="utf-8") if stamp.is_file() else ""
    return f"{platform.python_version()} {os.environ.get('PHALANX_PURE')} {os.environ.get('CI')} {made_of}"


@cache
def files_of(test: Path) -> set[Path] | None:
    """Return the modules of this tree on which the outcome of a file of tests depends; None: it may depend on any file."""
    if test.parent.name not in PURE:
        return None
    modules = closure(test)
    if any(each.is_relative_to(TESTS) and READS.search(each.read_text(encoding="utf-8")) for each in modules):
        return None
    # What fixtures import when they are asked for is for tests of processes.
    always = (test.parent / "conftest.py", TESTS / "conftest.py", find_package("pytest_phalanx") / "__init__.py")
    return modules | closure(*filter(Path.is_file, always), at_once=True)


def digest(test: Path) -> str | None:
    """Return what stands for all on which a file of tests depends; None: that is not known."""
    files = files_of(test)
    if files is None:
        return None
    told = [f"{each.relative_to(ROOT)} {_text_digest(each)}" for each in sorted(files)]
    return hashlib.sha256("\n".join([_surroundings(), *told]).encode()).hexdigest()


def choose(changed: Iterable[str], passed: dict[str, str]) -> list[str]:
    """Return the files of tests to play, in order. `changed`: files of the tree; `passed`: as in `PASSED`."""
    paths = {ROOT / name for name in changed}
    folders = {part for name in changed for part in name.split("/")}
    near, due = [], []
    for test in sorted(TESTS.rglob("test_*.py")):
        folder = test.parent.name
        if folder in PURE and folder != HISTORIES:
            if (found := digest(test)) is None or passed.get(_name(test)) != found:
                due.append(test)
        elif folder not in SHARE_SPARK and (test in paths or (folder in folders and paths & imports(test))):
            near.append(test)  # it starts processes: of a whole folder of these, tests take minutes
    due.sort(key=lambda test: test.parent.name not in folders)
    return [_name(test) for test in (*near, *due)]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def read_passed() -> dict[str, str]:
    """Return what is kept in `PASSED`; nothing if it is not there."""
    return dict(json.loads(PASSED.read_text(encoding="utf-8"))) if PASSED.is_file() else {}


def find_changed() -> list[str]:
    """Return the files that differ from the last commit; none where there is no repository."""
    asked = (
        ["git", "ls-files", "--modified", "--others", "--exclude-standard"],
        ["git", "diff", "--cached", "--name-only"],
    )
    told = [subprocess.run(each, cwd=ROOT, capture_output=True, text=True, check=False).stdout for each in asked]
    return "".join(told).splitlines()


class Passes:
    """A plugin of pytest that keeps with which digests files of tests pass. xdist's workers have none."""

    def __init__(self, files: Iterable[str]) -> None:
        """`files`: all their tests are played. What changes from now on is played again."""
        self._digests = {name: digest(ROOT / name) for name in files}
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid.partition("::")[0])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        is_over = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if not is_over or session.shouldfail or session.shouldstop:
            return  # nobody knows what was played
        passed = {name: found for name, found in self._digests.items() if found and name not in self._failed}
        PASSED.parent.mkdir(exist_ok=True)
        PASSED.write_text(json.dumps(read_passed() | passed), encoding="utf-8")


def main(arguments: list[str]) -> int:
    files = choose(find_changed(), read_passed())
    if not files:
        print("run: nothing has changed on which tests of pure code depend, since they passed")
        return 0
    return pytest.main([*arguments, *files], plugins=[Passes(files)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
