"""Streaming sink: every batch of a query into a map exactly once, in `append` and `update` alike; `complete` replaces.

The rows of a task go into hidden maps of the members, one for each attempt of a task. When Spark says that all tasks
are done, the driver names the attempts that count, and each partition applies their rows in one step, and stores the
query's id and the batch's number with them. A batch is repeated if the driver died after some partitions had applied
it: then it changes only the other partitions. The same is true of tasks that Spark repeats or runs twice.

The query's id is the one in its checkpoint. Spark shows it, and the number, to tasks only, so tasks report them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from phalanx.common.errors import UsageError
from phalanx.common.invariant import invariant
from phalanx_spark.columns.arrow import to_bytes_list
from phalanx_spark.columns.fallback import sql_name
from phalanx_spark.columns.packing import rows_by_partition
from phalanx_spark.columns.types import arrow_schema
from phalanx_spark.connector import grid
from phalanx_spark.connector.errors import explained
from phalanx_spark.connector.keys import check_key_columns, encode_keys
from phalanx_spark.connector.options import SparkOptions
from phalanx_spark.connector.rows import encode_rows
from phalanx_spark.connector.schemas import PlannedSchema, plan_schema
from phalanx_spark.connector.writer import MAX_BATCH_BYTES, drop_staged, make_visible, replace_content, split_batch

_QUERY_ID = "sql.streaming.queryId"
"""The local property in which Spark tells a task the id of its query."""
REMOVING = ("removed", "expired", "evicted")
"""Kinds of changes after which the key has no entry."""
KEEPING = ("added", "updated", "merged")
"""Kinds of changes after which it has one."""


@dataclass
class StagedEpoch(WriterCommitMessage):
    """The rows that one attempt of a task has staged, and their query."""

    job: str
    staged: grid.StagedRows
    query: str
    rows: int


def check_sink(options: SparkOptions, schema: StructType, *, overwrite: bool) -> tuple[SparkOptions, PlannedSchema]:
    """Check on the driver whether the stream can be written. Return the options with the map's settings, and how its
    schema changes.

    Raises `UsageError` or `ConnectError`.
    """
    arrow = arrow_schema(schema)
    check_key_columns(arrow, options)
    column = options.delete_column
    if column is not None:
        if column not in arrow.names:
            raise UsageError(
                f"option 'deleteColumn' names the column {column!r}, which the stream does not have (columns: "
                f"{', '.join(arrow.names)}); set it to the column that says which rows remove their key, or leave it out"
            )
        kind = arrow.field(column).type
        if column in options.key or not (pa.types.is_boolean(kind) or pa.types.is_string(kind)):
            raise UsageError(
                f"option 'deleteColumn' names the column {column!r}, which is {sql_name(kind)}"
                f"{' and part of the key' if column in options.key else ''}; it has to be a boolean, or a string with the "
                f"kind of a change"
            )
    with grid.connect(options) as client:
        options = grid.with_setting(client, options)
        return options, plan_schema(client, options, schema, overwrite=overwrite)


class _Sink:
    """The common part of a stream's sink and of a write in `foreachBatch`."""

    def __init__(self, options: SparkOptions, overwrite: bool, planned: PlannedSchema = (None, None)) -> None:
        self._options = options
        self._append, self._new_schema = planned
        self._overwrite = overwrite
        self._job = grid.new_job_id()

    def write(self, iterator: Iterator[Any]) -> StagedEpoch:
        """Stage every Arrow batch of this task."""
        options = self._options
        rows = 0
        with explained(), grid.connect(options) as client:
            client.partition_table()  # By which rows are packed.
            attempt = grid.Staging(client, options.map, self._job).attempt(uuid.uuid4().hex)
            for whole in iterator:
                for batch in split_batch(whole, MAX_BATCH_BYTES):
                    stage_batch(attempt, batch, options, client.partition_count)
                    rows += batch.num_rows
        return StagedEpoch(self._job, attempt.staged(), self._query(), rows)

    def _query(self) -> str:
        if self._options.stream_batch is not None:
            return self._options.stream_batch[0]
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        invariant(query is not None, "Spark tells each task of a streaming query the query's id")
        return str(query)

    def _commit(self, messages: Sequence[WriterCommitMessage | None], number: int) -> None:
        epochs = [message for message in messages if isinstance(message, StagedEpoch)]
        staged = [message for message in epochs if message.rows]
        attempts = [one.staged for one in staged]
        batch = (epochs[0].query, number) if epochs else None
        name = self._options.map
        with explained(), grid.connect(self._options) as client:
            if not self._overwrite and not staged:
                return
            job = grid.Staging(client, name, staged[0].job if staged else self._job)
            if self._overwrite:
                replace_content(job, attempts, self._new_schema, batch)
            else:
                make_visible(client, job, attempts, self._append, batch)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        jobs = sorted({message.job for message in messages if isinstance(message, StagedEpoch)})
        drop_staged(self._options, jobs, is_replace=self._overwrite)


class PhalanxStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writes a stream into a map. Made anew for each batch, on the driver, and pickled into every task."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Apply the staged rows to the map, because all tasks are done."""
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what other tasks have staged, because a task failed for good."""
        self._abort(messages)


class EachBatchWriter(_Sink, DataSourceArrowWriter):
    """Writes one batch of a stream from within `foreachBatch`."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Apply the staged rows to the map, because all tasks are done."""
        batch = self._options.stream_batch
        invariant(batch is not None, "such a writer is made for a batch")
        self._commit(messages, batch[1] if batch else 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what other tasks have staged, because a task failed for good."""
        self._abort(messages)


def stage_batch(attempt: grid.StagedAttempt, batch: Any, options: SparkOptions, partition_count: int) -> None:
    """Stage the last row of each key of an Arrow batch: it stores or removes."""
    column = options.delete_column
    removes = [False] * batch.num_rows if column is None else find_removals(batch.column(column), column)
    column_of_keys = encode_keys(batch, options)
    keys = to_bytes_list(column_of_keys)
    last = {key: row for row, key in enumerate(keys)}
    if column is not None:
        batch = batch.drop_columns([column])
    stored = [row for row in last.values() if not removes[row]]
    if stored:
        if len(stored) < batch.num_rows:
            rows = pa.array(stored, pa.int32())
            batch, column_of_keys = batch.take(rows), column_of_keys.take(rows)
        parts = rows_by_partition(column_of_keys, encode_rows(batch, options), partition_count)
        attempt.put_packed(parts, partition_count, options.ttl_ms)
    if len(stored) < len(last):
        attempt.delete_keys([key for key, row in last.items() if removes[row]])


def find_removals(column: Any, name: str) -> list[bool]:
    """Return for each row whether it removes the entry of its key. Raises `UsageError` for a row that does not say it."""
    if column.null_count:
        raise UsageError(
            f"column '{name}', which option 'deleteColumn' names, is null in {column.null_count} of {len(column)} rows of a "
            f"batch; nothing of that batch was written; fill it with false, or with the kind of a change"
        )
    values = column.to_pylist()
    if pa.types.is_boolean(column.type):
        return list(values)
    unknown = sorted(set(values) - set(REMOVING) - set(KEEPING))
    if unknown:
        raise UsageError(
            f"column '{name}', which option 'deleteColumn' names, holds {unknown[0]!r}, which is not a kind of a change; "
            f"nothing of that batch was written; the kinds are {', '.join(KEEPING + REMOVING)}, or make it a boolean"
        )
    return [value in REMOVING for value in values]
