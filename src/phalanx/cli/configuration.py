"""From a TOML file and the command line to a member's `Config`; what the command line says wins."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from phalanx.common.errors import UsageError
from phalanx.runtime.config import Config


def load_config(path: Path | None, given: dict[str, Any]) -> Config:
    """The settings of the file, overridden by those that were given. Raises `UsageError` that names file and field."""
    fields = _read(path) if path is not None else {}
    where = str(path) if path is not None else "configuration"
    for name in fields:
        if name not in Config.__struct_fields__:
            close = difflib.get_close_matches(name, Config.__struct_fields__, 1)
            raise UsageError(
                f"{where}: there is no setting {name!r}"
                + (f" (did you mean {close[0]!r}?)" if close else f"; settings: {', '.join(Config.__struct_fields__)}")
            )
    try:
        return msgspec.convert(fields | given, Config)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, UsageError):  # our own check: it already names the field and the remedy
            raise UsageError(f"{where}: {error.__cause__}" if fields else str(error.__cause__)) from None
        text, _, place = str(error).partition(" - at `$.")
        raise UsageError(f"{where}: {place.rstrip('`')}: {text}" if place else f"{where}: {text}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
