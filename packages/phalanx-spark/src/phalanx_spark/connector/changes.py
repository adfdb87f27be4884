"""The changes of a map as rows: what happened to which key, the value that it had, and the value that it has now.

A row has the columns `kind`, the key column or columns, `new` and `old` (structs of the value's columns, or null),
`stamp`, `partition` and `sequence`. A schema can leave out columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as spark

from phalanx.client.blocking.journal import JournalEvent
from phalanx.common.errors import UsageError
from phalanx_spark.columns.arrow import Array, from_numpy
from phalanx_spark.columns.fallback import sql_name
from phalanx_spark.columns.types import arrow_schema
from phalanx_spark.connector.inference import infer_schema
from phalanx_spark.connector.keys import check_key_types, decode_keys
from phalanx_spark.connector.options import SparkOptions
from phalanx_spark.connector.rows import decode_columns

KIND, NEW, OLD, STAMP, PARTITION, SEQUENCE = "kind", "new", "old", "stamp", "partition", "sequence"

_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    KIND: (pa.types.is_string, "string"),
    NEW: (pa.types.is_struct, "a struct of the value's columns"),
    OLD: (pa.types.is_struct, "a struct of the value's columns"),
    STAMP: (lambda kind: kind == pa.timestamp("us", tz="UTC"), "timestamp"),
    PARTITION: (lambda kind: kind == pa.int32(), "int"),
    SEQUENCE: (lambda kind: kind == pa.int64(), "bigint"),
}


def infer_changes(options: SparkOptions) -> spark.StructType:
    """Infer the schema of a map's changes from the entries that it has now. Raises `UsageError`."""
    _check_names(options)
    entries = infer_schema(options)
    keys = [field for field in entries.fields if field.name in options.key]
    value = spark.StructType([field for field in entries.fields if field.name not in options.key])
    return spark.StructType(
        [
            spark.StructField(KIND, spark.StringType()),
            *keys,
            spark.StructField(NEW, value),
            spark.StructField(OLD, value),
            spark.StructField(STAMP, spark.TimestampType()),
            spark.StructField(PARTITION, spark.IntegerType()),
            spark.StructField(SEQUENCE, spark.LongType()),
        ]
    )


def check_changes(schema: spark.StructType, options: SparkOptions) -> Any:
    """Return the Arrow schema of a stream of changes. Raises `UsageError` for a column that changes do not have."""
    _check_names(options)
    arrow = arrow_schema(schema)
    if not any(name in _TYPES for name in arrow.names):
        raise UsageError(
            f"a stream gives the changes of the map {options.map!r}, and this schema is that of its entries: add "
            f".option('changes', 'true'), or give a schema: .schema('kind string, {options.key[0]} ..., new "
            f"struct<...>, old struct<...>, stamp timestamp, partition int, sequence bigint')"
        )
    for field in arrow:
        if field.name in options.key:
            continue
        if field.name not in _TYPES:
            raise UsageError(
                f"column '{field.name}' of the schema is not a column of a map's changes: they have {', '.join(_TYPES)} and "
                f"the key ({', '.join(options.key)}); the value's columns stand inside {NEW} and {OLD}"
            )
        fits, wanted = _TYPES[field.name]
        if not fits(field.type):
            raise UsageError(
                f"column '{field.name}' of the schema is {sql_name(field.type)}, but in changes of a map it is {wanted}"
            )
    check_key_types(arrow, options)
    return arrow


def _check_names(options: SparkOptions) -> None:
    for name in options.key:
        if name in _TYPES:
            raise UsageError(
                f"option 'key': {name!r} is also the name of a column that every change has; in a stream the key column can "
                f"have any name: choose another"
            )


def to_batch(
    partition: int, events: Sequence[JournalEvent], schema: Any, options: SparkOptions, read: Callable[[bytes], Any]
) -> Any:
    """Make a record batch of the events of one partition, in their order. `read`: deserialises a value.

    Raises `UsageError` that names the key, the field and both types.
    """
    keys = [event.key for event in events]
    fields = {name: schema.field(name) for name in options.key if name in schema.names}
    found = decode_keys(keys, fields, options) if fields else {}
    for field in schema:
        if field.name == KIND:
            found[KIND] = _texts([event.kind for event in events])
        elif field.name in (NEW, OLD):
            values = [event.value if field.name == NEW else event.old_value for event in events]
            found[field.name] = _structs(keys, values, field.type, options, read)
        elif field.name == STAMP:
            found[STAMP] = from_numpy(np.array([event.stamp_ms * 1000 for event in events], np.int64), field.type)
        elif field.name == PARTITION:
            found[PARTITION] = from_numpy(np.full(len(events), partition, np.int32), field.type)
        elif field.name == SEQUENCE:
            found[SEQUENCE] = from_numpy(np.array([event.sequence for event in events], np.int64), field.type)
    return pa.RecordBatch.from_arrays([found[name] for name in schema.names], schema=schema)


def _structs(
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    kind: Any,
    options: SparkOptions,
    read: Callable[[bytes], Any],
) -> Array:
    present = [row for row, value in enumerate(values) if value is not None]
    some = [keys[row] for row in present], [values[row] or b"" for row in present]
    columns = decode_columns(*some, list(kind), options.map, read)
    structs = (
        pa.StructArray.from_arrays(columns, fields=list(kind)) if len(kind) else _empty_structs(len(present), kind)
    )
    if len(present) == len(values):
        return structs
    places = np.full(len(values), -1, np.int32)
    places[present] = np.arange(len(present), dtype=np.int32)
    return structs.take(from_numpy(np.maximum(places, 0), pa.int32(), places < 0))


def _texts(kinds: Sequence[str]) -> Array:
    """Make a column of few different words."""
    words = sorted(set(kinds))
    data = "".join(words).encode()
    ends = np.cumsum([0, *(len(word.encode()) for word in words)]).astype(np.int32)
    choices = pa.Array.from_buffers(pa.string(), len(words), [None, pa.py_buffer(ends), pa.py_buffer(data)])
    places = {word: place for place, word in enumerate(words)}
    return choices.take(from_numpy(np.array([places[kind] for kind in kinds], np.int32), pa.int32()))


def _empty_structs(count: int, kind: Any) -> Array:
    return pa.Array.from_buffers(kind, count, [None], children=[])
