"""Rows and entries: record batches to serialised values, and serialised entries back to record batches.

A row is stored as a MessagePack map from column name to value. On the way back the rows of a page are read layout by
layout as whole columns (`layouts`); what has no layout in common with others is read row by row (`fallback`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.codec.json_dicts import to_json_data
from phalanx.codec.values import MSGPACK_PREFIX
from phalanx.common.errors import SerializationError, UsageError
from phalanx_spark.columns import cells, fallback
from phalanx_spark.columns.arrow import Array, binary_scalar, from_numpy
from phalanx_spark.columns.layouts import read_layout
from phalanx_spark.columns.pages import ScannedPage, as_page
from phalanx_spark.connector.keys import decode_keys
from phalanx_spark.connector.options import SparkOptions

RowNumbers = np.ndarray[Any, np.dtype[np.int64]]

_MAX_LAYOUTS = 8
"""Layouts of one page that are read as columns; the rows of any further ones are read row by row."""
_MIN_ROWS = 24
"""The fewest rows for which reading by columns is faster than row by row."""


def encode_rows(batch: Any, options: SparkOptions) -> Array:
    """Encode each row of a batch as it is stored, as a binary array. Raises `UsageError` for a column that cannot be
    stored.
    """
    names = [name for name in batch.schema.names if options.key_in_value or name not in options.key]
    if options.json_dicts:
        return _encode_json(batch, names)
    if not names:
        return pa.repeat(binary_scalar(MSGPACK_PREFIX + cells.length_header(0, cells.MAP)), batch.num_rows)
    try:
        pieces = cells.row_pieces(MSGPACK_PREFIX, names, [batch.column(name) for name in names])
    except cells.Unstorable as refusal:
        raise UsageError(
            f"column '{'.'.join(refusal.path)}' {refusal.reason}; nothing of this batch of {batch.num_rows} rows was written"
        ) from None
    return cells.join(pieces)


def _encode_json(batch: Any, names: list[str]) -> Array:
    """Encode the rows of a batch as JSON. Raises `UsageError` that says where a value is that JSON does not have."""
    columns = [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in names]
    try:
        rows = [to_json_data(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)] or [
            to_json_data({})
        ] * batch.num_rows
    except (SerializationError, ValueError, KeyError) as error:
        raise UsageError(f"{error}; nothing of this batch of {batch.num_rows} rows was written") from None
    return pa.array(rows, pa.binary())


def decode_entries(
    keys: ScannedPage | Sequence[bytes],
    values: ScannedPage | Sequence[bytes],
    schema: Any,
    options: SparkOptions,
    read: fallback.Read | None = None,
) -> Iterator[Any]:
    """Decode entries as record batches of the schema. Raises `UsageError` that names the key, the field and both types.

    `read`: deserialises a value; None: without schemas of Compact objects that only the cluster has.
    """
    keys, values = as_page(keys), as_page(values)
    key_fields = {name: schema.field(name) for name in options.key if name in schema.names}
    wanted = [field for field in schema if field.name not in key_fields]
    read = read or fallback.reader(json_dicts=options.json_dicts)
    for rows, columns in _decode_values(keys, values, wanted, options.map, read):
        of_rows = keys if rows is None else keys.select(rows)
        if key_fields:
            columns = columns | decode_keys(of_rows, key_fields, options)
        for field in schema:
            if not field.nullable and columns[field.name].null_count:
                _refuse_null(field, columns[field.name], of_rows, options.map)
        if len(schema):
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        else:
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * len(of_rows), pa.struct([])))


def _refuse_null(field: Any, column: Array, keys: ScannedPage, map_name: str) -> None:
    key = keys[column.is_null().to_pylist().index(True)]
    raise UsageError(
        f"map {map_name!r}, key {fallback.show_key(key)}: field '{field.name}' has no value, but the schema says NOT NULL; "
        f"make the column nullable in the schema"
    )


def decode_columns(
    keys: Sequence[bytes], values: Sequence[bytes], wanted: Sequence[Any], map_name: str, read: fallback.Read
) -> list[Array]:
    """Decode the wanted fields of stored rows as columns, in the order of the rows. `read`: deserialises a value.

    Raises `UsageError` as `decode_entries` does.
    """
    if not values:
        return [pa.nulls(0, field.type) for field in wanted]
    found = list(_decode_values(as_page(keys), as_page(values), wanted, map_name, read))
    if len(found) == 1 and found[0][0] is None:
        return [found[0][1][field.name] for field in wanted]
    taken: RowNumbers = np.concatenate([rows for rows, _ in found if rows is not None] or [np.zeros(0, np.int64)])
    back = from_numpy(np.argsort(taken).astype(np.int32), pa.int32())
    return [pa.concat_arrays([columns[field.name] for _, columns in found]).take(back) for field in wanted]


Part = tuple[RowNumbers | None, dict[str, Array]]
"""Which rows of a page (None: all, in order), and their columns by name."""


def _decode_values(
    keys: ScannedPage, values: ScannedPage, wanted: Sequence[Any], map_name: str, read: fallback.Read
) -> Iterator[Part]:
    if not wanted:
        yield None, {}
        return
    rest: RowNumbers = np.arange(len(values))
    single: list[int] = []
    if len(values) >= _MIN_ROWS:
        for _ in range(_MAX_LAYOUTS):
            if len(rest) < _MIN_ROWS:
                break
            layout = fallback.layout_of(values[int(rest[0])])
            if not layout:
                break
            good, columns = read_layout(values, rest, MSGPACK_PREFIX, layout, wanted)
            if not good.any():
                break
            yield None if good.all() and len(rest) == len(values) else rest[good], columns
            if not good[0]:  # the row that gave the layout needs care; it is not tried again
                single.append(int(rest[0]))
                good[0] = True
            rest = rest[~good]
    by_row = sorted(single + rest.tolist())
    if by_row:
        some = [keys[row] for row in by_row], [values[row] for row in by_row]
        columns = fallback.decode(*some, wanted, map_name, read)
        yield np.array(by_row), columns
