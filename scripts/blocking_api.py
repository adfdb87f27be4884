"""Write the blocking API from the asyncio one: what both have alike is written once, for asyncio.

    ./run python scripts/blocking_api.py            write the files anew
    ./run python scripts/blocking_api.py --check    say which are not as they would be written, with exit status 1

A module is translated as text by the tables below, so comments and docstrings come along; ruff sorts its imports, drops those that
nothing uses, and formats it. What blocking classes do otherwise is written by hand in their subclasses, which stand in other files.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.roots import find_package

PHALANX = find_package("phalanx")
RUFF = Path(sys.executable).with_name("ruff")


class Translation(NamedTuple):
    """One module, and what it becomes."""

    source: str
    target: str
    about: str
    """The docstring of the written module."""
    words: Mapping[str, str]
    """Regular expression to what it becomes, beside `WORDS`."""


WORDS = {
    r"\basync (?=def|for|with)": "",
    r"\bawait ": "",
    r"\bAwaitable\[(\w+)\]": r"\1",
    r"\bAsyncIterator\b": "Iterator",
    r"\b(__)a(enter|exit)__": r"\1\2__",
    r"\basync with\b": "with",
    r"\bNeedsAsyncWith\b": "NeedsPlainWith",
    r"\bcoroutine function\b": "function",
    r"\btask(s?)\b": r"thread\1",
    r"\bAsync(Cached|Lock|Locks|Map|MapCalls)\b": r"Sync\1",
    r"\bAsyncFacade\b": "BlockingFacade",
    r"\bphalanx\.maps\.async_(cached|leases|locks|map)\b": r"phalanx.client.blocking.sync_\1",
}
"""What is said otherwise in every blocking module that has it."""

TRANSLATIONS = (
    Translation(
        "maps/async_map_calls.py",
        "client/blocking/sync_map_calls.py",
        "The calls of a blocking map that are those of the asyncio one.",
        {
            r"\bmin\(caller\.open_from, number\)": "number",
            # A session has one call under way; of the requests of one call it tells the first itself.
            r"\bcaller\.open_from\b": "number",
            r"\b_?caller\b": "client",
            r"\bMapCaller\b": "MapClient",
            r"\bCaller\b": "PlanClient",
            r"\bphalanx\.maps\.async_plan_runner\b": "phalanx.client.blocking.plan_runner",
        },
    ),
    Translation(
        "maps/async_locks.py",
        "client/blocking/sync_locks.py",
        "Locks and semaphores for threads: of a blocking client, or of a member on a thread.",
        {r"\basyncio\b(?!\s+one)": "threading", r"\bcurrent_task\b": "current_thread"},
    ),
    Translation(
        "maps/async_facade.py",
        "client/blocking/facade.py",
        "What a blocking client and a member on a thread give programs alike: locks, and functions whose results the grid keeps.",
        {r"\bthe asyncio client and of the member\b": "the blocking client and of the member on a thread"},
    ),
)

LEFT_OUT = {"_waits_for_settings", "_wait_for_settings"}
"""Names of which each statement is left out: whoever blocks waits for the settings of a map where they are read."""


def translated(translation: Translation, text: str) -> str:
    """Return what the text of a source becomes. Raises `ValueError` for an entry of a table that changes nothing."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    for first, last in reversed([*_left_out(tree)]):
        del lines[first - 1 : last]
    about = tree.body[0]
    begun = (about.end_lineno or 0) if isinstance(about, ast.Expr) else 0
    text = "".join(lines[begun:])
    for pattern, instead in translation.words.items():
        text, count = re.subn(pattern, instead, text)
        if not count:
            raise ValueError(
                f"nothing in {translation.source} is {pattern}: take it out of the table of {translation.target}"
            )
    for pattern, instead in WORDS.items():
        text = re.sub(pattern, instead, text)
    made_from = f"Written by scripts/blocking_api.py from {translation.source}: change that, and run the script."
    return _formatted(f'"""{translation.about}\n\n{made_from}\n"""\n{text}', translation.target)


def _left_out(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each statement that is left out; what an attribute is said to be goes with it."""
    body = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
    for each, following in zip(body, [*body[1:], None], strict=False):
        if not _names(each) & LEFT_OUT:
            yield from _left_out(each)
            continue
        last = each
        if (
            isinstance(each, ast.Assign)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            last = following
        yield each.lineno, last.end_lineno or last.lineno


def _names(statement: ast.stmt) -> set[str]:
    """Return the names that a statement defines, assigns or, as a condition, asks."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    asked: list[ast.expr] = []
    if isinstance(statement, ast.If):
        asked = [statement.test]
    elif isinstance(statement, ast.Assign):
        asked = statement.targets
    return {each.attr for one in asked for each in ast.walk(one) if isinstance(each, ast.Attribute)}


def _formatted(text: str, target: str) -> str:
    place = str(PHALANX / target)
    for command in (["check", "--quiet", "--fix", "--select", "F401,I"], ["format", "--quiet"]):
        done = subprocess.run(
            [RUFF, *command, "--stdin-filename", place, "-"], input=text, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"{target}: ruff {command[0]}: {done.stdout}{done.stderr}")
        text = done.stdout
    return text


def main() -> int:
    """Write the modules, or with `--check` only compare them. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = []
    for each in TRANSLATIONS:
        made, target = translated(each, (PHALANX / each.source).read_text(encoding="utf-8")), PHALANX / each.target
        if not target.exists() or target.read_text(encoding="utf-8") != made:
            stale.append(each.target)
            if not check:
                target.write_text(made, encoding="utf-8")
    for name in stale:
        print(f"{name}: {'is not what its source says: ./run python scripts/blocking_api.py' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
