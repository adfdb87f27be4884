"""Read entries row by row, through the grid's own serialisation: those that cannot be read as columns, or are wrong.

A value that is not a dict, or whose names are not text, is a row with the one field `value`, so that a map of plain
values can be read too.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from phalanx.codec.compact import from_any_data
from phalanx.codec.json_dicts import from_json
from phalanx.codec.values import Json, from_data
from phalanx.common.errors import CorruptDataError, UsageError
from phalanx.common.words import quoted
from phalanx_spark.columns.scalars import are_exact

Array = Any
Read = Callable[[bytes], Any]
"""Deserialises a stored value."""

VALUE_FIELD = "value"
_SHOWN_CHARACTERS = 60


def reader(*, json_dicts: bool) -> Read:
    """Return what deserialises stored values. `json_dicts`: JSON objects are rows, too."""
    return _read_with_json if json_dicts else from_any_data


def _read_with_json(value: bytes) -> Any:
    return from_json(from_any_data(value))


def row_at(key: bytes, value: bytes, map_name: str, read: Read, *, takes_value: bool = True) -> dict[str, Any]:
    """Return a stored value as a row. Raises `CorruptDataError` that names the key if the value cannot be read.

    `takes_value`: whether the read has the field `value`. Without it, raises `UsageError` for a JSON object: its fields
    would be null.
    """
    try:
        content = read(value)
        is_unread_json = not takes_value and isinstance(content, Json) and _is_row(from_json(content))
    except CorruptDataError as error:
        raise CorruptDataError(f"map {map_name!r}, key {show_key(key)}: {error}") from None
    if is_unread_json:
        raise UsageError(
            f"map {map_name!r}, key {show_key(key)}: the value is JSON, and its fields are read where .option('dicts', 'json') or the map's "
            f"setting dicts says so; or give a schema with the one field {VALUE_FIELD!r}, for its text"
        )
    return content if _is_row(content) else {VALUE_FIELD: content}


def _is_row(content: Any) -> bool:
    return isinstance(content, dict) and all(isinstance(name, str) for name in content)


def layout_of(value: bytes) -> list[str] | None:
    """Return the field names of a stored row in their order; None if the value is not a row."""
    try:
        content = from_data(value)
    except CorruptDataError:
        return None  # `row_at` says which key has it
    return list(content) if _is_row(content) else None


def show(content: object) -> str:
    """Return a value as an error message shows it."""
    try:
        text = repr(content)
    except ValueError:  # Python does not write an int of thousands of digits
        text = quoted(content)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def show_key(key: bytes) -> str:
    """Return a serialised key as an error message shows it."""
    try:
        return show(from_data(key))
    except CorruptDataError:
        return show(key)


class Unfit(Exception):
    """A value is not of the type that the schema gives its field."""


UNFIT = (Unfit, TypeError, ValueError, OverflowError)
"""The errors that a value of the wrong type or size raises when a column is made of it, pyarrow's included."""


def decode(
    keys: Sequence[bytes], values: Sequence[bytes], fields: Sequence[Any], map_name: str, read: Read
) -> dict[str, Array]:
    """Decode the fields of all rows as columns. `read`: deserialises a value.

    Raises `UsageError` that names the key, the field and both types.
    """
    takes_value = any(field.name == VALUE_FIELD for field in fields)
    rows = [
        row_at(key, value, map_name, read, takes_value=takes_value) for key, value in zip(keys, values, strict=True)
    ]
    return {field.name: to_column([_content(row, field) for row in rows], field, keys, map_name) for field in fields}


def _content(row: dict[str, Any], field: Any) -> Any:
    """Return the value that a row has in a field; None if it has none."""
    if not row and field.name == VALUE_FIELD and pa.types.is_map(field.type):
        return row  # {} is an empty map as well as a row without fields
    return row.get(field.name)


def to_array(contents: Sequence[Any], kind: Any) -> Array:
    """Make an array of the type from Python values. Raises one of `UNFIT`."""
    return pa.array(_converted(contents, kind), kind)


def to_column(contents: list[Any], field: Any, keys: Sequence[bytes], map_name: str) -> Array:
    """Make a column of the field's type from Python values. Raises `UsageError` that names the key, the field and both
    types.
    """
    try:
        return to_array(contents, field.type)
    except UNFIT:
        for key, content in zip(keys, contents, strict=True):
            try:
                to_array([content], field.type)
            except UNFIT:
                is_inexact = pa.types.is_floating(field.type) and type(content) in (int, float)
                kind = sql_name(field.type)
                why = f"which no {kind} holds exactly" if is_inexact else f"which is not of type {kind}"
                raise UsageError(
                    f"map {map_name!r}, key {show_key(key)}: field '{field.name}' holds {show(content)} "
                    f"({type(content).__name__}), {why}; give a schema with another type "
                    f"for the field or without it, or store one type of value in it"
                ) from None
        raise


_ACCEPTED: tuple[tuple[Any, tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool,)),
    (pa.types.is_integer, (int,)),
    (pa.types.is_floating, (float, int)),
    (pa.types.is_string, (str, uuid.UUID, Json)),
    (pa.types.is_binary, (bytes,)),
    (pa.types.is_date, (datetime.date,)),
    (pa.types.is_timestamp, (datetime.datetime,)),
    (pa.types.is_decimal, (decimal.Decimal, int)),
    (pa.types.is_null, ()),
)


def _converted(contents: Iterable[Any], kind: Any) -> list[Any]:
    """Convert values to those that pyarrow takes. Raises `Unfit` for a value of a type that the column does not have."""
    if pa.types.is_map(kind):
        return [None if each is None else _pairs(each, kind) for each in contents]
    if pa.types.is_struct(kind):
        return [None if each is None else _struct(each, kind) for each in contents]
    if pa.types.is_list(kind):
        return [
            None if each is None else _converted(_checked(each, (list, tuple)), kind.value_type) for each in contents
        ]
    contents = list(contents)
    accepted = next(types for is_kind, types in _ACCEPTED if is_kind(kind))
    found = set(map(type, contents)) - {type(None)}
    if not found <= set(accepted):
        raise Unfit
    if found & {uuid.UUID, Json}:
        return [each.text if isinstance(each, Json) else None if each is None else str(each) for each in contents]
    if pa.types.is_timestamp(kind):
        for each in contents:
            if each is not None and (each.tzinfo is None) != (kind.tz is None):
                raise Unfit
    if pa.types.is_floating(kind):
        return [each if each is None else _floating(each, kind) for each in contents]
    if int in found and pa.types.is_decimal(kind):
        return [decimal.Decimal(each) if isinstance(each, int) else each for each in contents]
    return contents


def _floating(content: Any, kind: Any) -> float:
    """Return a number as the column has it. Raises `Unfit` if it would be another number there, as 2**53 + 1 in a double."""
    number = float(content)
    if number != content and content == content:
        raise Unfit
    if kind.bit_width < 64 and not are_exact(np.array([number]), kind).all():
        raise Unfit
    return number


def _checked(content: Any, types: tuple[type, ...]) -> Any:
    if not isinstance(content, types):
        raise Unfit
    return content


def _pairs(content: Any, kind: Any) -> list[tuple[Any, Any]]:
    _checked(content, (dict,))
    keys = _converted(content.keys(), kind.key_type)
    return list(zip(keys, _converted(content.values(), kind.item_type), strict=True))


def _struct(content: Any, kind: Any) -> dict[str, Any]:
    _checked(content, (dict,))
    return {field.name: _converted([content.get(field.name)], field.type)[0] for field in kind}


_SQL_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.null(): "void",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", tz="UTC"): "timestamp",
}


def sql_name(kind: Any) -> str:
    """Return the name of an Arrow type in Spark SQL."""
    if pa.types.is_map(kind):
        return f"map<{sql_name(kind.key_type)},{sql_name(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_name(field.type)}' for field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _SQL_NAMES.get(kind, str(kind))
