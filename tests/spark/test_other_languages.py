"""Values that programs in other languages have stored through clients of Hazelcast, as Spark reads and writes them."""

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from endpoints.hazelcast.compact_objects import CompactObject, written
from phalanx import Client
from phalanx.client.ask import ask_any
from phalanx.client.blocking.journal import JournalEvent
from phalanx.codec.compact import from_any_data, register
from phalanx.codec.compact_schemas import SCHEMAS, CompactSchema
from phalanx.codec.public_types import MORE_TYPE_IDS
from phalanx.codec.values import Json, from_data, to_data, to_key_data
from phalanx.common.errors import CorruptDataError, UsageError
from phalanx.common.map_settings import MapChange
from phalanx.maps.own_maps import OwnName
from phalanx_spark.columns.arrow import to_bytes_list
from phalanx_spark.columns.types import arrow_schema
from phalanx_spark.connector.changes import to_batch
from phalanx_spark.connector.inference import type_of
from phalanx_spark.connector.options import SparkOptions, parse_options
from phalanx_spark.connector.rows import decode_entries, encode_rows
from spark.test_end_to_end import PUSHDOWN, Connected
from support.processes import Cluster, wait_for

WHEN = dt.datetime(2024, 1, 2, 3, 4, 5, 6)
STORED: dict[int, tuple[bytes, Any, spark_types.DataType]] = {
    -3: (b"\xff", -1, spark_types.LongType()),
    -5: (b"\x04\x16", "Ж", spark_types.StringType()),
    -6: (b"\xff\xfe", -2, spark_types.LongType()),
    -7: (struct.pack(">i", 5), 5, spark_types.LongType()),
    -9: (struct.pack(">f", 1.5), 1.5, spark_types.DoubleType()),
    -13: (struct.pack(">i??", 2, True, False), [True, False], spark_types.ArrayType(spark_types.BooleanType())),
    -14: (struct.pack(">iHH", 2, 65, 66), "AB", spark_types.StringType()),
    -15: (struct.pack(">ih", 1, -1), [-1], spark_types.ArrayType(spark_types.LongType())),
    -16: (struct.pack(">ii", 1, 7), [7], spark_types.ArrayType(spark_types.LongType())),
    -17: (struct.pack(">iq", 1, 7), [7], spark_types.ArrayType(spark_types.LongType())),
    -18: (struct.pack(">if", 1, 0.5), [0.5], spark_types.ArrayType(spark_types.DoubleType())),
    -19: (struct.pack(">id", 1, 0.1), [0.1], spark_types.ArrayType(spark_types.DoubleType())),
    -20: (struct.pack(">ii", 1, 1) + b"a", ["a"], spark_types.ArrayType(spark_types.StringType())),
    -24: (struct.pack(">i", 1) + b"A", "A", spark_types.StringType()),
    -27: (struct.pack(">ihi", 2, -1250, 3), Decimal("-1.250"), spark_types.DecimalType(4, 3)),
    -28: (struct.pack(">iii", 1, -7, 3), [3], spark_types.ArrayType(spark_types.LongType())),
    -29: (struct.pack(">iii", 1, -7, 3), [3], spark_types.ArrayType(spark_types.LongType())),
    -30: (struct.pack(">iii", 1, -7, 3), [3], spark_types.ArrayType(spark_types.LongType())),
    -51: (struct.pack(">ibb", 2024, 1, 2), dt.date(2024, 1, 2), spark_types.DateType()),
    -52: (struct.pack(">bbbi", 1, 2, 3, 4007), None, spark_types.NullType()),  # Spark has no times of day
    -53: (struct.pack(">ibbbbbi", 2024, 1, 2, 3, 4, 5, 6000), WHEN, spark_types.TimestampNTZType()),
    -54: (
        struct.pack(">ibbbbbii", 2024, 1, 2, 3, 4, 5, 6000, 0),
        WHEN.replace(tzinfo=dt.UTC),
        spark_types.TimestampType(),
    ),
}
"""Type id of a client's value to its payload, what Python reads, and its type in Spark."""


def options(**changes: str) -> SparkOptions:
    return parse_options({"members": "127.0.0.1:5701", "map": "m"} | changes, "read")


def columns(stored: list[bytes], fields: list[tuple[str, Any]], **changes: str) -> list[dict[str, Any]]:
    keys = [to_key_data(f"k{number}") for number in range(len(stored))]
    found = decode_entries(keys, stored, pa.schema(fields), options(**changes))
    return [row for batch in found for row in batch.to_pylist()]


def test_every_type_is_looked_at() -> None:
    assert set(STORED) == set(MORE_TYPE_IDS)


@pytest.mark.parametrize("type_id", [type_id for type_id in STORED if type_id != -52])
def test_types_that_others_store_are_columns(type_id: int) -> None:
    payload, value, kind = STORED[type_id]
    stored = struct.pack(">i", type_id) + payload
    assert type_of(from_data(stored), "value") == kind
    field = arrow_schema(spark_types.StructType([spark_types.StructField("value", kind)])).field(0)
    assert columns([stored], [("value", field.type)]) == [{"value": value}]


def test_a_time_of_day_is_refused_with_its_key() -> None:
    with pytest.raises(UsageError, match=r"key 'k0': field 'value' holds datetime.time"):
        columns([struct.pack(">i", -52) + STORED[-52][0]], [("value", pa.string())])


@pytest.mark.parametrize(
    ("type_id", "why"), [(-120, "nothing is ever unpickled"), (-55, "the schema 0,"), (-100, "only by Java")]
)
def test_what_is_never_read_says_why_and_where(type_id: int, why: str) -> None:
    with pytest.raises(CorruptDataError, match=f"map 'm', key 'k1': .*{why}"):
        columns([to_data({"value": "a"}), struct.pack(">i", type_id) + bytes(8)], [("value", pa.string())])


# --- Compact objects ------------------------------------------------------------------------------------------------


class Book(CompactObject):
    """One with another object inside."""


class Author(CompactObject):
    """That one."""


def book(price: int, author: str | None = "Homer") -> tuple[bytes, list[CompactSchema]]:
    return written(
        Book(
            ("author", "compact", author and Author(("name", "string", author))),
            ("cover", "array_of_int8", [1, 2]),
            ("flag", "boolean", True),
            ("price", "nullable_int32", price),
            ("printed", "date", dt.date(1488, 12, 9)),
            ("tags", "array_of_string", ["a", None]),
        )
    )


COMPACT_ROW = {
    "author": {"name": "Homer"}, "cover": b"\1\2", "flag": True, "printed": dt.date(1488, 12, 9), "tags": ["a", None],
}  # fmt: skip


def test_compact_objects_are_rows_beside_those_of_others() -> None:
    stored = [to_data({"price": -1 - number}) for number in range(30)]
    for price in range(30):
        data, schemas = book(price)
        stored.insert(2 * price, data)
    for schema in schemas:
        register(schema)
    found = columns(
        stored, [("price", pa.int64()), ("author", pa.struct([("name", pa.string())])), ("flag", pa.bool_())]
    )
    assert found == [
        {"price": number // 2, "author": {"name": "Homer"}, "flag": True}
        if number % 2 == 0
        else {"price": -1 - number // 2, "author": None, "flag": None}
        for number in range(60)
    ]


def test_a_change_of_a_compact_object_is_a_row() -> None:
    data, schemas = book(7)
    for schema in schemas:
        register(schema)
    kind = pa.struct([("price", pa.int64())])
    event = JournalEvent("updated", to_key_data("a"), data, to_data({"price": 1}), 0, 0)
    batch = to_batch(0, [event], pa.schema([("new", kind), ("old", kind)]), options(), from_any_data)
    assert batch.to_pylist() == [{"new": {"price": 7}, "old": {"price": 1}}]


def test_tasks_fetch_the_schemas_and_judge_conditions(flights: Connected, grid: Client) -> None:
    """The driver infers columns, its workers read, and members, which cannot judge such objects, leave that to them."""
    for price in range(40):
        data, schemas = book(price)
        grid.map("flights").put_data([to_key_data(f"k{price}")], [data])
    for schema in schemas:
        grid.map(OwnName(SCHEMAS))[schema.id] = [schema.type_name, [list(field) for field in schema.fields]]
    grid.map("flights")["native"] = {"price": 5}
    flights.spark.conf.set(PUSHDOWN, "true")
    try:
        frame = flights.read(pushDown="true")
        assert {field.name: field.dataType.simpleString() for field in frame.schema} == {
            "author": "struct<name:string>", "cover": "binary", "flag": "boolean", "key": "string", "price": "bigint",
            "printed": "date", "tags": "array<string>",
        }  # fmt: skip
        some = frame.where("price < 7")
        assert "Filter " not in str(some._jdf.queryExecution().optimizedPlan().toString()), "the source judges"
        found = {row.key: row.asDict(recursive=True) for row in some.collect()}
    finally:
        flights.spark.conf.unset(PUSHDOWN)
    assert set(found) == {"native", *(f"k{price}" for price in range(7))}
    assert found["k6"] == {"key": "k6", "price": 6} | COMPACT_ROW
    lost = CompactSchema("lost", [("f", 11)])
    grid.map("flights").put_data([to_key_data("x")], [struct.pack(">iqq", -55, lost.id, 1)])
    with pytest.raises(Exception, match=rf"map 'flights', key 'x': the schema {lost.id} .* is not in the cluster"):
        flights.read("key string, f bigint").collect()


# --- dicts as JSON --------------------------------------------------------------------------------------------------


def test_objects_of_json_are_rows_where_that_was_asked_for() -> None:
    stored = [to_data(Json('{"a":1,"b":["x"]}')), to_data({"a": 2, "b": None}), to_data(Json("{}"))]
    fields = [("a", pa.int64()), ("b", pa.list_(pa.string()))]
    assert columns(stored, fields, dicts="json") == [{"a": 1, "b": ["x"]}, {"a": 2, "b": None}, {"a": None, "b": None}]
    assert columns(stored[:1], [("value", pa.string())]) == [{"value": '{"a":1,"b":["x"]}'}]


def test_rows_are_written_as_objects_of_json() -> None:
    batch = pa.RecordBatch.from_pylist([{"key": "a", "n": 1, "s": {"x": [1.5]}}, {"key": "b", "n": None, "s": None}])
    chosen = parse_options({"members": "127.0.0.1:5701", "map": "m", "dicts": "json", "keyInValue": "false"}, "write")
    stored = to_bytes_list(encode_rows(batch, chosen))
    assert [from_data(each) for each in stored] == [Json('{"n":1,"s":{"x":[1.5]}}'), Json('{"n":null,"s":null}')]
    only_keys = pa.RecordBatch.from_pylist([{"key": "a"}])
    assert [from_data(each) for each in to_bytes_list(encode_rows(only_keys, chosen))] == [Json("{}")]


def test_a_column_that_json_has_not_is_refused() -> None:
    chosen = parse_options({"members": "127.0.0.1:5701", "map": "m", "dicts": "json"}, "write")
    with pytest.raises(UsageError, match=r"value\['d'\]: JSON has no datetime.date.*nothing of this batch of 1 rows"):
        encode_rows(pa.RecordBatch.from_pylist([{"key": "a", "d": dt.date(2024, 1, 2)}]), chosen)


def test_members_look_into_no_json() -> None:
    with pytest.raises(UsageError, match="members do not look into JSON"):
        options(dicts="json", pushDown="true")


@pytest.fixture
def flights(spark: SparkSession, members: Cluster, grid: Client) -> Iterator[Connected]:
    yield Connected(spark, members, "flights")
    grid.map("flights").clear()


def test_spark_and_python_share_dicts_as_json(flights: Connected, grid: Client) -> None:
    frame = flights.spark.createDataFrame([("a", 1, ["x"]), ("b", 2, [])], "key string, n int, l array<string>")
    flights.write(frame, dicts="json")
    shared = grid.map("flights", dicts="json")
    assert shared["a"] == {"key": "a", "n": 1, "l": ["x"]}
    assert grid.map("flights")["b"] == Json('{"key":"b","n":2,"l":[]}')
    shared["c"] = {"n": 3, "l": ["y", "z"]}
    found = flights.read(dicts="json").orderBy("key").collect()
    assert [(row.key, row.n, row.l) for row in found] == [("a", 1, ["x"]), ("b", 2, []), ("c", 3, ["y", "z"])]


def test_spark_follows_the_setting_of_the_map(flights: Connected, grid: Client, members: Cluster) -> None:
    address = members.members[0].address
    frame = flights.spark.createDataFrame([("a", 1, ["x"])], "key string, n int, l array<string>")

    def store_dicts(dicts: str) -> None:
        ask_any(address, members.name, lambda inquirer: inquirer.change_map("flights", MapChange(dicts=dicts)))
        wait_for(
            lambda: {members.table_of(each).table.maps.of("flights").dicts for each in members.members} == {dicts},
            "all know",
        )
        wait_for(lambda: grid.refresh().maps.of("flights").dicts == dicts, "the client knows it")

    store_dicts("json")
    try:
        flights.write(frame)
        [data] = grid.get_data("flights", [to_key_data("a")])
        assert data is not None
        assert from_data(data) == Json('{"key":"a","n":1,"l":["x"]}')
        grid.map("flights")["b"] = {"n": 2, "l": ["y"]}
        found = flights.read().orderBy("key").collect()
        assert [(row.key, row.n, row.l) for row in found] == [("a", 1, ["x"]), ("b", 2, ["y"])]
        with pytest.raises(Exception, match="contradicts the map's setting, which is 'json'"):
            flights.read("key string, n int", dicts="rows").collect()
        with pytest.raises(Exception, match="contradicts the map's setting"):
            flights.write(frame, dicts="rows")
        with pytest.raises(Exception, match=r"JSON has no datetime.date"):
            flights.write(frame.selectExpr("key", "current_date() AS day"))
    finally:
        store_dicts("any")
