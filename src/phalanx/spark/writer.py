"""Batch write: Arrow batches in, serialised entries straight to the owners.

What can be wrong with the write as a whole (options, types, the key column, the cluster) is checked on the driver before
the first task starts. A task writes batch by batch; a row replaces the entry of its key, so a task that Spark repeats
writes the same again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from phalanx.common.errors import UsageError
from phalanx.spark import grid
from phalanx.spark.errors import explained
from phalanx.spark.keys import check_key_columns, encode_keys
from phalanx.spark.options import Options
from phalanx.spark.rows import encode_rows
from phalanx.spark.types import arrow_schema

MAX_BATCH_BYTES = 64 * 1024 * 1024
"""Arrow bytes that are encoded at once; larger batches are cut."""


@dataclass
class Written(WriterCommitMessage):
    """What one task has written."""

    rows: int


def check_write(options: Options, schema: StructType, overwrite: bool) -> None:
    """Refuse on the driver what could not be written. Raises `UsageError` or `ConnectError`."""
    if overwrite:
        raise UsageError(
            f"mode 'overwrite' is not offered for the map {options.map!r}: write with mode('append'), which replaces the "
            f"entries whose keys are written and keeps the others; clear the map first to start from nothing"
        )
    arrow = arrow_schema(schema)
    check_key_columns(arrow, options)
    with grid.connect(options) as client:
        client.partition_table()


class PhalanxWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame into a map. Created on the driver, pickled into every task."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Written:
        """Store every batch of this task."""
        options = self._options
        rows = 0
        with explained(), grid.connect(options) as client:
            for whole in iterator:
                for batch in cut(whole, MAX_BATCH_BYTES):
                    keys = encode_keys(batch, options)
                    values = encode_rows(batch, options)
                    client.put_data(options.map, keys, values, options.ttl_ms)
                    rows += batch.num_rows
        return Written(rows)


def cut(batch: Any, max_bytes: int) -> Iterator[Any]:
    """A batch in pieces of about at most so many bytes, and of at least one row."""
    if batch.num_rows <= 1 or batch.nbytes <= max_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from cut(batch.slice(0, half), max_bytes)
    yield from cut(batch.slice(half), max_bytes)
