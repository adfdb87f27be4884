"""Reads and writes that go on while a member crashes."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from phalanx.spark import register
from support.processes import Cluster, wait_for

pytestmark = pytest.mark.long

ROWS = 80_000


def options(cluster: Cluster) -> dict[str, str]:
    return {"members": cluster.addresses, "cluster": cluster.name, "map": "flights"}


def held_up(spark: SparkSession, flag: Path) -> DataFrame:
    """Rows of two tasks, each of which stops behind three quarters of them until the file is there.

    What has passed by then is more than the batches and buffers between a task and the grid can hold back.
    """

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        passed = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 1000):
                while passed >= ROWS * 3 // 8 and not flag.exists():
                    time.sleep(0.02)
                piece = batch.slice(start, 1000)
                passed += piece.num_rows
                yield piece

    frame = spark.range(0, ROWS, 1, 2).selectExpr("id key", "id * 3 n", "repeat('x', 300) padding")
    return frame.mapInArrow(hold, frame.schema)


def test_a_write_goes_on_when_a_member_crashes(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """One without staging: its rows are seen as they come."""
    cluster.start(3)
    flag = tmp_path / "go on"
    frame = held_up(spark, flag)
    errors: list[BaseException] = []

    def write() -> None:
        try:
            register(spark)
            frame.write.format("phalanx").options(**options(cluster), staged="false").mode("append").save()
        except BaseException as error:
            errors.append(error)

    with cluster.client() as grid:
        flights = grid.map("flights")
        writing = threading.Thread(target=write)
        writing.start()
        try:
            wait_for(lambda: bool(errors) or flights.size() > 0, "the first batches are stored", 60)
            cluster.kill(cluster.members[1])
        finally:
            flag.touch()
            writing.join()
        assert [str(error) for error in errors] == []
        assert flights.size() == ROWS
        assert flights[ROWS - 1]["n"] == (ROWS - 1) * 3


def test_a_read_sees_each_entry_once_while_a_member_crashes_and_another_one_joins(
    spark: SparkSession, cluster: Cluster
) -> None:
    cluster.start(3)
    with cluster.client() as grid:
        grid.map("flights").put_all({number: {"n": number * 3} for number in range(ROWS)})
    cluster.wait_redundant()
    frame = spark.read.format("phalanx").options(**options(cluster), numPartitions="12").load()
    rows = frame.toLocalIterator()  # one job for each task, as the rows are asked for
    found = [next(rows) for _ in range(ROWS // 4)]
    cluster.kill(cluster.members[2])
    found += [next(rows) for _ in range(ROWS // 4)]
    (joined,) = cluster.start(1)
    cluster.wait_redundant()
    assert joined.address in {str(owner).partition("/")[0] for owner in cluster.table_of(joined).table.owners()}
    found += rows
    assert sorted(row.key for row in found) == list(range(ROWS))
    assert all(row.n == row.key * 3 for row in found)


def test_a_snapshot_is_read_whole_while_its_map_changes_and_a_member_crashes(
    spark: SparkSession, cluster: Cluster
) -> None:
    cluster.start(3)
    with cluster.client() as grid:
        flights = grid.map("flights")
        flights.put_all({number: {"n": 1} for number in range(ROWS)})
        cluster.wait_redundant()
        frame = spark.read.format("phalanx").options(**options(cluster), numPartitions="12", snapshot="true").load()
        rows = frame.toLocalIterator()
        found = [next(rows) for _ in range(ROWS // 4)]
        flights.put_all({number: {"n": 2} for number in range(ROWS + 10_000)})
        for number in range(100):
            flights.remove(number)
        cluster.kill(cluster.members[2])
        found += rows
    assert sorted(row.key for row in found) == list(range(ROWS))
    assert {row.n for row in found} == {1}
