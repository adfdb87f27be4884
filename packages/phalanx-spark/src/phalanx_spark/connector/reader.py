"""Batch read: the entries of a map as Arrow batches, each task from the owners of its partitions.

Filters can be pushed down: if every key column is compared with values, only the entries of those keys are fetched;
else the members evaluate the filters that they can evaluate as exactly as Spark (`filters`), and Spark evaluates the
others. The option `pushDown` switches this on. It is off by default, because Spark 4 keeps the reader of a DataFrame's
last query with filters, and uses it for queries of the same DataFrame without any: a count after a lookup would count
the found entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition, IsNotNull
from pyspark.sql.types import StructType

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import UsageError
from phalanx.common.invariant import invariant
from phalanx.grid.serving.conditions import fit_one_scan
from phalanx.wire.conditions import Condition
from phalanx.wire.messages import PackedReply
from phalanx_spark.columns.pages import ScannedPage
from phalanx_spark.columns.types import arrow_schema
from phalanx_spark.connector import grid
from phalanx_spark.connector.errors import explained, hide_traceback, show_traceback
from phalanx_spark.connector.filters import condition_of
from phalanx_spark.connector.keys import check_key_types, encode_literals
from phalanx_spark.connector.options import ERROR, SparkOptions
from phalanx_spark.connector.planning import ReadTask, plan_scan
from phalanx_spark.connector.rows import decode_entries
from phalanx_spark.connector.schemas import check_key, stored_schema

BATCH_ROWS = 24_576
BATCH_BYTES = 4 * 1024 * 1024
"""A batch goes to Spark when it has so many rows or bytes, however small the pages are in which they came."""
LOOKUP_KEYS = 1_000
"""Keys fetched by one call."""
MAX_PUSHED_KEYS = 10_000
"""The most keys of a filter that is pushed down. With more, Spark filters, and the map is scanned."""


def check_known(client: grid.Client, options: SparkOptions) -> None:
    """Raise `UsageError` if the cluster does not know the map: an empty result would hide a misspelt name."""
    if not grid.is_known(client, options.map):
        raise UsageError(
            f"the cluster {options.cluster!r} knows no map {options.map!r} ({grid.describe_maps(client)}); check the name, or "
            f"read it as empty with .option('ifMissing', 'empty')"
        )


class PhalanxReader(DataSourceReader):
    """Reads a map. Created on the driver, pickled into every task."""

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        self._options = options
        self._arrow = arrow_schema(schema)
        self._pushed: list[bytes] | None = None
        self._conditions: list[Condition] = []
        check_key_types(self._arrow, options)

    def partitions(self) -> Sequence[InputPartition]:
        """Plan one task for each group of partitions, or one for the keys that a filter names."""
        with explained(), grid.connect(self._options) as client:
            if self._options.if_missing == ERROR:
                check_known(client, self._options)
            grid.with_setting(client, self._options)
            check_key(stored_schema(client, self._options), self._options, self._arrow.names)
            table = client.partition_table()
            if self._pushed is not None:
                return [ReadTask(None, [], keys=self._pushed, founders=client.founders)]
            tasks = plan_scan(table.owners(), self._options.num_partitions)
            name = None
            if self._options.snapshot:
                name = grid.Staging(client, self._options.map, grid.new_job_id()).snapshot()
            return [replace(task, snapshot=name, founders=client.founders) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the entries of one task as record batches."""
        invariant(isinstance(partition, ReadTask), "Spark hands back the tasks that were planned", got=partition)
        task = cast(ReadTask, partition)
        with explained(), grid.connect(self._options, task.founders) as client:
            options = grid.with_setting(client, self._options)
            name, key_parts, read = options.map, len(options.key), grid.value_reader(client, options)
            if task.keys is None:
                name = task.snapshot or name
                pages = client.map(name).scan_packed(task.partitions, task.partition_count, key_parts, self._conditions)
                found = _scan_pages(pages)
            else:
                found = _look_up_pages(client, name, task.keys)
            for keys, values in found:
                yield from decode_entries(keys, values, self._arrow, options, read)


class FilterReader(PhalanxReader):
    """A reader that takes filters. Spark refuses such a reader unless its pushdown is switched on.

    It does so once it has the reader, and names the setting: nothing that a trace of its frames would add to.
    """

    def __init__(self, options: SparkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._schema = schema
        hide_traceback()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the read, as every reader does; the read was not refused."""
        show_traceback()
        return super().partitions()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that name keys, if every key column has one, else those that members can evaluate; return
        the others.
        """
        show_traceback()
        taken = self._take_keys(filters)
        if not taken:
            self._conditions = []
            for one in filters:
                condition = condition_of(one, self._schema, self._options)
                if condition is not None and fit_one_scan([*self._conditions, condition]):
                    self._conditions.append(condition)
                    taken.append(one)
        return [one for one in filters if not any(one is other for other in taken)]

    def _take_keys(self, filters: list[Filter]) -> list[Filter]:
        """Return the filters that together name the wanted keys, and note these keys. Return none if they name no keys."""
        key = self._options.key
        candidates: dict[str, tuple[Filter, list[Any]]] = {}
        not_null: list[Filter] = []
        for one in filters:
            match one:
                case EqualTo(attribute=(column,), value=value) if column in key:
                    candidates.setdefault(column, (one, [value]))
                case In(attribute=(column,), value=choices) if column in key:
                    candidates.setdefault(column, (one, [value for value in choices if value is not None]))
                case IsNotNull(attribute=(column,)) if column in key:
                    not_null.append(one)
                case _:
                    pass
        if set(candidates) != set(key) or self._options.snapshot:
            return []  # a look-up would not tell a snapshot that is gone from keys that are not there
        literals = [candidates[column][1] for column in key]
        if math.prod(map(len, literals)) > MAX_PUSHED_KEYS:
            return []
        self._pushed = encode_literals(literals, self._arrow, self._options)
        return [one for one, _ in candidates.values()] + not_null if self._pushed is not None else []


def _look_up_pages(client: grid.Client, map_name: str, keys: list[bytes]) -> Iterator[tuple[ScannedPage, ScannedPage]]:
    for start in range(0, len(keys), LOOKUP_KEYS):
        chunk = keys[start : start + LOOKUP_KEYS]
        found = [(k, v) for k, v in zip(chunk, client.get_data(map_name, chunk), strict=True) if v is not None]
        if found:
            yield ScannedPage([k for k, _ in found]), ScannedPage([v for _, v in found])


def _scan_pages(replies: Iterable[PackedReply]) -> Iterator[tuple[ScannedPage, ScannedPage]]:
    """Yield small replies together, because a partition can have only a few entries."""
    held: list[PackedReply] = []
    rows = size = 0
    for reply in replies:
        held.append(reply)
        rows += len(reply.key_sizes) // 4
        size += len(reply.value_data)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _pages(held)
            held, rows, size = [], 0, 0
    if held:
        yield _pages(held)


def _pages(replies: Sequence[PackedReply]) -> tuple[ScannedPage, ScannedPage]:
    keys = ScannedPage.from_packed([(reply.key_data, reply.key_sizes) for reply in replies], 0)
    return keys, ScannedPage.from_packed([(reply.value_data, reply.value_sizes) for reply in replies], STAMP_BYTES)
