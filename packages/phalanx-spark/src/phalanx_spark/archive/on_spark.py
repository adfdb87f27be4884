"""Move entries between members and files by Spark: each task reads some partitions, or some files."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from phalanx.client.sync import Client
from phalanx_spark.archive.batches import as_batch
from phalanx_spark.archive.folder import find_local
from phalanx_spark.archive.manifest import ENTRY_SCHEMA
from phalanx_spark.archive.source import Source
from phalanx_spark.archive.spark_folder import SparkFolder
from phalanx_spark.archive.staged import StagedPart, stage_batches
from phalanx_spark.connector.planning import plan_scan

_STAGED = "attempt string, partition_count int, pages array<int>, entries long, over long"


class OnSpark:
    """An archive on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, address: str) -> None:
        """Raise `UsageError` if Spark does not know such a file system."""
        self._spark = spark
        self.folder = SparkFolder(spark, address)

    def write_entries(self, client: Client, source: Source, name: str, part: str) -> int:
        """Write all entries of a map, a file by each task. Return how many the files hold."""
        table = client.partition_table()
        tasks = [(task.partitions, task.partition_count) for task in plan_scan(table.owners(), 0)]
        founders = client.founders

        def entries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    partitions, partition_count = tasks[number]
                    with source.connect(founders) as own:
                        for page in own.map(name).scan_packed(partitions, partition_count, with_ttls=True):
                            yield as_batch(page, time.time())

        address = self.folder.of(part)
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        numbers.mapInArrow(entries, from_arrow_schema(ENTRY_SCHEMA)).write.parquet(address)
        return self._spark.read.parquet(address).count()

    def stage_entries(self, source: Source, name: str, job: str, part: str, late_ms: int) -> list[StagedPart]:
        """Stage the entries, in an attempt for each task."""

        def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            staged = stage_batches(source, name, job, batches, late_ms)
            yield pa.RecordBatch.from_pydict(
                {
                    "attempt": [staged.attempt],
                    "partition_count": pa.array([staged.partition_count], pa.int32()),
                    "pages": pa.array([list(staged.pages)], pa.list_(pa.int32())),
                    "entries": [staged.entries],
                    "over": [staged.over],
                }
            )

        if (here := find_local(self.folder.address, str(self._spark.sparkContext.master))) is not None:
            here.files_of(part)  # no link leads out of it
        rows = self._spark.read.parquet(self.folder.of(part)).mapInArrow(stage, _STAGED).collect()
        return [StagedPart(row.attempt, row.partition_count, tuple(row.pages), row.entries, row.over) for row in rows]
