"""Translate the filters that Spark offers into conditions that members evaluate.

A filter is taken only if the members' answer is exactly Spark's: for columns of the types below, and literals of these
types. The others stay with Spark.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import datasource as offered
from pyspark.sql import types as spark

from phalanx.codec.values import to_data
from phalanx.wire.conditions import Condition, Kind, Relation
from phalanx_spark.columns.fallback import VALUE_FIELD
from phalanx_spark.connector.options import SparkOptions

MAX_LITERALS = 1_000
"""An IN with more is left to Spark: every page's request would carry them."""

_KINDS: dict[type[spark.DataType], Kind] = {
    spark.BooleanType: Kind.BOOLEAN,
    spark.ByteType: Kind.INTEGER,
    spark.ShortType: Kind.INTEGER,
    spark.IntegerType: Kind.INTEGER,
    spark.LongType: Kind.INTEGER,
    spark.FloatType: Kind.SINGLE,
    spark.DoubleType: Kind.DOUBLE,
    spark.BinaryType: Kind.BYTES,
    spark.DateType: Kind.DATE,
    spark.TimestampType: Kind.INSTANT,
    spark.TimestampNTZType: Kind.LOCAL_TIME,
    spark.DecimalType: Kind.DECIMAL,
}
_LITERALS: dict[Kind, tuple[type, ...]] = {
    Kind.BOOLEAN: (bool,),
    Kind.INTEGER: (int,),
    Kind.SINGLE: (float,),
    Kind.DOUBLE: (float,),
    Kind.TEXT: (str,),
    Kind.BYTES: (bytes,),
    Kind.DATE: (dt.date,),
    Kind.DECIMAL: (Decimal, int),
}
_FLOATS = (Kind.SINGLE, Kind.DOUBLE)

_RELATIONS: dict[type[offered.Filter], Relation] = {
    offered.EqualTo: Relation.EQUAL,
    offered.EqualNullSafe: Relation.SAME,
    offered.LessThan: Relation.LESS,
    offered.LessThanOrEqual: Relation.AT_MOST,
    offered.GreaterThan: Relation.GREATER,
    offered.GreaterThanOrEqual: Relation.AT_LEAST,
    offered.In: Relation.IN,
    offered.IsNull: Relation.NULL,
    offered.IsNotNull: Relation.NULL,
    offered.StringStartsWith: Relation.STARTS,
    offered.StringEndsWith: Relation.ENDS,
    offered.StringContains: Relation.CONTAINS,
}
_TEXT_RELATIONS = (Relation.STARTS, Relation.ENDS, Relation.CONTAINS)


def condition_of(one: offered.Filter, schema: spark.StructType, options: SparkOptions) -> Condition | None:
    """Return the condition that means exactly the same as a filter; None if there is none."""
    negated = isinstance(one, offered.Not)
    inner: Any = one.child if isinstance(one, offered.Not) else one
    relation = _RELATIONS.get(type(inner))
    if relation is None:
        return None
    negated ^= isinstance(inner, offered.IsNotNull)
    path = tuple(inner.attribute)
    kind = _kind_at(schema, path)
    if kind is None or (path[0] == VALUE_FIELD and isinstance(schema[VALUE_FIELD].dataType, spark.MapType)):
        return None  # such a value is a dict whose names are not text: members take it for a row
    if path[0] not in options.key:
        part = -1
    elif len(path) == 1:
        part, path = options.key.index(path[0]), ()
    else:
        return None
    if relation is Relation.NULL:
        return Condition(part, path, Kind.ANY, relation, (), negated)
    values = list(inner.value) if relation is Relation.IN else [inner.value]
    if not _is_exact(kind, relation, values):
        return None
    return Condition(part, path, kind, relation, tuple(map(to_data, values)), negated)


def _kind_at(schema: spark.StructType, path: Sequence[str]) -> Kind | None:
    """Return the kind as which members read the column or the field of structs; None if there is none."""
    kind: spark.DataType = schema
    for name in path:
        fields = kind.fields if isinstance(kind, spark.StructType) else []
        found = [field.dataType for field in fields if field.name == name]
        if not found:
            return None
        kind = found[0]
    # Other collations, and CHAR with its padding, have other rules than the bytes of UTF-8.
    if type(kind) is spark.StringType and kind == spark.StringType():
        return Kind.TEXT
    return _KINDS.get(type(kind), Kind.ANY)


def _is_exact(kind: Kind, relation: Relation, values: Sequence[Any]) -> bool:
    if kind is Kind.ANY or not 0 < len(values) <= MAX_LITERALS or not all(_is_of(kind, value) for value in values):
        return False
    if relation in _TEXT_RELATIONS:
        return kind is Kind.TEXT
    # Spark looks many numbers up by their bits, where 0.0 is not -0.0, and compares few, where it is.
    return relation is not Relation.IN or kind not in _FLOATS


def _is_of(kind: Kind, value: Any) -> bool:
    """Return whether members compare a literal of this type with values of the kind. Null is of every kind."""
    if isinstance(value, dt.datetime):
        return kind is (Kind.LOCAL_TIME if value.tzinfo is None else Kind.INSTANT)
    return value is None or type(value) in _LITERALS.get(kind, ())
