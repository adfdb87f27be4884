"""Batch write: serialise Arrow batches, and stage them with the owners, which apply them in one step, or never.

What can be wrong with the write as a whole (options, types, the key column, the cluster) is checked on the driver
before the first task starts. Each attempt of a task stages its rows under a name of its own. In the end Spark says
which attempts count: those are applied. So tasks that fail, are tried again or run twice at once change nothing, nor
does a job whose driver dies before it is committed.

With `staged` false, rows are put into the map at once: a row replaces the entry of its key, so a task that Spark
repeats writes the same again; the rows of a job that fails stay.

A task waits for each batch until all synchronous backups have it, and takes the next one only then: no more than
`MAX_BATCH_BYTES` of each task are on their way to members or wait there for backups. While members have no memory for a
batch, the task waits for as long as a call can take, and then fails with the members' error (`GridFull`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from phalanx.client.memory_wait import wait_for_memory
from phalanx.common.errors import IndeterminateWrite, PhalanxError, UnavailableError, UsageError
from phalanx_spark.columns.packing import rows_by_partition
from phalanx_spark.columns.types import arrow_schema
from phalanx_spark.connector import grid
from phalanx_spark.connector.errors import explained
from phalanx_spark.connector.keys import check_key_columns, encode_keys
from phalanx_spark.connector.options import APPEND, ERROR, SparkOptions
from phalanx_spark.connector.rows import encode_rows
from phalanx_spark.connector.schemas import PlannedSchema, SchemaOfAppend, plan_schema

MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Arrow bytes that are encoded and sent at once; larger batches are cut, and smaller ones put together."""
COMMIT_TRIES = 3
"""It is safe to ask for a step of the whole job again; each try takes as long as a call can."""


@dataclass
class Written(WriterCommitMessage):
    """What one attempt of a task has written."""

    rows: int
    staged: grid.StagedRows | None = None
    """The staged rows; None: the rows are in the map already, or there are none."""


def plan_write(options: SparkOptions, schema: StructType, overwrite: bool) -> PhalanxWriter:
    """Check on the driver whether the rows can be written. Raises `UsageError` or `ConnectError`."""
    if overwrite and not options.staged:
        raise UsageError(
            f"mode 'overwrite' of the map {options.map!r} is all or nothing, and option 'staged' says false: leave that out"
        )
    if overwrite and options.if_exists != APPEND:
        raise UsageError(
            f"mode 'overwrite' replaces what the map {options.map!r} has, and option 'ifExists' says "
            f"{options.if_exists!r}: leave one of them out"
        )
    check_key_columns(arrow_schema(schema), options)
    with grid.connect(options) as client:
        options = grid.with_setting(client, options)
        skips = _skips_write(client, options)
        founders = client.founders
        append, replacing = (None, None) if skips else plan_schema(client, options, schema, overwrite=overwrite)
        if append is not None and not options.staged:
            append.store(client)
    return PhalanxWriter(options, overwrite, skips, founders, (append, replacing))


def _skips_write(client: grid.Client, options: SparkOptions) -> bool:
    """Return whether nothing is written because the map has entries. Raises `UsageError` if that is an error."""
    if options.if_exists == APPEND or not grid.has_entries(client, options.map):
        return False
    if options.if_exists == ERROR:
        raise UsageError(
            f"map {options.map!r} of the cluster {options.cluster!r} has entries already: write with mode('append') to insert "
            f"and update by key, with mode('overwrite') to replace them, or into another map"
        )
    return True


class PhalanxWriter(DataSourceArrowWriter):
    """Writes the rows of a DataFrame into a map. Created on the driver, pickled into every task."""

    def __init__(
        self,
        options: SparkOptions,
        overwrite: bool = False,
        skips: bool = False,
        founders: tuple[str, ...] = (),
        planned: PlannedSchema = (None, None),
    ) -> None:
        """`founders`: of the cluster by which the write was planned."""
        self._options = options
        self._append, self._new_schema = planned
        self._founders = founders
        self._overwrites = overwrite
        self._skips = skips
        self._job = grid.new_job_id()

    def write(self, iterator: Iterator[Any]) -> Written:
        """Store or stage every batch of this task."""
        options = self._options
        rows, staged = 0, None
        if self._skips:
            return Written(0)
        with explained(), grid.connect(options, self._founders) as client:
            client.partition_table()  # By which rows are packed.
            if options.staged:
                attempt = grid.Staging(client, options.map, self._job).attempt(grid.new_job_id())
            for whole in join_batches(iterator, MAX_BATCH_BYTES):
                for batch in split_batch(whole, MAX_BATCH_BYTES):
                    partition_count = client.partition_count
                    parts = rows_by_partition(encode_keys(batch, options), encode_rows(batch, options), partition_count)
                    if options.staged:
                        attempt.put_packed(parts, partition_count, options.ttl_ms)
                    else:
                        put = partial(client.map(options.map).put_packed, parts, partition_count, options.ttl_ms)
                        wait_for_memory(put, client.call_timeout_s)
                    rows += batch.num_rows
            if options.staged and rows:
                staged = attempt.staged()
        return Written(rows, staged)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Apply the staged rows of all tasks to the map, in the order of the tasks."""
        options = self._options
        if self._skips or not options.staged:
            return
        attempts = [message.staged for message in messages if isinstance(message, Written) and message.staged]
        with explained(), grid.connect(options, self._founders) as client:
            job = grid.Staging(client, options.map, self._job)
            if options.if_exists != APPEND:
                self._check_entries_again(client, job)
            if self._skips:
                return
            if self._overwrites:
                replace_content(job, attempts, self._new_schema)
            else:
                make_visible(client, job, attempts, self._append)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what was staged, because the job has failed."""
        if not self._skips and self._options.staged:
            drop_staged(self._options, [self._job], is_replace=self._overwrites)

    def _check_entries_again(self, client: grid.Client, job: grid.Staging) -> None:
        """Look again whether the map has entries: others can have written into it since the job began."""
        try:
            self._skips = _skips_write(client, self._options)
        except UsageError:
            job.drop()
            raise
        if self._skips:
            job.drop()


def make_visible(
    client: grid.Client,
    job: grid.Staging,
    attempts: Sequence[grid.StagedRows],
    schema: SchemaOfAppend | None,
    batch: tuple[str, int] | None = None,
) -> None:
    """Put staged rows into the map, and before them the schema by which they are read."""
    if schema is not None:
        schema.store(client)
    if attempts:
        take_step(job.map_name, "applied", lambda: job.apply(attempts, batch))


def replace_content(
    job: grid.Staging, attempts: Sequence[grid.StagedRows], schema: str | None, batch: tuple[str, int] | None = None
) -> None:
    """Put staged rows, and the schema by which they are read, in the place of what the map holds."""
    name = job.map_name
    take_step(name, "prepared", lambda: job.prepare_replace(attempts, batch, schema))
    take_step(name, "decided", job.decide_replace)


def drop_staged(options: SparkOptions, jobs: Iterable[str], *, is_replace: bool) -> None:
    """Drop what these jobs have staged for the map. What cannot be dropped now expires when nobody uses it."""
    try:
        with grid.connect(options) as client:
            for name in jobs:
                job = grid.Staging(client, options.map, name)
                job.abort() if is_replace else job.drop()
    except PhalanxError:
        pass  # the user must see the error that ended the job


def take_step(map_name: str, what: str, step: Callable[[], object]) -> None:
    """Take a step of a whole job, again if it is not known whether it was taken."""
    for left in reversed(range(COMMIT_TRIES)):
        try:
            step()
            return
        except (UnavailableError, IndeterminateWrite) as error:
            if not left:
                raise type(error)(
                    f"the job's rows for map {map_name!r} are written, but were not {what} everywhere: {error}"
                ) from None


def join_batches(batches: Iterable[Any], max_bytes: int) -> Iterator[Any]:
    """Join small batches until they have `max_bytes`: a request with few rows costs as much as one with many."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= max_bytes:
            yield concatenate(held)
            held, size = [], 0
    if held:
        yield concatenate(held)


def concatenate(batches: Sequence[Any]) -> Any:
    """Concatenate batches of one schema."""
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays(columns) for columns in zip(*(batch.columns for batch in batches), strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)


def split_batch(batch: Any, max_bytes: int) -> Iterator[Any]:
    """Split a batch into pieces of at least one row, and of about `max_bytes` at most."""
    if batch.num_rows <= 1 or batch.nbytes <= max_bytes:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from split_batch(batch.slice(0, half), max_bytes)
    yield from split_batch(batch.slice(half), max_bytes)
