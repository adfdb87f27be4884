"""Whether Spark reads from the maps what the files hold: all rows with all columns, and the answer to a question.

Each side of a table is read once, for the number of rows and a checksum. Where these differ, Spark looks for rows that do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from operator import add
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from phalanx_spark.demo.dataset import NULL

EXAMPLES = 3
WINDS = (0, 5, 10, 15, 20, 25)
"""The least wind speed of each bucket, in mph; the last has no upper end."""
_KEY_HASH = "hash of the key"

Answer = dict[tuple[str, int], tuple[float | None, int]]
"""(airline's name, least wind speed of the bucket) to mean arrival delay in minutes, and number of flights."""


def read_csv(spark: SparkSession, path: Path, schema: str) -> DataFrame:
    """Return a file's rows. What is not of these columns and types is an error when it is read.

    They are not cached: that takes Spark as long as to parse the file twice more.
    """
    reader = spark.read.schema(schema)
    return reader.csv(str(path), header=True, enforceSchema=False, nullValue=NULL, mode="FAILFAST")


def fingerprint(frame: DataFrame, key: tuple[str, ...]) -> tuple[int, int]:
    """Read a DataFrame once: the number of rows, and the sum of the hashes of (column, key, value) of all rows.

    The sum does not depend on the order of rows, and changes when a value changes, or moves to another row or column.
    """
    hashes = [f.xxhash64(f.lit(i), _KEY_HASH, name).cast("decimal(38,0)") for i, name in enumerate(frame.columns)]
    keyed = frame.withColumn(_KEY_HASH, f.xxhash64(*key))
    found = keyed.agg(f.count(f.lit(1)).alias("rows"), f.sum(reduce(add, hashes)).alias("checksum")).collect()[0]
    return found["rows"], int(found["checksum"] or 0)


def find_examples(files: DataFrame, grid: DataFrame) -> list[str]:
    """Show some rows that only one side has."""
    sides = {"file": files.exceptAll(grid), "map": grid.exceptAll(files)}
    return [f"only in the {side}: {row.asDict()}" for side in sides for row in sides[side].limit(EXAMPLES).collect()]


def mean_delays(tables: Mapping[str, DataFrame]) -> Answer:
    """Join three tables: mean arrival delay by airline and by wind speed at the origin in the hour of departure."""
    wind = (f.floor(f.col("wind_speed") / WINDS[1]) * WINDS[1]).cast("int")
    rows = (
        tables["flights"]
        .join(tables["airlines"], "carrier")
        .join(tables["weather"].select("origin", "time_hour", "wind_speed"), ["origin", "time_hour"])
        .where(f.col("wind_speed").isNotNull())
        .groupBy("name", f.least(wind, f.lit(WINDS[-1])).alias("wind"))
        # Delays are whole minutes, so their mean is the same in whatever order they are added.
        .agg(f.avg("arr_delay").alias("delay"), f.count("arr_delay").alias("flights"))
    )
    return {(row["name"], row["wind"]): (row["delay"], row["flights"]) for row in rows.collect()}


def sample(answer: Answer, rows: int = 5) -> list[list[str]]:
    """Choose the airlines with the most flights, each with its mean delay by wind speed, for people."""
    flights: Counter[str] = Counter()
    for (airline, _), (_, count) in answer.items():
        flights[airline] += count
    largest = sorted(flights, key=lambda airline: (-flights[airline], airline))[:rows]
    cells = {place: f"{delay:+.1f}" for place, (delay, _) in answer.items() if delay is not None}
    return [[airline, *(cells.get((airline, wind), "") for wind in WINDS)] for airline in largest]
