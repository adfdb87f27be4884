"""The blocking API is written from the asyncio one: what is committed is what the script writes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.roots import SCRIPTS, find_package

PHALANX = find_package("phalanx")


@pytest.fixture(autouse=True)
def scripts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPTS)


def test_what_is_written_from_asyncio_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPTS / "blocking_api.py", "--check"], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stdout + done.stderr


def test_nothing_of_asyncio_is_left_over() -> None:
    import blocking_api

    for each in blocking_api.TRANSLATIONS:
        text = (PHALANX / each.target).read_text(encoding="utf-8")
        left = [word for word in ("await", "async ", "asyncio", "Async") if word in text.partition('"""\n')[2]]
        assert left == [], each.target
        assert f"from {each.source}: change that" in text.partition('"""\n')[0]


def public_functions(path: Path) -> Iterator[tuple[str, str | None]]:
    """The public methods of the classes of a file, and their docstrings."""
    for kind in ast.parse(path.read_text(encoding="utf-8")).body:
        for each in kind.body if isinstance(kind, ast.ClassDef) else ():
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
                yield each.name, ast.get_docstring(each)


def test_every_method_of_the_source_comes_along_with_its_docstring() -> None:
    import blocking_api

    for translation in blocking_api.TRANSLATIONS:
        source, target = (list(public_functions(PHALANX / name)) for name in (translation.source, translation.target))
        assert [name for name, _ in source] == [name for name, _ in target]
        assert [text is None for _, text in source] == [text is None for _, text in target]


def test_an_entry_of_the_tables_that_changes_nothing_is_refused() -> None:
    import blocking_api

    translation = blocking_api.TRANSLATIONS[0]
    with pytest.raises(ValueError, match="take it out of the table"):
        blocking_api.translated(translation, '"""Nothing is here."""\n')
