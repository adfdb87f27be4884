"""Find the schema of a read without one: it is the map's own, or one that fits a sample of its entries.

A Python value has one Spark type. Different types of one field are widened where nothing is lost (a whole number that a
double has beside floats, a missing or empty value beside anything, structs field by field); otherwise an error names
the field's two types. Every field is nullable, because the sample proves nothing about the entries outside it.
"""

from __future__ import annotations

import datetime
import decimal
import itertools
import uuid
from collections.abc import Iterable
from typing import Any

from pyspark.sql import types as spark

from phalanx.codec.values import Json
from phalanx.common.errors import UsageError
from phalanx_spark.columns.fallback import row_at, show, show_key
from phalanx_spark.connector import grid
from phalanx_spark.connector.keys import key_parts
from phalanx_spark.connector.options import SparkOptions
from phalanx_spark.connector.schemas import stored_schema, to_spark

_SCALARS: dict[type, spark.DataType] = {
    bool: spark.BooleanType(),
    float: spark.DoubleType(),
    str: spark.StringType(),
    uuid.UUID: spark.StringType(),
    Json: spark.StringType(),
    bytes: spark.BinaryType(),
    datetime.date: spark.DateType(),
    type(None): spark.NullType(),
}
_MAX_DIGITS = 38


class _WideLong(spark.LongType):
    """A long that no double has: between two doubles beyond 2**53."""


class Unlike(Exception):
    """Two types of one field that have no common type: where, and which."""

    def __init__(self, path: str, first: spark.DataType, second: spark.DataType) -> None:
        super().__init__(path, first, second)
        self.path, self.first, self.second = path, first, second


class Unknown(Exception):
    """A value that Spark has no type for: where, and which."""

    def __init__(self, path: str, value: object) -> None:
        super().__init__(path, value)
        self.path, self.value = path, value


def infer_schema(options: SparkOptions) -> spark.StructType:
    """Return the map's schema, with its key columns; if it has none, one that fits a sample of its entries. Raises
    `UsageError`.
    """
    with grid.connect(options) as client:
        options = grid.with_setting(client, options)
        if stored := stored_schema(client, options):
            return to_spark(stored, options)
        entries = _sample(client, options)
        if not entries:
            raise UsageError(
                f"map {options.map!r} of the cluster {options.cluster!r} has no entries to infer a schema from ({grid.describe_maps(client)}); "
                f"check the name, write into the map first, or give the schema: spark.read.schema('...')"
            )
        read = grid.value_reader(client, options)
        rows = [(key, row_at(key, value, options.map, read)) for key, value in entries]
    keys: dict[str, spark.DataType] = {name: spark.NullType() for name in options.key}
    fields: dict[str, spark.DataType] = {}
    for key, row in rows:
        for name, part in zip(options.key, key_parts(key, options), strict=True):
            keys[name] = _merged(options, key, name, keys[name], part)
        for name, content in row.items():
            if name not in keys:
                fields[name] = _merged(options, key, name, fields.get(name, spark.NullType()), content)
            else:
                fields[name] = spark.NullType()  # keeps the column's place; its type is that of the key
    absent = {name: kind for name, kind in keys.items() if name not in fields}
    return spark.StructType(
        [spark.StructField(name, _settled(keys.get(name, kind)), True) for name, kind in (absent | fields).items()]
    )


def _sample(client: grid.Client, options: SparkOptions) -> list[tuple[bytes, bytes]]:
    count = len(client.partition_table().owners())
    pages = client.scan_data(options.map, list(range(count)), count)
    entries = (entry for keys, values in pages for entry in zip(keys, values, strict=True))
    return list(itertools.islice(entries, options.sample_size))


def _merged(options: SparkOptions, key: bytes, name: str, known: spark.DataType, value: Any) -> spark.DataType:
    if type(value) in _SCALARS and _SCALARS[type(value)] == known:
        return known
    try:
        return merge(known, type_of(value, name), name)
    except Unlike as error:
        one, other = error.first.simpleString(), error.second.simpleString()
        inexact = (
            ", and beyond 2^53 a double does not hold every whole number"
            if {one, other} == {"bigint", "double"}
            else ""
        )
        raise UsageError(
            f"map {options.map!r}: field '{error.path}' is {one} in some entries and "
            f"{other} in others (for example key {show_key(key)}){inexact}; give a schema that says which "
            f"is meant, or leave the field out of it: spark.read.schema('...')"
        ) from None
    except Unknown as error:
        raise UsageError(
            f"map {options.map!r}, key {show_key(key)}: field '{error.path}' holds {show(error.value)} "
            f"({type(error.value).__name__}), which is not a value of a Spark column; give a schema without the field: "
            f"spark.read.schema('...')"
        ) from None


def type_of(value: Any, path: str) -> spark.DataType:
    """Return the Spark type of a Python value. Raises `Unknown` or `Unlike`."""
    if type(value) in _SCALARS:
        return _SCALARS[type(value)]
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return spark.LongType() if float(value) == value else _WideLong()
        if abs(value) < 10**_MAX_DIGITS:
            return spark.DecimalType(_MAX_DIGITS, 0)
    if isinstance(value, datetime.datetime):
        return spark.TimestampNTZType() if value.tzinfo is None else spark.TimestampType()
    if isinstance(value, decimal.Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        precision = max(len(digits) + int(exponent), 0) + scale or 1
        if precision <= _MAX_DIGITS:
            return spark.DecimalType(precision, scale)
    if isinstance(value, list | tuple):
        return spark.ArrayType(_merge_all(value, f"{path}.element"))
    if isinstance(value, dict):
        if all(isinstance(name, str) for name in value):
            return spark.StructType(
                [spark.StructField(name, type_of(part, f"{path}.{name}")) for name, part in value.items()]
            )
        return spark.MapType(_merge_all(value, f"{path}.key"), _merge_all(value.values(), f"{path}.value"))
    raise Unknown(path, value)


def _merge_all(values: Iterable[Any], path: str) -> spark.DataType:
    kind: spark.DataType = spark.NullType()
    for value in values:
        kind = merge(kind, type_of(value, path), path)
    return kind


def merge(first: spark.DataType, second: spark.DataType, path: str) -> spark.DataType:
    """Return the narrowest type that holds the values of both. Raises `Unlike` if there is none."""
    numbers = {type(first), type(second)}
    if numbers == {spark.LongType, _WideLong}:
        return _WideLong()
    if first == second or isinstance(second, spark.NullType):
        return first
    if isinstance(first, spark.NullType):
        return second
    if numbers == {spark.LongType, spark.DoubleType}:
        return spark.DoubleType()
    if numbers <= {spark.LongType, _WideLong, spark.DecimalType}:
        return _merge_decimals(first, second, path)
    if numbers == {spark.StructType, spark.MapType}:
        struct, entries = (first, second) if isinstance(first, spark.StructType) else (second, first)
        if struct == spark.StructType():
            return entries  # {} is an empty map as well
    if isinstance(first, spark.ArrayType) and isinstance(second, spark.ArrayType):
        return spark.ArrayType(merge(first.elementType, second.elementType, f"{path}.element"))
    if isinstance(first, spark.MapType) and isinstance(second, spark.MapType):
        return spark.MapType(
            merge(first.keyType, second.keyType, f"{path}.key"),
            merge(first.valueType, second.valueType, f"{path}.value"),
        )
    if isinstance(first, spark.StructType) and isinstance(second, spark.StructType):
        kinds = {field.name: field.dataType for field in first.fields}
        for field in second.fields:
            kinds[field.name] = merge(kinds.get(field.name, spark.NullType()), field.dataType, f"{path}.{field.name}")
        return spark.StructType([spark.StructField(name, kind) for name, kind in kinds.items()])
    raise Unlike(path, first, second)


def _merge_decimals(first: spark.DataType, second: spark.DataType, path: str) -> spark.DataType:
    one, other = (kind if isinstance(kind, spark.DecimalType) else spark.DecimalType(19, 0) for kind in (first, second))
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    if precision > _MAX_DIGITS:
        raise Unlike(path, first, second)
    return spark.DecimalType(precision, scale)


def _settled(kind: spark.DataType) -> spark.DataType:
    """Replace null types by strings, as Spark does for JSON: the sample has only nulls there."""
    if isinstance(kind, spark.NullType):
        return spark.StringType()
    if isinstance(kind, _WideLong):
        return spark.LongType()
    if isinstance(kind, spark.ArrayType):
        return spark.ArrayType(_settled(kind.elementType))
    if isinstance(kind, spark.MapType):
        return spark.MapType(_settled(kind.keyType), _settled(kind.valueType))
    if isinstance(kind, spark.StructType):
        return spark.StructType([spark.StructField(field.name, _settled(field.dataType)) for field in kind.fields])
    return kind
