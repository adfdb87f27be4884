"""How commands print: tables for people, one JSON object a line for machines."""

from __future__ import annotations

import base64
import datetime as dt
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from rich.console import Console
from rich.table import Table

PIPE_WIDTH = 200
"""Columns of a table that goes into a file or a pipe: nothing is cut there."""


def console() -> Console:
    """What people look at."""
    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=False, width=None if is_terminal else PIPE_WIDTH)


def table(title: str, *columns: str, right: int = 0) -> Table:
    """A table whose last `right` columns are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index >= len(columns) - right else "left", overflow="fold")
    return made


def print_json(value: Any) -> None:
    """One line of JSON on stdout."""
    print(as_json(value))


def as_json(value: Any) -> str:
    """Anything that a map can hold, as JSON. What JSON has no form for becomes text."""
    return msgspec.json.encode(_plain(value)).decode()


def as_text(value: Any) -> str:
    """For people: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else as_json(value)


def as_cell(value: Any) -> str:
    """For one column of one line: text that would break the line is JSON, too."""
    return value if isinstance(value, str) and value.isprintable() else as_json(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else as_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, (bool, int, float, str, dt.date, dt.time, dt.timedelta, Decimal, UUID)):
        return value
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return str(value)
