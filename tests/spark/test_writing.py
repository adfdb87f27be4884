"""Batch writes: what comes back is what was written, and a job that fails, repeats itself or dies changes nothing else."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from phalanx import Client
from phalanx.spark import session
from spark.drivers import Driver
from spark.schemas import as_batch, key_scalars, tables, types
from support.processes import Cluster, wait_for
from support.sparks import FRUGAL, SHARED

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

DRIVER = Path(__file__).with_name("batch_driver.py")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that tries each task three times, as Spark on a cluster does."""
    SHARED.stop()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    made = session("local[2,3]", **(FRUGAL | settings))
    yield made
    made.stop()


def options(members: Cluster, name: str, **more: str) -> dict[str, str]:
    return {"members": members.addresses, "cluster": members.name, "map": name} | more


def save(frame: DataFrame, given_options: dict[str, str], mode: str = "append") -> None:
    frame.write.format("phalanx").options(**given_options).mode(mode).save()


def content(grid: Client, name: str) -> dict[Any, Any]:
    return dict(grid.map(name).iter_items())


# --- what comes back is what was written ------------------------------------------------------------------------------


def can_be_cast(kind: Any) -> bool:
    """Spark casts the tables that it is given, and Arrow (26) fails where a list or map has values of type null and nulls
    beside them.
    """
    if pa.types.is_struct(kind):
        return all(can_be_cast(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_map(kind):
        return has_values(kind.item_type)
    return not pa.types.is_list(kind) or has_values(kind.value_type)


def has_values(kind: Any) -> bool:
    """There is no null type anywhere in it."""
    if pa.types.is_struct(kind):
        return all(has_values(kind.field(at).type) for at in range(kind.num_fields))
    return not pa.types.is_null(kind) and can_be_cast(kind)


def as_key(value: Any) -> Any:
    """Zero has one key, which comes back without a sign."""
    return value + 0.0 if isinstance(value, float) else value


@st.composite
def frames(draw: st.DrawFn) -> tuple[Any, tuple[str, ...]]:
    """A table whose rows have keys of their own, and which columns are the key."""
    schema, rows = draw(tables(types().filter(lambda typed: can_be_cast(typed[0])), max_columns=4, max_rows=12))
    kind, values = draw(key_scalars())
    # Members refuse longer keys than 64 KiB.
    short = values.filter(lambda key: not isinstance(key, str | bytes) or len(key) < 30_000)
    keys = draw(st.lists(short, min_size=len(rows), max_size=len(rows)))
    number = pa.field("row number", pa.int64(), nullable=False)
    schema = pa.schema([number, pa.field("second key", kind), *schema])
    numbered = [
        {"row number": at, "second key": as_key(key)} | row
        for at, (key, row) in enumerate(zip(keys, rows, strict=True))
    ]
    kept = numbered[: draw(st.sampled_from([0, 1, len(rows), len(rows)]))]
    key = draw(st.sampled_from([("row number",), ("second key", "row number")]))
    return pa.Table.from_batches([as_batch(schema, kept)], schema), key


def in_order(table: Any) -> list[str]:
    """Rows as texts, in which NaN is NaN, and no two values look the same."""
    return sorted(map(repr, table.to_pylist(maps_as_pydicts="strict")))


def test_what_is_read_is_what_was_written_also_while_a_member_crashes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cluster = Cluster(tmp_path_factory.mktemp("crashing"))
    written = 0

    # An example takes a second or more: what is found is told as it was found.
    @settings(
        max_examples=12,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )
    @given(frames(), st.booleans())
    def come_back(frame_and_key: tuple[Any, tuple[str, ...]], in_value: bool) -> None:
        nonlocal written
        table, key = frame_and_key
        written += 1
        frame = spark.createDataFrame(table)
        chosen = options(cluster, f"m{written}", key=",".join(key))
        if written == 6:
            cluster.kill(cluster.members[2])
        save(frame, chosen | {"keyInValue": str(in_value)})
        found = spark.read.format("phalanx").schema(frame.schema).options(**chosen, ifMissing="empty").load()
        assert in_order(found.toArrow()) == in_order(frame.toArrow())

    try:
        cluster.start(3)
        come_back()
        assert written >= 6
    finally:
        cluster.stop()


# --- tasks that fail --------------------------------------------------------------------------------------------------


def failing(frame: DataFrame, at: int, tries: int) -> DataFrame:
    """The rows, where the task with this one fails behind a batch, so many times; each try says which it was."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()  # type: ignore[union-attr]  # in a task there is one
        for batch in batches:
            keys = batch.column(0)
            yield pyarrow.RecordBatch.from_arrays(
                [keys, pyarrow.array([attempt] * len(keys))], names=["key", "attempt"]
            )
            if at in keys.to_pylist() and attempt < tries:
                raise RuntimeError("planted")

    return frame.mapInArrow(fail, "key long, attempt long")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_whose_task_fails_leaves_the_map_as_it_was(
    spark: SparkSession, members: Cluster, grid: Client, mode: str
) -> None:
    before = {-1: {"attempt": -1}, 5: {"attempt": -1}}
    grid.map("failing").put_all(before)
    with pytest.raises(PySparkException, match="planted"):
        save(failing(spark.range(0, 40_000, 1, 2), 35_000, 3), options(members, "failing"), mode)
    assert content(grid, "failing") == before


def test_of_a_task_that_is_tried_again_only_the_try_that_succeeded_counts(
    spark: SparkSession, members: Cluster, grid: Client
) -> None:
    save(failing(spark.range(0, 40_000, 1, 2), 35_000, 2), options(members, "repeated", keyInValue="false"))
    found = content(grid, "repeated")
    assert len(found) == 40_000
    assert {found[key]["attempt"] for key in range(20_000)} == {0}
    assert {found[key]["attempt"] for key in range(20_000, 40_000)} == {2}


def test_of_a_task_that_runs_twice_at_once_only_one_run_counts(
    spark: SparkSession, members: Cluster, grid: Client
) -> None:
    """What speculation does: both runs stage all their rows, and Spark names one of them."""
    from phalanx_spark.connector.source import PhalanxSource

    frame = spark.range(100).selectExpr("id key", "0 attempt")
    writer = PhalanxSource(options(members, "twice")).writer(frame.schema, overwrite=False)
    runs = [
        writer.write(iter(frame.selectExpr("key", f"{run} attempt").where(f"key % 5 <> {run}").toArrow().to_batches()))
        for run in (1, 2)
    ]
    assert content(grid, "twice") == {}
    writer.commit([runs[1]])
    assert {row["attempt"] for row in content(grid, "twice").values()} == {2}
    assert len(content(grid, "twice")) == 80


# --- a driver that dies -----------------------------------------------------------------------------------------------


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.close()
        print(driver.tail())


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_whose_driver_is_killed_leaves_the_map_as_it_was(
    members: Cluster, grid: Client, tmp_path: Path, mode: str
) -> None:
    before = {number: {"n": -1} for number in range(10)}
    grid.map("orphaned").clear()
    grid.map("orphaned").put_all(before)
    flag, log = tmp_path / "held", tmp_path / "driver.log"
    given_options = json.dumps({"options": options(members, "orphaned"), "mode": mode, "flag": str(flag)})
    with log.open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, str(DRIVER), given_options],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: flag.exists() or driver.poll() is not None, "a task has staged its rows", 300, log.read_text)
        assert driver.poll() is None, log.read_text()
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert content(grid, "orphaned") == before


def test_a_job_whose_driver_is_killed_while_half_of_the_partitions_have_its_rows_is_whole_when_it_is_repeated(
    members: Cluster, grid: Client, tmp_path: Path, drivers: list[Driver]
) -> None:
    """`append` becomes visible partition by partition; each row is the old one or the new one."""
    given_options: dict[str, Any] = {"rows": 1000, "sink": {"options": options(members, "halved", keyInValue="false")}}
    before = {key: {"n": -1} for key in range(-5, 1000)}
    grid.map("halved").put_all(before)
    drivers.append(Driver(tmp_path / "first", **given_options, hold={"where": "inside", "batch": 0}))
    drivers[0].wait_held()
    drivers[0].kill()
    half = content(grid, "halved")
    assert half.keys() == before.keys()
    applied = {key for key, row in half.items() if row["n"] == key}
    assert 0 < len(applied - {-1}) < 1000
    assert all(row["n"] == -1 for key, row in half.items() if key not in applied)
    drivers.append(Driver(tmp_path / "second", **given_options))
    drivers[1].stop()
    assert content(grid, "halved") == {key: {"n": max(key, -1)} for key in before}
