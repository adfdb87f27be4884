"""The schema of a map as Spark's, and how a write changes it.

`overwrite` replaces it, together with the rows. `append` widens it (`common.map_schema`) before its rows become
visible, or is refused by column; if the map has no entries, any other schema can replace it. A map with entries and
without a schema gets none by an append: nobody knows what is in its entries, and readers would no longer see columns
that this write does not have. If there is no room for a new schema, the rows are written without one, and the driver's
standard error says so.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import types as spark

from phalanx.client.schemas import with_written
from phalanx.common import map_schema as columns
from phalanx.common.errors import NotEnoughMembers, UsageError
from phalanx.common.map_schema import Column, MapSchema, make_schema, parts_of, read_schema
from phalanx.common.map_settings import MapChange
from phalanx_spark.connector import grid
from phalanx_spark.connector.options import SparkOptions

_TYPES: dict[type[spark.DataType], columns.ColumnType] = {
    spark.BooleanType: columns.BoolType(),
    spark.ByteType: columns.IntType(8),
    spark.ShortType: columns.IntType(16),
    spark.IntegerType: columns.IntType(32),
    spark.LongType: columns.IntType(64),
    spark.FloatType: columns.FloatType("SINGLE"),
    spark.DoubleType: columns.FloatType("DOUBLE"),
    spark.StringType: columns.TextType(),
    spark.CharType: columns.TextType(),
    spark.VarcharType: columns.TextType(),
    spark.BinaryType: columns.BytesType(),
    spark.DateType: columns.DateType(),
    spark.TimestampType: columns.TimestampType(timezone="UTC"),
    spark.TimestampNTZType: columns.TimestampType(),
    spark.NullType: columns.NullType(),
}
"""Of types that have a schema at all: `types.arrow_schema` refuses the others."""
_SPARK_TYPES: dict[columns.ColumnType, spark.DataType] = {
    column: kind() for kind, column in _TYPES.items() if kind not in (spark.CharType, spark.VarcharType)
} | {columns.NullType(): spark.StringType()}


@dataclass(frozen=True)
class SchemaOfAppend:
    """What an append makes of the map's schema; picklable, and made when the write is planned."""

    map_name: str
    written: MapSchema
    seen: str
    """The schema that the map had then; empty: none."""
    is_free: bool
    """Whether the map had no entries then, so that its schema bound no reader."""

    def after(self, present: str) -> str:
        """Return the schema of this write's rows and those of the map together. Raises `UsageError` if there is none."""
        try:
            return with_written(present, self.written, self.map_name).to_json()
        except UsageError:
            if self.is_free and present == self.seen:
                return self.written.to_json()
            raise

    def store(self, client: grid.Client) -> None:
        """Store the schema in the map's settings: rows that become visible afterwards are read by it."""
        grid.change_schema(client, self.map_name, self.after)


PlannedSchema = tuple[SchemaOfAppend | None, str | None]
"""What an append makes of the map's schema, and the one that an overwrite puts in its place. None: it stays."""


def plan_schema(
    client: grid.Client, options: SparkOptions, schema: spark.StructType, *, overwrite: bool
) -> PlannedSchema:
    """Return how a write of these columns changes the map's schema. Raises `UsageError` if no schema fits old and new
    rows.
    """
    if overwrite:
        return None, _find_room(client, options.map, to_map_schema(schema, options))
    return _plan_append(client, options, schema), None


def _plan_append(client: grid.Client, options: SparkOptions, schema: spark.StructType) -> SchemaOfAppend | None:
    seen, written = stored_schema(client, options), to_map_schema(schema, options)
    if seen:
        try:
            with_written(seen, written, options.map)
        except UsageError:
            if not _is_empty(client, options.map):
                raise
            return SchemaOfAppend(options.map, written, seen, is_free=True)
    elif not _is_empty(client, options.map) or not _find_room(client, options.map, written):
        return None
    return SchemaOfAppend(options.map, written, seen, is_free=False)


def _is_empty(client: grid.Client, map_name: str) -> bool:
    """Return whether the map is known to have no entries."""
    try:
        return not grid.has_entries(client, map_name)
    except NotEnoughMembers:
        return False  # its reads are refused; its writes can be allowed, and say themselves what they lack


def _find_room(client: grid.Client, map_name: str, schema: MapSchema) -> str:
    """Return a new schema as a map's setting has it. Say on standard error if there is no room for it, and return an
    empty text.
    """
    try:
        text = schema.to_json()
        client.partition_table().maps.with_change(map_name, MapChange(schema=text))
    except UsageError as error:
        print(f"phalanx: the map {map_name!r} is written without its schema: {error}", file=sys.stderr)
        return ""
    return text


def stored_schema(client: grid.Client, options: SparkOptions) -> str:
    """Return the schema of the map, as its setting has it."""
    return client.partition_table().maps.of(options.map).schema


def to_map_schema(schema: spark.StructType, options: SparkOptions) -> MapSchema:
    """Return the schema of the rows that a write of these columns stores."""
    return make_schema(
        tuple(_column(field.name, field.dataType) for field in schema.fields if field.name != options.delete_column),
        options.key,
    )


def _column(name: str, kind: spark.DataType, *, nullable: bool = True) -> Column:
    match kind:
        case spark.DecimalType():
            return Column(name, columns.DecimalType(kind.precision, kind.scale))
        case spark.ArrayType():
            return Column(name, columns.ListType(), (_column("element", kind.elementType),))
        case spark.MapType():
            entry = (_column("key", kind.keyType, nullable=False), _column("value", kind.valueType))
            return Column(name, columns.MapType(), (Column("entries", columns.StructType(), entry, False),))
        case spark.StructType():
            fields = tuple(_column(field.name, field.dataType) for field in kind.fields)
            return Column(name, columns.StructType(), fields)
        case _:
            return Column(name, _TYPES[type(kind)], (), nullable)


def to_spark(text: str, options: SparkOptions) -> spark.StructType:
    """Return the schema of a read of a map with this schema. Raises `UsageError` if the read has another name for its
    key.
    """
    check_key(text, options, ())
    return spark.StructType(
        [spark.StructField(column.name, _spark_type(column)) for column in read_schema(text).fields]
    )


def check_key(text: str, options: SparkOptions, wanted: Collection[str]) -> None:
    """Refuse a read whose option `key` differs from the key of the map's schema, which is a misspelt name or a wrong column.

    `wanted`: the columns of the schema that was given to the read. It can call the key otherwise, by names that the map's schema has not.
    """
    schema = read_schema(text) if text else None
    if schema is None or not schema.key or options.key == schema.key:
        return
    if set(options.key) <= set(wanted) - {column.name for column in schema.fields}:
        return
    raise UsageError(
        f"map {options.map!r}: its key is {','.join(schema.key)!r} by its schema, and option 'key' says {','.join(options.key)!r}: "
        f"leave the option out, and rename columns of the DataFrame; or give the read a schema that has the key by other names"
    )


def _spark_type(column: Column) -> spark.DataType:
    children = [_spark_type(child) for child in parts_of(column)]
    match column.type:
        case columns.DecimalType(precision, scale):
            return spark.DecimalType(precision, scale)
        case columns.ListType():
            return spark.ArrayType(children[0])
        case columns.MapType():
            return spark.MapType(children[0], children[1])
        case columns.StructType():
            names = [child.name for child in column.children]
            return spark.StructType([spark.StructField(*field) for field in zip(names, children, strict=True)])
        case kind:
            return _SPARK_TYPES[kind]
