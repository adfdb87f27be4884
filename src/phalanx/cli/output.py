"""How commands print: tables for people, one JSON object a line for machines.

What people are shown may come from anybody: names, keys, values, reasons. `console` and `Text` print it as it is written,
not as markup, and with escapes for what would drive the terminal; whatever is printed without them goes through `shown`.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import re
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import rich.console
import rich.text
from rich.table import Table

from phalanx.common.words import LONG_BITS, UNSAFE, shown
from phalanx.operations.entries import Undecodable

MAX_DEPTH = 200
"""Containers within containers that are shown: as many as a value can have that this version stores."""
PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe: nothing is cut there."""


class Text(rich.text.Text):
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
    """A table whose last `right` columns are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index >= len(columns) - right else "left", overflow="fold")
    return made


def print_line(*cells: str) -> None:
    """One line on stdout, its cells with tabs between them."""
    print("\t".join(map(shown, cells)))


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    print(as_json(value))


def as_json(value: Any) -> str:
    """Anything that a map can hold, as JSON that any parser reads.

    What JSON has no form for becomes text: NaN and infinite numbers by their names, ints of more than about 4,200 digits in
    hexadecimal. A map with keys that would be one as text becomes a list of pairs. Control characters are always escaped.
    """
    plain = _plain(value)
    try:
        text = msgspec.json.encode(plain).decode()
    except UnicodeEncodeError:  # a lone surrogate, as of a path or an argument
        text = json.dumps(msgspec.to_builtins(plain, str_keys=True), separators=(",", ":"))
    return text if text.isprintable() else UNSAFE.sub(_json_escape, text)


def as_text(value: Any) -> str:
    """Return a value for people: text as it is, with line ends and tabs, if a terminal can show it; all else as JSON."""
    if isinstance(value, str):
        return as_json(value) if UNSAFE.search(value.replace("\n", "").replace("\t", "")) else value
    return value.in_words() if isinstance(value, Undecodable) else as_json(value)


def as_cell(value: Any) -> str:
    """Return a value for a cell of one line: text that would break the line becomes JSON, too."""
    if isinstance(value, str):
        return value if value.isprintable() else as_json(value)
    return as_text(value)


def _json_escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def _plain(value: Any, depth: int = 0) -> Any:
    if isinstance(value, (Mapping, list, tuple)) and depth > MAX_DEPTH:
        return "(nested too deeply to be shown)"
    if isinstance(value, Mapping):
        plain = {key if isinstance(key, str) else as_text(key): _plain(item, depth + 1) for key, item in value.items()}
        if len(plain) < len(value):
            return [[_plain(key, depth + 1), _plain(item, depth + 1)] for key, item in value.items()]
        return plain
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, int) and value.bit_length() > LONG_BITS:
        return hex(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str, dt.date, dt.time, dt.timedelta, Decimal, UUID)):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    return str(value)
