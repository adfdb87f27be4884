"""What Spark has written, reads and is writing when all members are killed, and are back with their folders."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from phalanx.spark import register
from spark.streams import Streams
from support.processes import Cluster, wait_for
from support.stored_clusters import StoredCluster

ROWS = 2_000
MARK = {"n": -1}
"""What somebody else has written in the meantime."""


@pytest.fixture
def stored(cluster: Cluster) -> StoredCluster:
    """Two members with folders, and one backup."""
    made = StoredCluster(cluster, "--backup-count=1", "--partition-count=31")
    made.start(range(2))
    return made


class HeldWrite:
    """A staged write of two tasks. One has staged its rows when `wait_half` returns; the other one stands until it is released."""

    def __init__(self, spark: SparkSession, options: dict[str, str], flag: Path) -> None:
        self._spark = spark
        self._flag = flag
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._write, args=(options,))
        self._thread.start()

    def wait_half(self) -> None:
        """Until the rows of one task are staged."""
        wait_for(lambda: bool(self._errors) or self._done() == 1, "one task is done", 60)

    def _done(self) -> int:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numCompletedTasks for stage in stages if stage is not None)

    def end(self) -> None:
        """Let it go on, and wait for its end; raises what went wrong."""
        self._flag.touch()
        self._thread.join()
        for error in self._errors:
            raise error

    def _write(self, options: dict[str, str]) -> None:
        try:
            register(self._spark)  # in the thread that writes
            held(self._spark, self._flag).write.format("phalanx").options(**options).mode("append").save()
        except BaseException as error:
            self._errors.append(error)


def held(spark: SparkSession, flag: Path) -> DataFrame:
    """Rows of two tasks; the second one gives none before the file is there."""

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            while batch[0][0].as_py() != 0 and not flag.exists():
                time.sleep(0.02)
            yield batch

    frame = spark.range(0, ROWS, 1, 2).selectExpr("id key", "id n")
    return frame.mapInArrow(hold, frame.schema)


@pytest.mark.timeout(300)
def test_streams_go_on_and_a_job_that_had_begun_is_done_when_all_members_were_killed(
    spark: SparkSession, stored: StoredCluster, tmp_path: Path
) -> None:
    cluster = stored.cluster
    streams = Streams(spark, cluster, tmp_path)
    streams.journal("followed", 1000)
    changes, sunk = streams.changes("followed"), streams.files("key string, n bigint")
    with cluster.client() as grid:
        grid.map("followed").put_all({f"k{number}": {"n": number} for number in range(50)})
        assert len(streams.collect(changes)) == 50
        for number in range(2):
            streams.drop([{"key": f"b{number}", "n": number}, {"key": "last", "n": number}])
        streams.write(sunk, "sunk")
        grid.map("sunk")["last"] = MARK
        grid.map("followed").remove("k0")
    job = HeldWrite(spark, streams.options | {"map": "staged"}, tmp_path / "go on")
    try:
        job.wait_half()
        stored.kill()
        stored.start((1, 0))
        with cluster.client() as grid:
            assert grid.map("staged").size() == 0
    finally:
        job.end()
    with cluster.client() as grid:
        assert {key: value["n"] for key, value in grid.map("staged").items()} == {n: n for n in range(ROWS)}
        grid.map("followed")["k1"] = {"n": 100}
        rows = streams.collect(changes)
        assert sorted((row.kind, row.key, row.old.n) for row in rows) == [("removed", "k0", 0), ("updated", "k1", 1)]
        repeat_last_batch(tmp_path / "checkpoint-sunk")
        streams.drop([{"key": "b2", "n": 2}])
        streams.write(sunk, "sunk")
        assert {key: value["n"] for key, value in grid.map("sunk").items()} == {"b0": 0, "b1": 1, "b2": 2, "last": -1}


def repeat_last_batch(checkpoint: Path) -> None:
    """Let Spark begin with its last batch again, as after the crash of a driver that had not noted the end of it."""
    last = max(int(each.name) for each in (checkpoint / "commits").glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink()
