"""Which Spark types the grid stores, and the Arrow types in which their columns travel.

The Arrow schema of a read has to be the one that Spark derives from its own schema (timestamps are instants in UTC), so
the mapping is spelled out here instead of taken from a private helper of one PySpark version.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from phalanx.common.errors import UsageError

_SCALARS: dict[type[spark.DataType], Any] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.CharType: pa.string(),
    spark.VarcharType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.NullType: pa.null(),
}

_REMEDIES = {
    "variant": "turn it into text with to_json, or into a column of a plain type with variant_get",
    "interval": "cast it to bigint or string",
    "time": "cast it to string",
}


def arrow_schema(schema: spark.StructType) -> Any:
    """Return the Arrow schema of a DataFrame's schema. Raises `UsageError` that names the first column that cannot be
    stored.
    """
    return pa.schema(_fields(schema, ""))


def _fields(schema: spark.StructType, prefix: str) -> list[Any]:
    seen: set[str] = set()
    fields = []
    for field in schema.fields:
        path = prefix + field.name
        if field.name in seen:
            raise UsageError(f"column '{path}' appears twice in the schema; give each column a name of its own")
        if "\0" in field.name:  # Arrow's names end there in Python: the column would come back empty
            raise UsageError(f"column {path!r} has a NUL character in its name, which Arrow cuts there; rename it")
        seen.add(field.name)
        fields.append(pa.field(field.name, _arrow_type(field.dataType, path), field.nullable))
    return fields


def _arrow_type(kind: spark.DataType, path: str) -> Any:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        element = _arrow_type(kind.elementType, f"{path}.element")
        return pa.list_(pa.field("element", element, nullable=kind.containsNull))
    if isinstance(kind, spark.MapType):
        key = _arrow_type(kind.keyType, f"{path}.key")
        value = _arrow_type(kind.valueType, f"{path}.value")
        if pa.types.is_nested(key):
            raise UsageError(
                f"column '{path}' has type {kind.simpleString()}: a stored map has scalar keys; "
                f"use map_entries to store an array of pairs instead"
            )
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, nullable=kind.valueContainsNull))
    if isinstance(kind, spark.StructType):
        return pa.struct(_fields(kind, f"{path}."))
    if type(kind) in _SCALARS:
        return _SCALARS[type(kind)]
    name = kind.simpleString()
    remedy = next((remedy for part, remedy in _REMEDIES.items() if part in name), "cast it to a type that it can")
    raise UsageError(f"column '{path}' has type {name}, which the grid cannot store; {remedy}, or leave it out")
