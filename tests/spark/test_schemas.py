"""The schema of a map and Spark: what is written comes back with its types, and what a write makes of a schema that is there."""

import itertools
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.streaming.datasource import ReadAllAvailable

from phalanx import Client
from phalanx.client.ask import ask_any, find_master
from phalanx.client.schemas import change_schema
from phalanx.common.errors import JournalNotEnabled
from phalanx.common.map_settings import MapChange
from phalanx_spark.connector.source import PhalanxSource
from spark.test_end_to_end import ALL_TYPES, PUSHDOWN, Connected, full_row, told
from support.processes import Cluster

NUMBERS = itertools.count()


@pytest.fixture
def fresh(spark: SparkSession, members: Cluster) -> Connected:
    """A map that nobody has used yet."""
    return Connected(spark, members, f"typed-{next(NUMBERS)}")


def columns(frame: DataFrame) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields)


def test_every_type_comes_back_without_a_schema_in_the_read(fresh: Connected) -> None:
    rows = [tuple(full_row().values()), tuple((full_row(**dict.fromkeys(full_row()) | {"id": "null"})).values())]
    sent = fresh.spark.createDataFrame(rows, ALL_TYPES)
    fresh.write(sent, key="id")
    got = fresh.read(key="id")
    assert columns(got) == columns(sent)
    assert sorted(map(repr, got.collect())) == sorted(map(repr, sent.collect()))


def test_char_varchar_and_void_are_read_as_text(fresh: Connected) -> None:
    fresh.write(fresh.spark.sql("select 'a' key, cast('x' as varchar(3)) v, null nothing"))
    assert columns(fresh.read()) == "key string, v string, nothing string"


def test_the_keys_columns_are_known_from_the_schema(fresh: Connected) -> None:
    fresh.write(fresh.spark.sql("select 'LH' carrier, 400 no, 1.50 price"), key="carrier,no", keyInValue="false")
    read = fresh.read()
    assert columns(read) == "carrier string, no int, price decimal(3,2)"
    assert [tuple(row) for row in read.collect()] == [tuple(fresh.spark.sql("select 'LH', 400, 1.50").collect()[0])]
    fresh.write(fresh.spark.sql("select 'LH' carrier, 401 no, 2.50 price"))
    assert fresh.read().count() == 2


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        (None, "no"),
        (None, "carier,no"),
        (None, "Carrier,no"),
        (None, "no,carrier"),
        ("carrier string, no int", "carier,no"),
        ("no int, carrier string", "no,carrier"),
        ("no int, price string", "price,no"),
    ],
)
def test_a_read_that_calls_the_key_otherwise_than_the_schema_is_refused(
    fresh: Connected, schema: str | None, key: str
) -> None:
    fresh.write(fresh.spark.sql("select 'LH' carrier, 400 no, 1.50 price"), key="carrier,no")
    with pytest.raises(AnalysisException) as error:
        fresh.read(schema, key=key).collect()
    name = fresh.options["map"]
    assert told(error).startswith(
        f"UsageError: map {name!r}: its key is 'carrier,no' by its schema, and option 'key' says"
    )
    assert f"{key!r}: leave the option out" in told(error)


def test_a_read_calls_the_key_as_a_schema_of_its_own_says(fresh: Connected) -> None:
    fresh.write(fresh.spark.sql("select 'LH' carrier, 400 no, 1.50 price"), key="carrier,no")
    renamed = fresh.read("price decimal(3,2), a string, b int", key="a,b")
    assert renamed.select("a", "b").collect() == fresh.spark.sql("select 'LH' a, 400 b").collect()


def test_an_append_of_no_rows_gives_the_map_its_schema(fresh: Connected) -> None:
    for staged in ("true", "false"):
        fresh.options["map"] += staged
        fresh.write(fresh.spark.sql("select 'a' id, 1 n").where("n > 1"), key="id", staged=staged)
        assert columns(fresh.read()) == "id string, n int"
        assert fresh.read().count() == 0
    fresh.write(fresh.spark.sql("select 'a' id, 1L n"), key="id")
    fresh.write(fresh.spark.sql("select 'a' id, 'new' x").where("id = 'b'"), key="id")
    assert columns(fresh.read()) == "id string, n bigint, x string"


def test_rows_stored_as_json_are_not_read_as_rows_of_nulls(fresh: Connected) -> None:
    fresh.write(fresh.spark.sql("select 'a' id, 1 n"), key="id", dicts="json")
    with pytest.raises(Exception, match=r"key 'a': the value is JSON, .*option\('dicts', 'json'\)"):
        fresh.read().collect()
    assert fresh.read(dicts="json").collect() == fresh.spark.sql("select 'a' id, 1 n").collect()
    assert [row.value for row in fresh.read("value string").collect()] == ['{"id":"a","n":1}']


def test_an_append_widens_the_schema(fresh: Connected) -> None:
    fresh.write(fresh.spark.sql("select 'a' key, 1 n, cast(1.5 as decimal(4,2)) d, map('k', 1) m"))
    fresh.write(
        fresh.spark.sql("select 'b' key, 3000000000 n, cast(1234567.125 as decimal(10,3)) d, map('k', 2L) m, 'new' x")
    )
    read = fresh.read()
    assert columns(read) == "key string, n bigint, d decimal(10,3), m map<string,bigint>, x string"
    assert [str(row.d) for row in read.orderBy("key").collect()] == ["1.500", "1234567.125"]
    fresh.write(fresh.spark.sql("select 'c' key, 7 n"))
    assert columns(fresh.read()) == columns(read)


def test_an_append_that_no_schema_holds_is_refused_before_it_writes(fresh: Connected, grid: Client) -> None:
    fresh.write(fresh.spark.sql("select 'a' key, 1 n"))
    for mode, options in (("append", {}), ("append", {"staged": "false"})):
        with pytest.raises(AnalysisException) as error:
            fresh.write(fresh.spark.sql("select 'b' key, 'text' n"), mode, **options)
        assert (
            "column 'n' is int by the map's schema, and string in this write; cast it to int, or write with mode"
            in told(error)
        )
    with pytest.raises(AnalysisException) as error:
        fresh.write(fresh.spark.sql("select 'b' other, 1 n"), key="other")
    assert "its key is 'key' by its schema, and this write's is 'other'" in told(error)
    assert dict(grid.map(fresh.options["map"]).items()) == {"a": {"key": "a", "n": 1}}


def test_an_overwrite_replaces_the_schema_with_the_rows(fresh: Connected) -> None:
    fresh.write(fresh.spark.sql("select 'a' key, 1 n"))
    fresh.write(fresh.spark.sql("select 5 id, 'text' n, cast(2 as smallint) s"), "overwrite", key="id")
    assert columns(fresh.read()) == "id int, n string, s smallint"
    assert fresh.read().collect() == fresh.spark.sql("select 5 id, 'text' n, cast(2 as smallint) s").collect()


def test_an_empty_map_keeps_its_schema_until_another_one_is_written(fresh: Connected, grid: Client) -> None:
    fresh.write(fresh.spark.sql("select 'a' key, 1 n"))
    grid.map(fresh.options["map"]).clear()
    assert columns(fresh.read()) == "key string, n int"
    assert fresh.read().count() == 0
    fresh.write(fresh.spark.sql("select 'b' id, 'text' n"), key="id")
    assert columns(fresh.read()) == "id string, n string"


def test_a_map_of_services_gets_no_schema_by_an_append(fresh: Connected, grid: Client) -> None:
    """Its entries may have columns that this write has not."""
    grid.map(fresh.options["map"])["a"] = {"id": "a", "seats": 7}
    fresh.write(fresh.spark.sql("select 'b' id, 1 n"), key="id")
    assert columns(fresh.read(key="id")) == "id string, seats bigint, n bigint"


def test_a_value_that_does_not_fit_the_schema_is_told_with_its_key(fresh: Connected, grid: Client) -> None:
    fresh.write(fresh.spark.sql("select 'a' key, 1 n"))
    grid.map(fresh.options["map"])["b"] = {"key": "b", "n": "text"}
    with pytest.raises(Exception, match="key 'b': field 'n' holds 'text'"):
        fresh.read().collect()
    change_schema(grid, fresh.options["map"], lambda _: "")
    with pytest.raises(AnalysisException, match="field 'n' is bigint in some entries and string in others"):
        fresh.read(key="key")


def test_a_map_of_json_has_types_that_json_has_not(fresh: Connected, members: Cluster, grid: Client) -> None:
    """Programs in other languages write the objects; the schema says what they are read as."""
    name, master = fresh.options["map"], find_master(members.addresses, members.name)
    ask_any(master, members.name, lambda inquirer: inquirer.change_map(name, MapChange(dicts="json")))
    fresh.write(fresh.spark.sql("select 'a' key, cast(1 as smallint) s, map('k', 1) m, cast(0.5 as float) f"))
    assert columns(fresh.read()) == "key string, s smallint, m map<string,int>, f float"
    grid.map(name)["b"] = {"key": "b", "s": 2, "m": {"x": 2, "y": 3}}
    assert [(row.s, row.m) for row in fresh.read().orderBy("key").collect()] == [(1, {"k": 1}), (2, {"x": 2, "y": 3})]


def test_a_plan_shows_which_filters_reach_the_members(fresh: Connected, capsys: pytest.CaptureFixture[str]) -> None:
    fresh.write(fresh.spark.range(100).selectExpr("id key", "id % 7 n", "array(id) a"))
    fresh.spark.conf.set(PUSHDOWN, "true")
    try:
        for condition, pushed in (
            ("key in (4, 5)", "[In(key, [4,5])"),
            ("n > 5 and a[0] = 3", "[IsNotNull(n), IsNotNull(a), GreaterThan(n,5)]"),
            ("n > 5 or key = 1", ""),
        ):
            frame = fresh.read(pushDown="true").where(condition)
            frame.explain("formatted")
            said = capsys.readouterr().out
            assert (f"PushedFilters: {pushed}" in said) if pushed else "PushedFilters" not in said, said
    finally:
        fresh.spark.conf.unset(PUSHDOWN)


def test_a_schema_that_is_too_large_is_left_out(fresh: Connected) -> None:
    wide = fresh.spark.range(1).selectExpr("'a' key", *(f"id as a_column_with_the_number_{n}" for n in range(600)))
    fresh.write(wide)
    assert fresh.read().count() == 1
    fresh.write(wide.select("key"), "overwrite")
    assert columns(fresh.read()) == "key string"
    fresh.write(wide, "overwrite")
    assert len(fresh.read(key="key").columns) == 601


def test_a_stream_gives_a_map_without_a_journal_one(members: Cluster, grid: Client) -> None:
    """Spark's part is played here: a query whose option says how large it is to be."""
    options = {"members": members.addresses, "cluster": members.name, "map": f"followed-{next(NUMBERS)}", "key": "key"}
    schema = t.StructType().add("kind", "string").add("key", "string")
    refused = PhalanxSource(options).streamReader(schema)
    with pytest.raises(JournalNotEnabled, match=r"has no journal .*\.option\('journalCapacity', 10000\)$"):
        refused.latestOffset(refused.initialOffset(), ReadAllAvailable())
    for capacity in ("100", "7"):
        reader: Any = PhalanxSource(options | {"journalCapacity": capacity}).streamReader(schema)
        start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        grid.map(options["map"])[capacity] = {"n": 1}
        end = reader.latestOffset(start, ReadAllAvailable())
        rows = [
            row for task in reader.partitions(start, end) for batch in reader.read(task) for row in batch.to_pylist()
        ]
        assert rows == [{"kind": "added", "key": capacity}]
        assert grid.refresh().maps.of(options["map"]).journal.capacity == 100, "one that is there stays as it is"
        reader.stop()
    refused.stop()
