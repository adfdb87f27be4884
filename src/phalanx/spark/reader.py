"""Batch read: the entries of a map as Arrow batches, each task from the owners of its partitions.

Filters on the key can be pushed down: where every key column is compared with values, only the entries of those keys are
fetched. Spark evaluates every other filter itself. That is off unless the option `pushDown` asks for it, because Spark 4
keeps the reader of a DataFrame's last query with filters, and uses it for queries of the same DataFrame without any: a
count after a lookup would count what was looked up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition, IsNotNull
from pyspark.sql.types import StructType

from phalanx.common.invariant import invariant
from phalanx.spark import grid
from phalanx.spark.errors import explained
from phalanx.spark.keys import check_key_types, encode_literals
from phalanx.spark.options import Options
from phalanx.spark.planning import ReadTask, plan_scan
from phalanx.spark.rows import decode_entries
from phalanx.spark.types import arrow_schema

BATCH_ROWS = 8_192
BATCH_BYTES = 16 * 1024 * 1024
"""A batch goes to Spark when it has so many rows or bytes, however small the pages are in which they came."""
LOOKUP_KEYS = 1_000
"""Keys fetched by one call."""
MAX_PUSHED_KEYS = 10_000
"""With more keys than that a filter is left to Spark, and the map is scanned."""

Page = tuple[list[bytes], list[bytes]]


class PhalanxReader(DataSourceReader):
    """Reads a map. Created on the driver, pickled into every task."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._arrow = arrow_schema(schema)
        self._pushed: list[bytes] | None = None
        check_key_types(self._arrow, options)

    def partitions(self) -> Sequence[InputPartition]:
        """One task for each group of partitions, or one for the keys that a filter names."""
        with explained(), grid.connect(self._options) as client:
            table = client.partition_table()
            if self._pushed is not None:
                return [ReadTask(None, [], keys=self._pushed)]
            return plan_scan(table.owners(), self._options.num_partitions)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The entries of one task as record batches."""
        invariant(isinstance(partition, ReadTask), "Spark hands back the tasks that were planned", got=partition)
        task = cast(ReadTask, partition)
        with explained(), grid.connect(self._options) as client:
            if task.keys is None:
                pages = client.scan_data(self._options.map, task.partitions, task.of)
            else:
                pages = _look_up(client, self._options.map, task.keys)
            for keys, values in _combined(pages):
                yield from decode_entries(keys, values, self._arrow, self._options)


class KeyReader(PhalanxReader):
    """A reader that takes filters which name keys. Spark refuses such a reader unless its pushdown is switched on."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that name keys, if every key column has one; return the others."""
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
        if set(candidates) != set(key):
            return filters
        literals = [candidates[column][1] for column in key]
        if math.prod(map(len, literals)) > MAX_PUSHED_KEYS:
            return filters
        pushed = encode_literals(literals, self._arrow, self._options)
        if pushed is None:
            return filters
        self._pushed = pushed
        taken = [one for one, _ in candidates.values()] + not_null
        return [one for one in filters if not any(one is other for other in taken)]


def _look_up(client: grid.Grid, map_name: str, keys: list[bytes]) -> Iterator[Page]:
    for start in range(0, len(keys), LOOKUP_KEYS):
        chunk = keys[start : start + LOOKUP_KEYS]
        found = [(k, v) for k, v in zip(chunk, client.get_data(map_name, chunk), strict=True) if v is not None]
        yield [k for k, _ in found], [v for _, v in found]


def _combined(pages: Iterable[Page]) -> Iterator[Page]:
    """Small pages together: a partition's page may hold a few entries only."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for page_keys, page_values in pages:
        keys += page_keys
        values += page_values
        size += sum(map(len, page_values))
        if len(keys) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values
