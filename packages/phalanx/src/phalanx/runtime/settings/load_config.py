"""A member's `Config` from its three sources: a TOML file, the environment, and what the command line or a program gives.

Every setting can come from each, under one name (`port`, `PHALANX_PORT`, `--set port=…`); the later source wins. A name that
is not a setting is refused in all three, so that a misspelt one does not run a member with defaults.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.seeds import parse_members
from phalanx.common.words import quoted
from phalanx.net.secret import check_mode
from phalanx.reports.module_folder import find_modules_here
from phalanx.runtime.settings.config import Config

PREFIX: Final = "PHALANX_"
"""Of all variables that are settings: `port` is `PHALANX_PORT`."""
OTHER_VARIABLES: Final = frozenset({"PHALANX_AT", "PHALANX_MEMBERS", "PHALANX_PURE"})
"""Variables that are not settings of a member."""
OF_SERVICES: Final = re.compile(r"PHALANX_(?:\w+_)?(?:SERVICE_(?:HOST|PORT)(?:_\w+)?|PORT(?:_\d+_\w+)?)")
"""Variables that Kubernetes gives every pod beside a service whose name begins with phalanx."""
LISTS: Final = ("seeds", "also_known_as", "functions", "serve", "redis_maps")
"""Settings that are lists: in one text, they are separated by commas."""
TABLES: Final = ("maps",)
"""Settings that are tables: one text holds an inline table of TOML."""

SECRETS: Final = ("secret",)
"""Settings that no other user must be able to read; others name files, in which secrets and tokens are."""

_TYPES: Final = {field.name: field.type for field in msgspec.structs.fields(Config)}


def load_config(
    file: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None, **settings: Any
) -> Config:
    """Return the settings of a TOML file, of the environment (`PHALANX_PORT=5702` for `port`), and these ones: the later win.

    `file`: None reads none. `environ`: None is `os.environ`. Raises `UsageError` that names the source and the setting.
    """
    return _load(file, os.environ if environ is None else environ, settings)


def load_member_config(file: Path | None, settings: dict[str, Any]) -> Config:
    """Return the settings of a command: as `load_config`, but modules with functions are looked for in the present folder, too."""
    return _load(file, os.environ, settings, find_modules_here)


def _load(
    file: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    settings: dict[str, Any],
    before_modules: Callable[[str], None] = lambda setting: None,
) -> Config:
    """Merge the settings of file, environment and program, and check them.

    `before_modules`: called before modules are imported, with the setting that names them.
    """
    path = Path(file) if file is not None else None
    in_file = _read(path) if path is not None else {}
    _check_names(in_file, str(path))
    in_environment = read_environment(environ)
    _check_names(settings, "settings")
    if "cluster" not in settings and _name_cluster(settings.get("seeds")):
        in_environment.pop("cluster", None)  # what the program says wins
    merged = in_file | in_environment | settings
    if isinstance(merged.get("functions"), list) and any(isinstance(each, str) for each in merged["functions"]):
        before_modules("functions")
    try:
        return msgspec.convert(merged, Config)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, UsageError):  # our own check: it already names the setting and the remedy
            text = str(error.__cause__)
            place = text.partition(":")[0]
        else:
            text, _, place = str(error).partition(" - at `$.")
            place = place.rstrip("`")
            text = f"{place}: {text}" if place else text
        where = _source_of(re.split(r"[.\[]", place)[0], path, in_file, in_environment, settings)
        raise UsageError(f"{where}: {text}" if where else text) from None


def _name_cluster(seeds: Any) -> bool:
    """Return whether an address among the seeds has the cluster's name. Seeds that cannot be are refused where they are used."""
    try:
        return bool(seeds) and parse_members(seeds).cluster is not None
    except (UsageError, TypeError):
        return False


def read_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that variables give. Raises `UsageError` for a variable that is none, and a value that cannot be."""
    found = {}
    for variable in sorted(each for each in environ if each.startswith(PREFIX) and each not in OTHER_VARIABLES):
        name, text = variable.removeprefix(PREFIX).lower(), environ[variable]
        if OF_SERVICES.fullmatch(variable) and (name not in _TYPES or "://" in text):
            raise UsageError(
                f"{variable}={quoted(text)} is not a setting: Kubernetes sets it for a service whose name begins with phalanx; give the "
                f"pod enableServiceLinks: false"
            )
        _check_names({name: text}, "environment", variable)
        found[name] = parse_setting(name, text, variable)
    return found


def read_assignments(assignments: list[str]) -> dict[str, Any]:
    """Return the settings of texts such as `port=5702`. Raises `UsageError`."""
    found = {}
    for each in assignments:
        name, is_one, text = each.partition("=")
        if not is_one:
            raise UsageError(f"--set {quoted(each)}: give name=value")
        _check_names({name: text}, "--set")
        if name in SECRETS:
            raise UsageError(
                f"--set {name}: all users of this machine can read a command line (ps), so make a new one; put it into a file that is yours "
                f"alone (chmod 600), and give --{name}-file FILE, or set {PREFIX}{name.upper()}_FILE"
            )
        found[name] = parse_setting(name, text, f"--set {name}")
    return found


def parse_setting(name: str, text: str, where: str) -> Any:
    """Return the value of a setting that was given as a text. Raises `UsageError`."""
    if name == "seeds" and text.strip():
        return [text]  # an address can have commas (`common/seeds.py`)
    if name in LISTS:
        return [part.strip() for part in text.split(",") if part.strip()]
    if name in TABLES:
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise UsageError(f"{where}: {quoted(text)} is not an inline table of TOML: {error}") from None
    kind = _TYPES[name]
    kinds = set(typing.get_args(kind)) if isinstance(kind, types.UnionType) else {kind}
    if str in kinds:
        return text
    try:
        return msgspec.convert(text.strip(), kind, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {quoted(text)} does not fit: {str(error).lower()}") from None


def _check_names(given: Mapping[str, Any], where: str, shown_as: str = "") -> None:
    """Raise `UsageError` for a name that is not a setting."""
    for name in given:
        if name not in _TYPES:
            close = difflib.get_close_matches(name, _TYPES, 1)
            meant = f"{PREFIX}{close[0].upper()}" if close and shown_as else close[0] if close else ""
            raise UsageError(
                f"{where}: there is no setting {shown_as or name!r}"
                + (f" (did you mean {meant!r}?)" if meant else f"; settings: {', '.join(_TYPES)}")
            )


def _source_of(
    name: str, path: Path | None, in_file: dict[str, Any], in_environment: dict[str, Any], settings: dict[str, Any]
) -> str:
    """Return where a setting that is wrong came from; empty: from the caller, or it is not known."""
    if name in settings:
        return ""
    if name in in_environment:
        return f"{PREFIX}{name.upper()}"
    return str(path) if in_file else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
            for name in SECRETS:
                if name in found:
                    check_mode(os.fstat(file.fileno()), f"{path}: {name}")
            return found
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
