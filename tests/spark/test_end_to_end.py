"""Spark, the data source and members in real processes."""

import datetime as dt
import decimal
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession

from phalanx import Client
from phalanx.client.ask import Inquirer, ask_any, find_master
from phalanx.client.schemas import change_schema
from phalanx.common.map_settings import MapChange, Protection
from phalanx.spark import register
from support.processes import Cluster

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Connected:
    """Reads and writes of one map of the cluster."""

    def __init__(self, spark: SparkSession, members: Cluster, name: str) -> None:
        self.spark = spark
        self.options = {"members": members.addresses, "cluster": members.name, "map": name}

    def read(self, schema: str | None = None, **options: str) -> DataFrame:
        reader: DataFrameReader = self.spark.read.format("phalanx").options(**(self.options | options))
        return (reader.schema(schema) if schema else reader).load()

    def write(self, frame: DataFrame, mode: str | None = "append", **options: str) -> None:
        writer = frame.write.format("phalanx").options(**(self.options | options))
        (writer.mode(mode) if mode else writer).save()


@pytest.fixture
def flights(spark: SparkSession, members: Cluster, grid: Client) -> Iterator[Connected]:
    yield Connected(spark, members, "flights")
    grid.map("flights").clear()
    change_schema(grid, "flights", lambda _: "")


def told(error: pytest.ExceptionInfo[PySparkException]) -> str:
    """What the user reads. The data source's part of it is one line without a traceback."""
    text = str(error.value)
    assert "Traceback" not in text
    line = next(line for line in text.splitlines() if "phalanx.common.errors." in line)
    return line.partition("phalanx.common.errors.")[2]


ALL_TYPES = (
    "id string, bo boolean, by tinyint, sh smallint, i int, l bigint, f float, d double, s string, bi binary, da date, "
    "ts timestamp, tn timestamp_ntz, de decimal(20,4), ar array<int>, st struct<a:int,b:array<string>>, "
    "ma map<string,double>, aa array<array<bigint>>, ms map<string,struct<x:int>>"
)


def full_row(**changes: Any) -> dict[str, Any]:
    row = {
        "id": "a", "bo": True, "by": -128, "sh": 32767, "i": -(2**31), "l": 2**63 - 1, "f": 0.1, "d": math.pi, "s": "é",
        "bi": bytearray(b"\x00\xff"), "da": dt.date(1, 1, 1), "ts": dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC),
        "tn": dt.datetime(9999, 12, 31, 23, 59, 59, 999999), "de": decimal.Decimal("-1234567890123456.7890"),
        "ar": [1, None, 3], "st": Row(a=1, b=["x", None]), "ma": {"k": 1.5, "n": None}, "aa": [[1], [], None],
        "ms": {"k": Row(x=1), "n": None},
    }  # fmt: skip
    return row | changes


def test_every_type_comes_back_as_it_was(flights: Connected, grid: Client) -> None:
    nothing = full_row(**dict.fromkeys(full_row()) | {"id": "null"})
    strange = full_row(id="strange", d=math.inf, f=-math.inf, s="", bi=bytearray(), ar=[], ma={}, aa=[], ms={})
    rows = [full_row(), nothing, strange]
    sent = flights.spark.createDataFrame([tuple(row.values()) for row in rows], ALL_TYPES)
    flights.write(sent, key="id")
    got = flights.read(ALL_TYPES, key="id")
    assert got.schema == sent.schema
    assert sorted(map(repr, got.collect())) == sorted(map(repr, sent.collect()))
    assert got.selectExpr("sum(unix_micros(ts))").first() == sent.selectExpr("sum(unix_micros(ts))").first()
    row = grid.map("flights")["a"]
    assert row["ts"] == dt.datetime(2024, 3, 10, 7, 30, tzinfo=dt.UTC)
    assert row["tn"] == dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert (row["de"], row["da"], row["bi"]) == (
        decimal.Decimal("-1234567890123456.7890"),
        dt.date(1, 1, 1),
        b"\x00\xff",
    )
    assert (row["st"], row["ma"]) == ({"a": 1, "b": ["x", None]}, {"k": 1.5, "n": None})


def test_instants_do_not_depend_on_the_time_zone_of_a_session(flights: Connected) -> None:
    flights.write(flights.spark.sql("select 'a' key, timestamp'2024-07-01 12:00:00 UTC' at"))
    zone = flights.spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    try:
        for other in ("Asia/Tokyo", "UTC"):
            flights.spark.conf.set("spark.sql.session.timeZone", other)
            assert flights.read().selectExpr("unix_seconds(at) at").collect() == [Row(at=1719835200)]
    finally:
        flights.spark.conf.set("spark.sql.session.timeZone", zone)


def test_rows_of_python_services_are_read_with_an_inferred_schema(flights: Connected, grid: Client) -> None:
    grid.map("flights").put_all({f"F{n}": {"price": n if n % 2 else n * 0.5, "tags": ["x"] * n} for n in range(30)})
    grid.map("flights").put_all({"old": {"price": None}})
    found = flights.read(key="id")
    assert found.schema.simpleString() == "struct<id:string,price:double,tags:array<string>>"
    assert found.count() == 31
    assert found.where("id = 'F3'").collect() == [Row(id="F3", price=3.0, tags=["x", "x", "x"])]
    assert found.where("price is null").collect() == [Row(id="old", price=None, tags=None)]


def test_append_replaces_rows_of_the_same_key_and_keeps_others(flights: Connected, grid: Client) -> None:
    frame = flights.spark.range(1000).selectExpr("id key", "'first' state")
    flights.write(frame)
    flights.write(frame.where("key < 10").selectExpr("key", "'second' state"), staged="false")
    assert len(grid.map("flights")) == 1000
    counts = flights.read().groupBy("state").count().collect()
    assert sorted(counts) == [Row(state="first", count=990), Row(state="second", count=10)]


def test_a_key_of_several_columns_is_a_tuple_for_python(flights: Connected, grid: Client) -> None:
    flights.write(flights.spark.sql("select 'LH' carrier, 400 no, 'JFK' to"), key="carrier,no", keyInValue="false")
    assert grid.map("flights")[("LH", 400)] == {"to": "JFK"}
    found = flights.read("no int, to string, carrier string", key="carrier,no")
    assert found.where("carrier = 'LH' and no = 400").collect() == [Row(no=400, to="JFK", carrier="LH")]


def test_entries_live_as_long_as_told(flights: Connected, grid: Client) -> None:
    flights.write(flights.spark.sql("select 'a' key, 1 n"), ttlMs="1")
    flights.write(flights.spark.sql("select 'b' key, 1 n"))
    assert [row.key for row in flights.read().collect()] == ["b"]


def test_the_number_of_tasks_can_be_chosen(flights: Connected) -> None:
    flights.write(flights.spark.range(100).selectExpr("id key", "id n"))
    assert flights.read(numPartitions="1").rdd.getNumPartitions() == 1
    assert flights.read(numPartitions="10").rdd.getNumPartitions() == 10
    assert flights.read(numPartitions="7").distinct().count() == 100
    assert flights.read().rdd.getNumPartitions() >= 4


@pytest.fixture(params=["true", "false"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Spark's own switch, either way."""
    spark.conf.set(PUSHDOWN, request.param)
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.usefixtures("pushdown")
def test_a_dataframe_gives_the_right_rows_whatever_it_was_asked_before(flights: Connected) -> None:
    """Spark 4 applies filters that a reader took to later queries of the same DataFrame, so by default none is taken."""
    flights.write(flights.spark.range(300).selectExpr("id key", "id % 7 n"))
    found = flights.read()
    assert found.where("key = 5").collect() == [Row(key=5, n=5)]
    assert found.count() == 300
    assert found.where("key in (1, 2, 1000) and n > 1").collect() == [Row(key=2, n=2)]
    assert found.where("key = 5 or n = 6").count() == 43
    assert found.where("key is null").count() == 0
    assert found.where("key = 5 and key = 6").count() == 0
    assert found.where("key = 5").union(found).count() == 301


def test_keys_are_looked_up_where_that_was_asked_for(flights: Connected) -> None:
    flights.write(flights.spark.range(300).selectExpr("id key", "id % 7 n"))
    with pytest.raises(AnalysisException, match=f"Set it to true|{PUSHDOWN}"):
        flights.read(pushDown="true").where("key = 5").collect()
    flights.spark.conf.set(PUSHDOWN, "true")
    try:
        looked_up = flights.read(pushDown="true").where("key in (5, 6, 1000) and n > 5")
        assert looked_up.rdd.getNumPartitions() == 1
        assert looked_up.collect() == [Row(key=6, n=6)]
        assert flights.read(pushDown="true").where("n > 5").count() == 42
        assert flights.read(pushDown="true").count() == 300
    finally:
        flights.spark.conf.unset(PUSHDOWN)


def test_spark_finds_the_format_by_itself(flights: Connected) -> None:
    """A new session knows nothing of the calls that others made."""
    fresh = flights.spark.newSession()
    flights.write(flights.spark.sql("select 'a' key, 1 n"))
    found = fresh.read.format("phalanx").options(**flights.options).load()
    assert found.collect() == [Row(key="a", n=1)]
    register(fresh)
    register(fresh)
    assert fresh.read.format("PHALANX").options(**flights.options).load().collect() == [Row(key="a", n=1)]


def test_a_thread_that_only_writes_finds_the_format_once_it_is_registered(flights: Connected, grid: Client) -> None:
    frame = flights.spark.range(3).selectExpr("id key")

    def work(*, first_register: bool) -> None:
        if first_register:
            register(flights.spark)
        flights.write(frame)

    with ThreadPoolExecutor(1) as other:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            other.submit(work, first_register=False).result()
        other.submit(work, first_register=True).result()
    assert grid.map("flights").size() == 3


def test_sql_can_name_a_map_as_a_table(flights: Connected) -> None:
    flights.write(flights.spark.range(10).selectExpr("id key", "id * 2 n"))
    given = ", ".join(f"'{name}' '{value}'" for name, value in flights.options.items())
    flights.spark.sql(f"create temporary view grid_flights using phalanx options ({given})")
    assert flights.spark.sql("select sum(n) from grid_flights where key in (1, 2)").first() == Row(**{"sum(n)": 6})
    flights.spark.catalog.dropTempView("grid_flights")


# --- what is wrong is said at the driver ----------------------------------------------------------------------------


def test_a_wrong_option_of_a_read_is_said_at_load(flights: Connected) -> None:
    with pytest.raises(AnalysisException) as error:
        flights.read(numPartition="4")
    assert told(error).startswith("UsageError: there is no option 'numpartition' (did you mean 'numPartitions'?)")


def test_a_wrong_option_of_a_write_is_said_before_any_row_is_written(flights: Connected, grid: Client) -> None:
    with pytest.raises(AnalysisException) as error:
        flights.write(flights.spark.range(3).selectExpr("id key"), startingOffsets="latest")
    assert told(error).startswith("UsageError: option 'startingOffsets' belongs to a readStream, not to a write")
    assert grid.map("flights").size() == 0


def test_a_map_that_has_lost_its_entries_is_empty_with_a_schema_and_refused_without(
    flights: Connected, grid: Client
) -> None:
    grid.map("flights")["a"] = {"n": 1}
    grid.map("flights").remove("a")
    grid.map("others")["a"] = 1
    assert flights.read("key string, n int").collect() == []
    with pytest.raises(AnalysisException) as error:
        flights.read()
    text = told(error)
    for part in ("map 'flights'", "has no entries to infer", "'others'", "give the schema"):
        assert part in text


def test_a_map_that_nobody_knows_is_refused_unless_it_may_be_missing(
    spark: SparkSession, members: Cluster, grid: Client
) -> None:
    grid.map("others")["a"] = 1
    misspelt = Connected(spark, members, "othres")
    with pytest.raises(AnalysisException) as error:
        misspelt.read("key string, n int").collect()
    assert f"the cluster '{members.name}' knows no map 'othres'" in told(error)
    assert "'others'" in str(error.value)
    assert misspelt.read("key string, n int", ifMissing="empty").collect() == []


def test_a_map_that_only_has_a_setting_or_was_overwritten_with_nothing_is_empty(
    spark: SparkSession, members: Cluster
) -> None:
    ask_any(
        find_master(members.addresses, members.name),
        members.name,
        lambda master: master.change_map("set", MapChange(protection=Protection(minimum=1))),
    )
    assert Connected(spark, members, "set").read("key string").collect() == []
    overwritten = Connected(spark, members, "overwritten")
    overwritten.write(spark.createDataFrame([], "key string"), "overwrite")
    assert overwritten.read("key string").collect() == []


def test_members_evaluate_no_filters_while_the_setting_of_spark_is_off_and_it_says_so(
    flights: Connected, grid: Client
) -> None:
    grid.map("flights")["a"] = {"n": 1}
    flights.spark.conf.unset(PUSHDOWN)
    with pytest.raises(AnalysisException) as error:
        flights.read("key string, n int", pushDown="true").collect()
    text = str(error.value)
    assert PUSHDOWN in text.splitlines()[0]
    assert "Traceback" not in text


def test_a_cluster_that_cannot_be_reached_is_named(flights: Connected) -> None:
    with pytest.raises(AnalysisException) as error:
        flights.read(members="127.0.0.1:1")
    assert told(error).startswith("ConnectError: ")
    assert "127.0.0.1:1" in told(error)


def test_a_cluster_of_another_name_is_refused(flights: Connected) -> None:
    with pytest.raises(AnalysisException) as error:
        flights.read(cluster="blue")
    assert told(error).startswith("ConnectError: ")
    with pytest.raises(AnalysisException) as error:
        flights.write(flights.spark.range(3).selectExpr("id key"), cluster="blue")
    assert "blue" in told(error)


def test_every_save_mode_does_what_spark_says_of_it(flights: Connected, grid: Client) -> None:
    first, second = (flights.spark.range(count).selectExpr("id key", f"{count} n") for count in (3, 5))
    flights.write(first, None)
    for mode in (None, "error", "errorifexists"):
        with pytest.raises(AnalysisException) as error:
            flights.write(second, mode)
        assert told(error).startswith("UsageError: map 'flights' of the cluster 'test' has entries already: write with")
    flights.write(second, "ignore")
    assert {row["n"] for row in grid.map("flights").values()} == {3}
    flights.write(second.where("key > 1"), "overwrite")
    assert {key: row["n"] for key, row in grid.map("flights").items()} == {2: 5, 3: 5, 4: 5}
    flights.write(first, "append")
    assert {key: row["n"] for key, row in grid.map("flights").items()} == {0: 3, 1: 3, 2: 3, 3: 5, 4: 5}
    flights.write(first.where("key > 100"), "overwrite")
    assert grid.map("flights").size() == 0


def test_a_snapshot_stays_as_it_was_when_the_read_was_planned(flights: Connected) -> None:
    flights.write(flights.spark.range(30).selectExpr("id key", "1 n"))
    kept, present = flights.read(snapshot="true"), flights.read()
    assert (kept.count(), present.count()) == (30, 30)
    flights.write(flights.spark.range(20, 50).selectExpr("id key", "2 n"))
    assert [tuple(frame.selectExpr("sum(n)").collect()[0]) for frame in (kept, present)] == [(30,), (80,)]


def test_a_missing_key_column_is_said_at_the_driver(flights: Connected) -> None:
    with pytest.raises(AnalysisException) as error:
        flights.write(flights.spark.range(3))
    assert "option 'key' names the column 'key', which the DataFrame does not have (columns: id)" in told(error)


def test_a_type_that_cannot_be_stored_is_said_at_the_driver(flights: Connected) -> None:
    with pytest.raises(AnalysisException) as error:
        flights.write(flights.spark.sql("select 1 key, parse_json('1') v"))
    assert "column 'v' has type variant, which the grid cannot store" in told(error)


def test_null_keys_are_told_from_the_task(flights: Connected, grid: Client) -> None:
    with pytest.raises(PySparkException) as error:
        flights.write(flights.spark.sql("select if(id = 7, null, id) key from range(0, 10, 1, 1)"))
    assert told(error).startswith(
        "UsageError: key column 'key' is null in 1 of 10 rows of a batch; nothing of that batch"
    )
    assert grid.map("flights").size() == 0


def test_a_value_that_does_not_fit_the_schema_is_told_from_the_task(flights: Connected, grid: Client) -> None:
    grid.map("flights").put_all({"a": {"n": 1}, "b": {"n": "one"}})
    with pytest.raises(PySparkException) as error:
        flights.read("key string, n int").collect()
    assert told(error).startswith(
        "UsageError: map 'flights', key 'b': field 'n' holds 'one' (str), which is not of type int"
    )
    with pytest.raises(AnalysisException) as error:
        flights.read()
    assert "map 'flights': field 'n' is " in told(error)


@pytest.mark.parametrize("what", ["read", "write"])
def test_a_protected_map_is_refused_in_one_line_that_says_what_is_missing(
    spark: SparkSession, members: Cluster, grid: Client, what: str
) -> None:
    frame = spark.createDataFrame([("a", 1)], "id string, n int")
    grid.map("guarded").put("a", {"n": 1})
    asked = Connected(spark, members, "guarded")
    with Inquirer(members.members[0].address, cluster=members.name) as master:
        master.change_map("guarded", MapChange(protection=Protection(3)))
        try:
            with pytest.raises(PySparkException) as error:
                asked.read("id string, n int", key="id").collect() if what == "read" else asked.write(frame, key="id")
        finally:
            master.change_map("guarded", MapChange(protection=Protection()))
    assert told(error).startswith("NotEnoughMembers: ")
    needs = f"map 'guarded' refuses {what}s: it needs at least 3 members that hold data, and 2 are here"
    assert needs in told(error)
    assert asked.read("id string, n int", key="id").collect() == [Row(id="a", n=1)]


def test_a_map_that_refuses_reads_alone_is_written(spark: SparkSession, members: Cluster, grid: Client) -> None:
    frame = spark.createDataFrame([("a", 1)], "id string, n int")
    asked = Connected(spark, members, "write-only")
    with Inquirer(members.members[0].address, cluster=members.name) as master:
        master.change_map("write-only", MapChange(protection=Protection(3, reads=True, writes=False)))
        try:
            asked.write(frame, key="id")
        finally:
            master.change_map("write-only", MapChange(protection=Protection()))
    assert asked.read("id string, n int", key="id").collect() == [Row(id="a", n=1)]
