"""Whether what Spark reads from a map is what the file holds: rows, and each column's content.

Each side is read once. Of each column: how many values there are, and the sum of the hashes of (key, value) of all rows,
which does not depend on their order and moves if a value changes, or goes to another row. Where something differs, the
two sides are joined by key to show what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLES = 3
_KEY_HASH = "hash of the key"


@dataclass(frozen=True)
class Fingerprint:
    """A DataFrame in a few numbers."""

    rows: int
    columns: dict[str, tuple[int, int]]
    """Column to how many values it has that are not null, and their checksum."""


def fingerprint(frame: DataFrame, key: tuple[str, ...]) -> Fingerprint:
    """Read a DataFrame once."""
    from pyspark.sql import functions as f

    names = frame.columns
    wanted = [f.count(f.lit(1)).alias("rows")]
    for index, name in enumerate(names):
        hashed = f.xxhash64(_KEY_HASH, name).cast("decimal(38,0)")
        wanted += [f.count(name).alias(f"count{index}"), f.sum(hashed).alias(f"sum{index}")]
    found = frame.withColumn(_KEY_HASH, f.xxhash64(*key)).agg(*wanted).collect()[0]
    return Fingerprint(
        found["rows"],
        {name: (found[f"count{i}"], int(found[f"sum{i}"] or 0)) for i, name in enumerate(names)},
    )


def differences(name: str, files: Fingerprint, grid: Fingerprint) -> list[str]:
    """What differs, one line each; none if nothing does."""
    found = []
    if files.rows != grid.rows:
        found.append(f"{name}: {files.rows:,} rows in the file, {grid.rows:,} in the map")
    for column in files.columns.keys() - grid.columns.keys():
        found.append(f"{name}.{column}: not in the map")
    for column, (count, checksum) in files.columns.items():
        there = grid.columns.get(column, (count, checksum))
        if there[0] != count:
            found.append(f"{name}.{column}: {count:,} values in the file, {there[0]:,} in the map")
        elif there[1] != checksum:
            found.append(f"{name}.{column}: other values in the map than in the file")
    return found


def examples(files: DataFrame, grid: DataFrame, key: tuple[str, ...]) -> list[str]:
    """Some rows that differ, as people can look them up."""
    from pyspark.sql import functions as f

    columns = [name for name in files.columns if name not in key]
    left = files.select(*key, f.struct(*(columns or key)).alias("in_file"))
    right = grid.select(*key, f.struct(*(columns or key)).alias("in_map"))
    rows = left.join(right, list(key), "full_outer").where(~f.col("in_file").eqNullSafe(f.col("in_map")))
    found = []
    for row in rows.limit(EXAMPLES).collect():
        place = ", ".join(f"{name}={row[name]}" for name in key)
        if row["in_file"] is None or row["in_map"] is None:
            found.append(f"{place}: only in the {'map' if row['in_file'] is None else 'file'}")
            continue
        pairs = [
            f"{name} is {row['in_file'][name]} in the file and {row['in_map'][name]} in the map"
            for name in columns
            if row["in_file"][name] != row["in_map"][name]
        ]
        found.append(f"{place}: {', '.join(pairs)}")
    return found
