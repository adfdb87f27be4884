"""Which files of the tree tests open: a file of tests whose digest does not know of one is skipped when that one changes."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from .roots import ROOT
from .selection import files_of


def find_unknown(opened: Iterable[str], tests: Iterable[Path]) -> list[str]:
    """Return the opened files of the tree that are in the digest of no file of tests; none if one of these has no digest."""
    known = [files_of(test) for test in tests]
    if None in known:
        return []
    found = {_source_of(path) for path in map(Path, opened) if path.is_relative_to(ROOT) and path.is_file()}
    names = {each.relative_to(ROOT).as_posix() for each in found.difference(*filter(None, known))}
    return sorted(name for name in names if not name.startswith((".", "build/")))


def _source_of(path: Path) -> Path:
    """Return the module of which this is the bytecode; of another file itself."""
    return path.parent.parent / f"{path.name.partition('.')[0]}.py" if path.parent.name == "__pycache__" else path


class OpenedFiles:
    """A plugin of pytest, for a run in one process: what is opened from now on must be known."""

    def __init__(self) -> None:
        self._opened: set[str] = set()
        sys.addaudithook(self._on_event)

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            self._opened.add(os.path.abspath(arguments[0]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        tests = {item.path for item in session.items}
        if not tests:  # all are marked long
            session.exitstatus = pytest.ExitCode.OK
        elif unknown := find_unknown(self._opened, tests):
            names = " ".join(sorted(test.relative_to(ROOT).as_posix() for test in tests))
            print(f"\n{names} opened what the digest does not know (tests/support/selection.py): {' '.join(unknown)}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
