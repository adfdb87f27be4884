"""Where the audit keeps what it computes once and reads often: Parquet files that are deleted when it is done.

A table that is only cached still has the whole plan that made it, and Spark needs longer to plan a query over ten such
tables than to run it. Read back from a file, a table is one scan of the wanted columns.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from phalanx.common.errors import UsageError
from phalanx.common.invariant import invariant

FAMILIES = {
    "ViewInstalled": "lists", "TableInstalled": "tables",
    "MigrationStarted": "moves", "MigrationCopied": "copies", "MigrationCommitted": "ends", "MigrationRolledBack": "ends",
    "MigrationFinalized": "finals", "PartitionSealed": "finals",
}  # fmt: skip
"""Kinds of events of which there are many, with the family in which they are stored; all other kinds are in `OTHERS`."""
OTHERS = "others"


class Scratch:
    """Tables by name, in one folder."""

    def __init__(self, spark: SparkSession, root: str, here: Path | None = None) -> None:
        self.spark = spark
        self._root = root
        self.here = here
        """The folder, where Spark runs on this machine."""

    def save(self, table: DataFrame, name: str) -> DataFrame:
        """Save the table in a file, and return it as it is read from there."""
        path = f"{self._root}/{name}"
        table.write.mode("overwrite").parquet(path)
        return self.spark.read.schema(table.schema).parquet(path)

    def save_events(self, events: DataFrame, name: str) -> DataFrame:
        """Add events by family (a column then), so that a query of some kinds reads no others."""
        family = F.lit(OTHERS)
        for each in sorted(set(FAMILIES.values())):
            kinds = [kind for kind, value in FAMILIES.items() if value == each]
            family = F.when(F.col("event").isin(kinds), F.lit(each)).otherwise(family)
        named = events.withColumn("family", family)
        named.write.mode("append").partitionBy("family").parquet(f"{self._root}/{name}")
        return self.read_events(events, name)

    def read_events(self, like: DataFrame, name: str) -> DataFrame:
        """Return the stored events, with these columns and `family`."""
        schema = StructType(like.schema.fields).add("family", "string")
        return self.spark.read.schema(schema).parquet(f"{self._root}/{name}")


def small(spark: Any, rows: list[tuple[Any, ...]], ddl: str) -> Any:
    """Make a table of a few rows that is part of the plan.

    If Spark made it of plain rows, Python workers would unpack it for every query that reads it.
    """
    if not isinstance(spark, SparkSession):
        return spark.small(rows, ddl)
    if "struct<" in ddl:
        return spark.createDataFrame(rows, ddl)
    schema = StructType.fromDDL(ddl)
    invariant(isinstance(schema, StructType), "a table has columns", ddl=ddl)
    schema = cast(StructType, schema)
    fields = to_arrow_schema(schema)
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(fields)]
    return spark.createDataFrame(pa.Table.from_arrays(columns, schema=fields), schema)


@contextlib.contextmanager
def scratch(spark: SparkSession, folder: str) -> Iterator[Scratch]:
    """Yield a scratch folder: on this machine if Spark runs here, else beside the logs, which all executors reach.

    Raises `UsageError` if nothing can be written there.
    """
    if str(spark.sparkContext.master).startswith("local"):
        with tempfile.TemporaryDirectory(prefix="phalanx-audit-", ignore_cleanup_errors=True) as root:
            yield Scratch(spark, root, Path(root))
        return
    root = f"{folder.rstrip('/')}/_phalanx-audit-{uuid4()}"
    try:
        spark.range(1).write.parquet(f"{root}/try")
    except PySparkException as error:
        raise UsageError(
            f"the audit keeps tables for a while in {root}, and cannot write there: {str(error)[:200]}"
        ) from error
    try:
        yield Scratch(spark, root)
    finally:
        _remove(spark, root)


def _remove(spark: SparkSession, root: str) -> None:
    """Remove a folder through the file system to which Spark wrote it."""
    jvm = spark.sparkContext._jvm
    if jvm is None:
        shutil.rmtree(root, ignore_errors=True)
        return
    path = jvm.org.apache.hadoop.fs.Path(root)
    path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).delete(path, True)
