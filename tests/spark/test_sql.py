"""SQL: views of maps, and the tables of Spark's catalog, which cannot be. The page spark-sql.md is executed, too."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from phalanx import Client
from phalanx.common.errors import UsageError
from phalanx.spark import register
from phalanx_spark.connector.options import NO_TABLES, READ, find_defaults, parse_options
from phalanx_spark.connector.source import PhalanxSource, configured
from spark.test_end_to_end import told
from support.processes import Cluster

NUMBERS = itertools.count()
REFUSED = "Spark keeps the options of a table in its catalog to itself"


class Sql:
    """Statements about one map, with a view and perhaps a table of its name; `options`: as SQL writes them."""

    def __init__(self, spark: SparkSession, members: Cluster, name: str) -> None:
        self.spark, self.name = spark, name
        self.options = f"members '{members.addresses}', cluster '{members.name}', map '{name}'"
        self.given = self.options.replace(" '", "='")

    def __call__(self, text: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.spark.sql(text.replace("$it", self.name)).collect()]


@pytest.fixture
def sql(spark: SparkSession, members: Cluster) -> Iterator[Sql]:
    made = Sql(spark, members, f"sql_{next(NUMBERS)}")
    yield made
    spark.catalog.dropTempView(made.name)
    spark.sql(f"drop table if exists {made.name}")


def test_a_view_of_a_map_that_is_not_there_yet_is_filled_and_read(sql: Sql, grid: Client) -> None:
    sql(
        f"create temporary view $it (id string, n int) using phalanx options ({sql.options}, key 'id', ifMissing 'empty')"
    )
    assert sql("select * from $it") == []
    with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
        sql("insert into $it values ('a', 'text')")
    sql("insert into $it values ('a', 1)")
    assert sql("select * from $it") == [("a", 1)]
    grid.refresh()
    assert str(grid.map(sql.name).schema()) == "id string, n int"


def test_a_view_takes_insert_and_insert_overwrite(sql: Sql, grid: Client) -> None:
    sql.spark.sql("select 'a' id, 1 n").write.format("phalanx").options(**_options(sql)).mode("append").save()
    sql(f"create temporary view $it using phalanx options ({sql.options})")
    sql("insert into $it values ('b', 2), ('a', 5)")
    assert sorted(sql("select * from $it")) == [("a", 5), ("b", 2)]
    sql("insert overwrite $it select id, n + 1 from $it where id = 'b'")
    assert sql("select * from $it") == [("b", 3)]
    grid.refresh()
    assert str(grid.map(sql.name).schema()) == "id string, n int"


def test_a_view_that_is_tuned_for_reads_and_writes_takes_both(sql: Sql, grid: Client) -> None:
    sql.spark.sql("select 'a' id, 1 n").write.format("phalanx").options(**_options(sql)).mode("append").save()
    tuned = "numPartitions '1', sampleSize '10', snapshot 'true', ttlMs '3600000', keyInValue 'false'"
    sql(f"create temporary view $it using phalanx options ({sql.options}, {tuned})")
    sql("insert into $it values ('b', 2)")
    assert sorted(sql("select * from $it")) == [("a", 1), ("b", 2)]
    assert grid.map(sql.name)["b"] == {"n": 2}
    assert sql.spark.table(sql.name).rdd.getNumPartitions() == 1
    sql(
        f"create or replace temporary view $it (id string, n int) using phalanx options ({sql.options}, pushDwn 'true')"
    )
    for statement in ("select * from $it", "insert into $it values ('c', 3)"):
        with pytest.raises(AnalysisException) as error:
            sql(statement)
        assert "there is no option 'pushdwn' (did you mean 'pushDown'?)" in told(error)


def test_a_table_of_the_catalog_is_refused_with_what_works(sql: Sql, grid: Client) -> None:
    grid.map(sql.name)["a"] = {"id": "a", "n": 1}
    with pytest.raises(AnalysisException) as error:
        sql(f"create table $it using phalanx options ({sql.options}, key 'id')")
    assert told(error).startswith(f"UsageError: {REFUSED}")
    assert "CREATE TEMPORARY VIEW name USING phalanx" in told(error)
    assert sql("show tables like '$it'") == []
    sql(f"create table $it (id string, n int) using phalanx options ({sql.options}, key 'id')")
    for statement in ("select * from $it", "insert into $it values ('b', 2)", "insert overwrite $it values ('b', 2)"):
        with pytest.raises(AnalysisException) as error:
            sql(statement)
        assert "no option is given" in told(error)
        assert REFUSED in told(error)
    assert sql(f"select * from $it with ({sql.given}, key='id')") == [("a", 1)]
    sql(f"insert into $it with ({sql.given}, key='id') values ('b', 2)")
    assert dict(grid.map(sql.name).items()) == {"a": {"id": "a", "n": 1}, "b": {"id": "b", "n": 2}}


@pytest.mark.parametrize("mode", ["append", "overwrite", "error", "ignore"])
def test_save_as_table_is_refused_before_it_writes(sql: Sql, grid: Client, mode: str, tmp_path: Path) -> None:
    register(sql.spark)
    frame = sql.spark.sql("select 'a' id, 1 n")
    writer = frame.write.format("phalanx").options(**_options(sql)).mode(mode)
    refused = rf"saveAsTable\('{sql.name}'\): {REFUSED}.*; rows are written with save\(\)"
    with pytest.raises(UsageError, match=refused):
        writer.saveAsTable(sql.name)
    with pytest.raises(UsageError, match=refused):
        frame.write.saveAsTable(sql.name, "phalanx", mode, **_options(sql))
    assert grid.map(sql.name).size() == 0
    frame.write.format("json").option("path", str(tmp_path / "table")).mode(mode).saveAsTable(sql.name)
    assert sql("select id from $it") == [("a",)]


def test_write_to_a_new_table_is_refused_before_it_writes(sql: Sql, grid: Client, tmp_path: Path) -> None:
    register(sql.spark)
    frame = sql.spark.sql("select 'a' id, 1 n")
    with pytest.raises(UsageError, match=rf"writeTo\(…\).using\('phalanx'\): {REFUSED}.*; rows are written with"):
        frame.writeTo(sql.name).using("phalanx").options(**_options(sql)).create()
    assert grid.map(sql.name).size() == 0
    frame.writeTo(sql.name).using("json").option("path", str(tmp_path / "table")).create()
    assert sql("select id from $it") == [("a",)]


def test_members_and_cluster_come_from_sparks_configuration(sql: Sql, members: Cluster, grid: Client) -> None:
    grid.map(sql.name)["a"] = {"n": 1}
    settings = {"spark.phalanx.members": members.addresses, "spark.phalanx.cluster": members.name}
    try:
        for name, value in settings.items():
            sql.spark.conf.set(name, value)
        register(sql.spark)
        sql("create temporary view $it using phalanx options (map '$it')")
        assert sql("select * from $it") == [("a", 1)]
        sql("insert into $it values ('b', 2)")
        assert len(grid.map(sql.name)) == 2
    finally:
        for name in settings:
            sql.spark.conf.unset(name)
        register(sql.spark)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from $it where id = 'a'",
        "update $it set n = 2",
        "merge into $it using $it s on $it.id = s.id when matched then delete",
    ],
)
def test_what_spark_does_not_offer_formats_in_python_is_refused_by_spark(
    sql: Sql, grid: Client, statement: str
) -> None:
    grid.map(sql.name)["a"] = {"id": "a", "n": 1}
    sql(f"create temporary view $it using phalanx options ({sql.options}, key 'id')")
    with pytest.raises(PySparkException, match="does not support"):
        sql(statement)
    assert len(grid.map(sql.name)) == 1


def test_an_option_counts_before_the_configuration_and_that_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PHALANX_MEMBERS", "PHALANX_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    given = {"map": "m"}
    with pytest.raises(UsageError, match=r"option 'members' is missing: .*in SQL OPTIONS \(members '\.\.\.'\)"):
        parse_options(given, READ)
    monkeypatch.setenv("PHALANX_MEMBERS", "a:1")
    monkeypatch.setenv("PHALANX_CLUSTER", "blue")
    assert (parse_options(given, READ).members, parse_options(given, READ).cluster) == ("a:1", "blue")
    defaults = find_defaults({"spark.phalanx.members": "b:1"}.get)
    assert defaults == {"members": "b:1"}
    assert (parse_options(given, READ, defaults).members, parse_options(given, READ, defaults).cluster) == (
        "b:1",
        "blue",
    )
    assert parse_options(given | {"Members": "c:1"}, READ, defaults).members == "c:1"
    named = given | {"members": "phalanx://c:1/green"}
    assert parse_options(named, READ).cluster == "green"  # what is given wins over the variable
    with pytest.raises(UsageError, match="give one of the two"):
        parse_options(named | {"Cluster": "blue"}, READ)
    assert configured(defaults)(given).defaults == defaults
    assert configured({}) is PhalanxSource


def test_no_option_at_all_may_be_a_table() -> None:
    with pytest.raises(UsageError) as error:
        parse_options({}, READ)
    assert str(error.value).startswith("no option is given (options of a read: members, map")
    assert str(error.value).endswith(NO_TABLES)


def _options(sql: Sql) -> dict[str, str]:
    words = (each.split(" ", 1) for each in sql.options.split("', "))
    return {name: value.strip("'") for name, value in words} | {"key": "id"}
