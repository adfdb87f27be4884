"""Random schemas of storable types, with values for them: what the codec's properties are tested with."""

import datetime as dt
import decimal
import math
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st

Typed = tuple[Any, st.SearchStrategy[Any]]
"""An Arrow type and a strategy for its values, as Python programs would hold them."""

TEXT = st.text(max_size=40) | st.sampled_from(["", "x" * 31, "x" * 32, "é" * 128, "y" * 70_000])


def integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    edges = [sign * 2**power + step for power in range(bits) for sign in (1, -1) for step in (-1, 0, 1)]
    return st.integers(low, high) | st.sampled_from([edge for edge in edges if low <= edge <= high])


@st.composite
def decimals(draw: st.DrawFn) -> Typed:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    digits = st.integers(0, 10 ** draw(st.integers(0, precision)) - 1)
    value = st.builds(
        lambda sign, number: decimal.Decimal(sign * number).scaleb(-scale, decimal.Context(prec=50)),
        st.sampled_from([1, -1]),
        digits,
    ).map(lambda number: number or number.copy_abs())  # Arrow has no negative zero
    return pa.decimal128(precision, scale), value


SCALARS: dict[str, Typed] = {
    "boolean": (pa.bool_(), st.booleans()),
    "byte": (pa.int8(), integers(8)),
    "short": (pa.int16(), integers(16)),
    "integer": (pa.int32(), integers(32)),
    "long": (pa.int64(), integers(64)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False) | st.just(float("nan"))),
    "double": (pa.float64(), st.floats(allow_nan=False) | st.just(float("nan"))),
    "string": (pa.string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=300) | st.just(b"z" * 70_000)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us", tz="UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    "timestamp_ntz": (pa.timestamp("us"), st.datetimes()),
    "void": (pa.null(), st.none()),
}


def scalars() -> st.SearchStrategy[Typed]:
    return st.sampled_from(list(SCALARS.values())) | decimals()


def key_scalars() -> st.SearchStrategy[Typed]:
    names = [name for name in SCALARS if name not in ("void", "float", "double")]
    exact = st.sampled_from([SCALARS[name] for name in names])
    floats = st.sampled_from(
        [(pa.float32(), st.floats(width=32, allow_nan=False)), (pa.float64(), st.floats(allow_nan=False))]
    )
    return exact | floats | decimals()


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=12) | st.sampled_from(
    ["id", "price", "a_rather_long_column_name_of_thirty_odd"]
)


def rows_of(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Dicts with the fields in this order; hypothesis' own keep another one."""
    return st.fixed_dictionaries(fields).map(lambda row: {name: row[name] for name in fields})


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    fields = draw(st.dictionaries(NAMES, inner, max_size=3))
    kind = pa.struct([pa.field(name, field[0]) for name, field in fields.items()])
    return kind, rows_of({name: nullable(field[1]) for name, field in fields.items()})


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    kind, values = draw(inner)
    return pa.list_(pa.field("element", kind)), st.lists(nullable(values), max_size=20)


@st.composite
def maps(draw: st.DrawFn, inner: st.SearchStrategy[Typed]) -> Typed:
    key_kind, keys = draw(st.sampled_from([SCALARS[name] for name in ("string", "long", "date", "boolean")]))
    kind, values = draw(inner)
    return pa.map_(key_kind, kind), st.dictionaries(keys, nullable(values), max_size=20)


def types() -> st.SearchStrategy[Typed]:
    return st.recursive(scalars(), lambda inner: structs(inner) | lists(inner) | maps(inner), max_leaves=4)


@st.composite
def tables(
    draw: st.DrawFn, kinds: st.SearchStrategy[Typed], max_columns: int = 5, max_rows: int = 30
) -> tuple[Any, list[dict[str, Any]]]:
    """An Arrow schema, and rows that fit it."""
    columns = draw(st.dictionaries(NAMES, kinds, min_size=1, max_size=max_columns))
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in columns.items()])
    row = rows_of({name: nullable(values) for name, (_, values) in columns.items()})
    return schema, draw(st.lists(row, min_size=1, max_size=max_rows))


def as_batch(schema: Any, rows: list[dict[str, Any]]) -> Any:
    """Rows as Spark would hand them over."""
    arrays = [pa.array([_for_arrow(row[field.name], field.type) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _for_arrow(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return [(_for_arrow(key, kind.key_type), _for_arrow(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_for_arrow(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _for_arrow(value[field.name], field.type) for field in kind}
    return value


def is_same(stored: Any, read: Any, kind: Any) -> bool:
    """Compare a stored value with what a column says: numbers by their value, UUIDs by their text, a struct by the fields that it has."""
    if isinstance(stored, UUID):
        return bool(str(stored) == read)
    if isinstance(stored, dict):
        if pa.types.is_struct(kind):
            return all(is_same(stored.get(field.name), read[field.name], field.type) for field in kind)
        return stored.keys() == read.keys() and all(is_same(stored[key], read[key], kind.item_type) for key in stored)
    if isinstance(stored, list):
        return len(stored) == len(read) and all(map(is_same, stored, read, [kind.value_type] * len(read)))
    if isinstance(stored, bool) or isinstance(read, bool) or stored is None or read is None:
        return stored is read
    if isinstance(stored, float) and stored != stored:
        return bool(read != read)
    return bool(stored == read) and (
        not isinstance(stored, float) or math.copysign(1, stored) == math.copysign(1, read)
    )
