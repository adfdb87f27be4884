"""Speculation: Spark starts a second copy of a slow task beside the first, and the map holds each row once, of one of them."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from phalanx import Client
from phalanx.spark import session
from spark.standalone import SMALL, Standalone
from support.processes import Cluster, wait_for
from support.sparks import SHARED

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROWS = 40_000
SLOW = range(ROWS // 2, ROWS)
"""The keys of the task that gets a second copy."""
HOSTS = ("127.0.0.1", "127.0.0.2")
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
}
"""One of two tasks has ended: the other one gets a copy as soon as it takes longer."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two workers of one core each, on hosts of their own."""
    SHARED.stop()
    standalone = Standalone(tmp_path_factory.mktemp("standalone"), HOSTS)
    try:
        made = session(
            standalone.url,
            **EAGER,
            **{"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SMALL, "spark.driver.memory": "1g"},
        )
        yield made
        made.stop()
    finally:
        standalone.stop()


@dataclass(frozen=True)
class Copy:
    """What Spark says of one try of the slow task."""

    number: int
    speculative: bool
    host: str
    status: str


def made_to_wait() -> Callable[..., None]:
    """What waits for files, in a worker: it ends when all are there, or nobody makes them for long, or its process ends.

    Made in a function, so that it is sent to workers as it is: they do not find this module.
    """

    def wait(*files: Path) -> None:
        deadline = time.monotonic() + 300
        while not all(file.exists() for file in files):
            if time.monotonic() > deadline:
                raise AssertionError("nobody ended the wait")
            time.sleep(0.02)

    return wait


def slowed(frame: DataFrame, notes: Path, holds: dict[int, str]) -> DataFrame:
    """The rows, each with the copy that made it. A copy in `holds` waits before its last batch for the file named there.

    What it has passed on by then is staged: a batch is larger than what a task keeps to itself.
    """
    wait = made_to_wait()

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        copy = TaskContext.get().attemptNumber()  # type: ignore[union-attr]  # in a task there is one
        for batch in batches:
            keys = batch.column(0).to_pylist()
            if keys[0] >= ROWS // 2 and keys[-1] == ROWS - 1 and copy in holds:
                (notes / f"holds-{copy}").touch()
                wait(notes / holds[copy])
            copies = pyarrow.array([copy] * batch.num_rows)
            yield pyarrow.RecordBatch.from_arrays([*batch.columns, copies], names=[*batch.schema.names, "copy"])

    return frame.mapInArrow(hold, "key long, n long, padding string, copy long")


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("id key", "id * 3 n", "repeat('x', 1000) padding")


def options(members: Cluster, name: str) -> dict[str, str]:
    return {"members": members.addresses, "cluster": members.name, "map": name}


def copies_of_slow(spark: SparkSession, group: str) -> list[Copy]:
    """When all have ended."""
    store = spark.sparkContext._jsc.sc().statusStore()
    tracker = spark.sparkContext.statusTracker()
    (job,) = tracker.getJobIdsForGroup(group)
    about_job = tracker.getJobInfo(job)
    assert about_job is not None
    (stage,) = about_job.stageIds

    def ended() -> list[Copy]:
        tasks = store.taskList(stage, 0, 100)
        found = [tasks.apply(at) for at in range(tasks.size())]
        copies = [Copy(t.attempt(), t.speculative(), t.host(), t.status()) for t in found if t.index() == 1]
        return [] if any(copy.status == "RUNNING" for copy in copies) else copies

    return sorted(wait_for(ended, "all copies have ended", 60), key=lambda copy: copy.number)


def check(grid: Client, name: str, mode: str, before: dict[int, Any]) -> set[int]:
    """The map holds exactly the rows; the copies that the slow task's rows are of."""
    found = dict(grid.map(name).iter_items())
    if mode == "append":
        assert {key: found.pop(key) for key in before if key < 0} == {key: before[key] for key in before if key < 0}
    assert sorted(found) == list(range(ROWS))
    assert all(row["n"] == key * 3 and row["key"] == key for key, row in found.items())
    return {found[key]["copy"] for key in SLOW}


BEFORE = {-1: {"n": -1}, 5: {"n": -1}, ROWS - 1: {"n": -1}}


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("winner", [1, 0])
def test_rows_are_those_of_the_copy_that_ends_first(
    spark: SparkSession, members: Cluster, grid: Client, tmp_path: Path, winner: int, mode: str
) -> None:
    """The other copy has staged half of its rows by then; Spark kills it."""
    name = f"first-{winner}-{mode}"
    grid.map(name).put_all(BEFORE)
    # The first copy goes on when the second one stands still, or never.
    holds = {0: "never"} if winner else {0: "holds-1", 1: "never"}
    spark.sparkContext.setJobGroup(name, name)
    frame = slowed(rows(spark), tmp_path, holds)
    frame.write.format("phalanx").options(**options(members, name)).mode(mode).save()
    assert check(grid, name, mode, BEFORE) == {winner}
    first, second = copies_of_slow(spark, name)
    assert (first.speculative, second.speculative) == (False, True)
    assert {first.host, second.host} == set(HOSTS)
    ended = [first.status, second.status]
    assert ended[winner] == "SUCCESS"
    assert ended[1 - winner] == "KILLED"


def meeting_source(notes: Path) -> type:
    """The format under another name: two copies of the slow task that have staged all their rows wait for each other."""
    wait = made_to_wait()
    from phalanx_spark.connector.options import WRITE, parse_options
    from phalanx_spark.connector.source import PhalanxSource
    from phalanx_spark.connector.writer import PhalanxWriter

    class MeetingWriter(PhalanxWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            from pyspark import TaskContext

            written = super().write(iterator)
            context = TaskContext.get()
            if context.partitionId() == 1:  # type: ignore[union-attr]  # in a task there is one
                (notes / f"staged-{context.attemptNumber()}-{written.rows}").touch()  # type: ignore[union-attr]
                wait(*(notes / f"staged-{copy}-{ROWS // 2}" for copy in (0, 1)))
            return written

    class MeetingSource(PhalanxSource):
        @classmethod
        def name(cls) -> str:
            return "phalanx_meeting"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
            super().writer(schema, overwrite)
            return MeetingWriter(parse_options(self.options, WRITE), overwrite)

    return MeetingSource


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_of_two_copies_that_have_both_staged_all_their_rows_one_counts(
    spark: SparkSession, members: Cluster, grid: Client, tmp_path: Path, mode: str
) -> None:
    name = f"both-{mode}"
    grid.map(name).put_all(BEFORE)
    spark.dataSource.register(meeting_source(tmp_path))
    spark.sparkContext.setJobGroup(name, name)
    frame = slowed(rows(spark), tmp_path, {})
    frame.write.format("phalanx_meeting").options(**options(members, name)).mode(mode).save()
    winners = check(grid, name, mode, BEFORE)
    assert len(winners) == 1
    assert sorted(os.listdir(tmp_path)) == [f"staged-{copy}-{ROWS // 2}" for copy in (0, 1)]
    first, second = copies_of_slow(spark, name)
    assert (first.speculative, second.speculative) == (False, True)
    assert [copy.number for copy in (first, second) if copy.status == "SUCCESS"] == sorted(winners)
