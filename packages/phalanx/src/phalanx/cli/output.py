"""How commands print: tables for people, one JSON object a line for machines.

Text that people are shown can come from anybody: names, keys, values, reasons. `console` and `EscapedText` print it as it is written,
not as markup, and with escapes for what would drive the terminal; whatever is printed without them goes through `shown`.
"""

from __future__ import annotations

import sys
from typing import Any

import rich.console
import rich.text
from rich.table import Table

from phalanx.common.words import shown
from phalanx.reports.value_json import as_json, as_text

PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe: nothing is cut there."""


class EscapedText(rich.text.Text):
    """Text with a style: what would act instead of being shown is escaped."""

    def __init__(self, text: str = "", *arguments: Any, **options: Any) -> None:
        super().__init__(shown(text), *arguments, **options)

    def append(self, text: rich.text.Text | str, style: Any = None) -> rich.text.Text:
        return super().append(shown(text) if isinstance(text, str) else text, style)


class Console(rich.console.Console):
    """Prints plain text as it is: no markup, no emoji codes, and escapes for what would act."""

    def render_str(self, text: str, **options: Any) -> rich.text.Text:
        plain = {"markup": False, "emoji": False, "highlight": False}
        return super().render_str(shown(text), **(options | plain))


def console() -> Console:
    """Return the console for output to people."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=False, width=None if is_terminal else PIPE_WIDTH)


def table(title: str, *columns: str, right: int = 0) -> Table:
    """Make a table whose last `right` columns are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index >= len(columns) - right else "left", overflow="fold")
    return made


def print_line(*cells: str) -> None:
    """Print one line on stdout, its cells with tabs between them."""
    print("\t".join(map(shown, cells)))


def print_json(value: Any) -> None:
    """Print a value on stdout as one line of JSON."""
    print(as_json(value))


def print_entry(key: Any, value: Any, *, json: bool) -> None:
    """Print one line: key, tab, value; or an object with both."""
    if json:
        print_json({"key": key, "value": value})
    else:
        print(f"{as_cell(key)}\t{as_cell(value)}")


def as_cell(value: Any) -> str:
    """Return a value for a cell of one line: text that would break the line becomes JSON, too."""
    if isinstance(value, str):
        return value if value.isprintable() else as_json(value)
    return as_text(value)
