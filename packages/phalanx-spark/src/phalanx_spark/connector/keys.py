"""Key columns: to the bytes of `to_key_data` and back, whole columns at a time.

One key column is a scalar key; several are a list, in the order in which the option `key` names them. On a read the key
columns come from the keys, not from the values.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phalanx.codec import values as ids
from phalanx.codec.values import MSGPACK_PREFIX, from_key_data
from phalanx.common.errors import UsageError
from phalanx.common.words import counted
from phalanx_spark.columns import cells, fallback
from phalanx_spark.columns.arrow import Array, from_numpy, from_records, from_slices, to_bytes_list, to_mask, to_numpy
from phalanx_spark.columns.layouts import read_fields
from phalanx_spark.columns.pages import ScannedPage, as_page
from phalanx_spark.columns.scalars import are_exact
from phalanx_spark.connector.options import DEFAULT_KEY, SparkOptions

_PUSHABLE = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_date,
    pa.types.is_timestamp,
)
"""Types whose equal values are one key. A Decimal of another scale, or 0 beside 0.0, is another key but equal in SQL."""


def check_key_columns(schema: Any, options: SparkOptions) -> None:
    """Refuse a write without its key columns, or with keys that are not scalars."""
    for name in options.key:
        if name not in schema.names:
            folded = [column for column in schema.names if column.lower() == name.lower()]
            hint = f"; did you mean {folded[0]!r}?" if folded else ""
            says = "option 'key'" if options.key_is_given or options.key == (DEFAULT_KEY,) else "the map's schema"
            raise UsageError(
                f"{says} names the column {name!r}, which the DataFrame does not have (columns: "
                f"{', '.join(schema.names)}){hint}; set .option('key', ...) to the column that identifies a row"
            )
    check_key_types(schema, options)


def check_key_types(schema: Any, options: SparkOptions) -> None:
    """Refuse key columns whose values cannot be keys."""
    for name in options.key:
        if name in schema.names:
            kind = schema.field(name).type
            if pa.types.is_nested(kind) or pa.types.is_null(kind):
                raise UsageError(
                    f"key column '{name}' has type {fallback.sql_name(kind)}; a key is a scalar: choose another column, "
                    f"name several with .option('key', 'a,b'), or cast it to string"
                )


def encode_keys(batch: Any, options: SparkOptions) -> Array:
    """Encode the key of each row of a batch, as a binary array.

    Raises `UsageError` for a value that cannot be a key; then no row of the batch can be written.
    """
    columns = []
    for name in options.key:
        column = batch.column(name)
        if column.null_count:
            raise _no_key(name, batch, column.is_null(), "is null")
        if pa.types.is_floating(column.type):
            numbers = to_numpy(column, column.type)
            if np.isnan(numbers).any():
                raise _no_key(name, batch, pc.is_nan(column), "is NaN")
            column = from_numpy(numbers + numbers.dtype.type(0), column.type)  # -0.0 becomes the 0.0 that it equals
        columns.append(column)
    try:
        pieces = _scalar_pieces(columns[0]) if len(columns) == 1 else cells.list_pieces(MSGPACK_PREFIX, columns)
    except cells.Unstorable as refusal:
        raise UsageError(f"a key column ({', '.join(options.key)}) {refusal.reason}") from None
    return cells.join(pieces)


def _no_key(name: str, batch: Any, bad: Array, what: str) -> UsageError:
    return UsageError(
        f"key column '{name}' {what} in {int(to_mask(bad).sum())} of {batch.num_rows} rows of a batch; nothing of that batch "
        f"was written; filter such rows out, or fill them with a value that stands for it"
    )


def _scalar_pieces(column: Array) -> list[Array]:
    kind = column.type
    if pa.types.is_integer(kind):
        return [_records(ids.INT_TYPE_ID, ">i8", to_numpy(column, pa.int64()))]
    if pa.types.is_floating(kind):
        return [_records(ids.FLOAT_TYPE_ID, ">f8", to_numpy(column, pa.float64()))]
    if pa.types.is_boolean(kind):
        return [_records(ids.BOOL_TYPE_ID, "u1", to_mask(column))]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if pa.types.is_string(kind):
            cells.check_text(column)
        data = column.cast(pa.binary())
        type_id = ids.STR_TYPE_ID if pa.types.is_string(kind) else ids.BYTES_TYPE_ID
        return [_records(type_id, ">i4", to_numpy(pc.binary_length(data), pa.int32())), data]
    return cells.value_pieces(MSGPACK_PREFIX, column)


def _records(type_id: int, form: str, contents: Any) -> Array:
    records = np.empty(len(contents), [("type", ">i4"), ("content", form)])
    records["type"] = type_id
    records["content"] = contents
    return from_records(records)


def encode_literals(choices: Sequence[Sequence[Any]], schema: Any, options: SparkOptions) -> list[bytes] | None:
    """Encode the keys that a filter names: every combination of the values of the key columns.

    Return None if a literal does not stand for exactly one key: a look-up could then miss entries that Spark finds
    equal.
    """
    kinds = [schema.field(name).type for name in options.key]
    if not all(any(is_kind(kind) for is_kind in _PUSHABLE) for kind in kinds):
        return None
    rows = list(itertools.product(*choices))
    if any(_may_be_uuid(value) for values in choices for value in values):
        return None  # the map's key can be the UUID or its text; a read shows both alike
    try:
        columns = [fallback.to_array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    except fallback.UNFIT:
        return None
    batch = pa.RecordBatch.from_arrays(columns, names=list(options.key))
    return list(dict.fromkeys(to_bytes_list(encode_keys(batch, options))))


def _may_be_uuid(value: object) -> bool:
    if not isinstance(value, str) or len(value) != 36:
        return False
    try:
        UUID(value)
    except ValueError:
        return False
    return True


def key_parts(key: bytes, options: SparkOptions) -> Sequence[Any]:
    """Return the values of the key columns of one key. Raises `UsageError` if the key has another number of parts."""
    content = from_key_data(key)
    parts = content if isinstance(content, tuple) else (content,)
    if len(parts) != len(options.key) or (len(options.key) == 1 and isinstance(content, tuple)):
        form = f"a list of {len(parts)}" if isinstance(content, tuple) else f"one {type(content).__name__}"
        raise UsageError(
            f"map {options.map!r} has the key {fallback.show(content)}, which is {form}, but option 'key' names "
            f"{counted(len(options.key), 'column')} ({', '.join(options.key)}); name one column "
            f"for each part of the key"
        )
    return parts


def decode_keys(
    keys: ScannedPage | Sequence[bytes], wanted: Mapping[str, Any], options: SparkOptions
) -> dict[str, Array]:
    """Decode the wanted key columns (name to Arrow field) of these keys. Raises `UsageError`."""
    page = as_page(keys)
    if len(options.key) == 1:
        ((name, field),) = wanted.items()
        column = _decode_scalars(page, field.type)
        if column is not None:
            return {name: column}
    else:
        fields = [wanted.get(name) for name in options.key]
        head = MSGPACK_PREFIX + cells.length_header(len(fields), cells.ARRAY)
        good, columns = read_fields(page, np.arange(len(page)), [head] + [b""] * len(fields), fields)
        if good.all():
            return columns
    keys = [page[row] for row in range(len(page))]
    parts = [key_parts(key, options) for key in keys]
    places = {name: options.key.index(name) for name in wanted}
    return {
        name: fallback.to_column([part[places[name]] for part in parts], field, keys, options.map)
        for name, field in wanted.items()
    }


_FORMS: tuple[tuple[Callable[[Any], bool], int, str, int], ...] = (
    (pa.types.is_integer, ids.INT_TYPE_ID, ">i8", 12),
    (pa.types.is_floating, ids.FLOAT_TYPE_ID, ">f8", 12),
    (pa.types.is_boolean, ids.BOOL_TYPE_ID, "u1", 5),
    (pa.types.is_string, ids.STR_TYPE_ID, ">i4", 0),
    (pa.types.is_binary, ids.BYTES_TYPE_ID, ">i4", 0),
)
"""For each kind of scalar key: a test for its Arrow type, its type id, the number format behind the id (for text and bytes:
of the length), and the total size."""


def _decode_scalars(page: ScannedPage, kind: Any) -> Array | None:
    """Decode scalar keys of one type as a column; None if some are of another type."""
    form = next((form for form in _FORMS if form[0](kind)), None)
    sizes = page.ends - page.starts
    if form is None or not (sizes >= 5).all() or not (page.view(">i4")[page.starts] == form[1]).all():
        return None
    numbers = page.view(form[2])[page.starts + 4]
    if form[3] == 0:
        return from_slices(page.data, page.starts + 8, page.ends).cast(kind) if (numbers == sizes - 8).all() else None
    if not (sizes == form[3]).all():
        return None
    if pa.types.is_boolean(kind):
        return from_numpy(numbers == 1, kind)
    native = numbers.astype(numbers.dtype.newbyteorder("="))
    if pa.types.is_floating(kind) and not are_exact(native, kind).all():
        return None
    try:
        return from_numpy(native, pa.from_numpy_dtype(native.dtype)).cast(kind)
    except pa.ArrowInvalid:
        return None
