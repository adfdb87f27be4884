"""A driver of a streaming query, or of one write, in a process of its own, for tests that kill it.

    python stream_driver.py '{"master": "local[2]", "source": {...}, "sink": {...}, "checkpoint": "...", ...}'

It says `batch N` on its output for every batch that is done, and ends when the file `stop` is there, or the query failed.
With `hold` it stops once at one batch of the sink: in a task that has staged its rows, before the commit, inside it, when
the rows are the map's in half of the partitions, or behind it. It says so by a file, and waits there to be killed, or to be
let go on by another file. With `rows` it only writes so many.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from phalanx.client.sync import Client
from phalanx.common.hidden_maps import StagedStep
from phalanx.common.ids import Lost
from phalanx.spark import each_batch, session
from phalanx.wire.messages import ChangeStaged
from phalanx_spark.connector.options import SINK, WRITE, parse_options
from phalanx_spark.connector.source import PhalanxSource
from phalanx_spark.connector.stream_writer import PhalanxStreamWriter, StagedEpoch
from phalanx_spark.connector.writer import PhalanxWriter

HOLD = "TEST_STREAM_HOLD"
"""The variable in which the workers of Spark are told where to stop, as JSON."""
QUIET = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


class HeldBatchWriter(PhalanxWriter):
    """A write that stops inside its commit."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        with held_halfway(0):
            super().commit(messages)


class HeldWriter(PhalanxStreamWriter):
    """A sink that stops at one batch."""

    def write(self, iterator: Iterator[Any]) -> StagedEpoch:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        hold("task", int(context.getLocalProperty("streaming.sql.batchId") or -1))
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        hold("before", batchId)
        with held_halfway(batchId):
            super().commit(messages, batchId)
        hold("behind", batchId)


class HeldSource(PhalanxSource):
    """The same format under another name, with that sink."""

    @classmethod
    def name(cls) -> str:
        return "phalanx_held"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        super().writer(schema, overwrite)
        return HeldBatchWriter(parse_options(self.options, WRITE), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        super().streamWriter(schema, overwrite)
        return HeldWriter(parse_options(self.options, SINK), overwrite)


@contextmanager
def held_halfway(batch: int) -> Iterator[None]:
    """Of the requests that make rows the map's, only half are sent before it may stop."""
    plain = Client.call_all

    def call_all(self: Client, requests: list[tuple[int, Any]], within_ms: int = 0, lost: Lost = ()) -> list[Any]:
        if not (isinstance(requests[0][1], ChangeStaged) and requests[0][1].step is StagedStep.APPLY):
            return plain(self, requests, within_ms, lost)
        assert len(requests) > 1, "with one owner there is no half"
        half = len(requests) // 2
        first = plain(self, requests[:half], within_ms, lost)
        hold("inside", batch)
        return first + plain(self, requests[half:], within_ms, lost)

    Client.call_all = call_all  # type: ignore[method-assign]  # in a process that Spark made for this writer
    try:
        yield
    finally:
        Client.call_all = plain  # type: ignore[method-assign]


def hold(where: str, batch: int) -> None:
    """Stop here, if that was asked for and nobody has stopped before, until somebody ends it, or nobody does for long."""
    wish = json.loads(os.environ.get(HOLD, "{}"))
    if (wish.get("where"), wish.get("batch")) != (where, batch):
        return
    try:
        with Path(wish["flag"]).open("x") as flag:
            flag.write(str(os.getpid()))
    except FileExistsError:
        return
    deadline = time.monotonic() + 600
    while not Path(wish["release"]).exists():
        if time.monotonic() > deadline:
            raise AssertionError("nobody ended the wait")
        time.sleep(0.05)


def source(spark: SparkSession, given: dict[str, Any]) -> DataFrame:
    """What the query reads: files of JSON rows, one in each batch, or changes of a map."""
    if "files" in given:
        return spark.readStream.schema(given["schema"]).option("maxFilesPerTrigger", "1").json(given["files"])
    reader = spark.readStream.format("phalanx").options(**given["options"])
    frame = (reader.schema(given["schema"]) if "schema" in given else reader).load()
    return frame.selectExpr(*given.get("select", ["*"]))


def write_rows(spark: SparkSession, rows: int, options: dict[str, str]) -> None:
    """One write, not a stream."""
    frame = spark.range(0, rows, 1, 2).selectExpr("id key", "id n")
    frame.write.format("phalanx_held").options(**options).mode("append").save()
    print("batch 0 is written", flush=True)


def main(given: dict[str, Any]) -> int:
    """Run the query."""
    os.environ[HOLD] = json.dumps(given.get("hold", {}))
    spark = session(given.get("master", "local[2]"), **QUIET | {f"spark.executorEnv.{HOLD}": os.environ[HOLD]})
    spark.dataSource.register(HeldSource)
    if "rows" in given:
        write_rows(spark, given["rows"], given["sink"]["options"])
        return 0
    frame = source(spark, given["source"])
    if "count_by" in given:
        frame = frame.groupBy(given["count_by"]).count()
    sink = given["sink"]
    writer = frame.writeStream.outputMode(sink.get("mode", "append")).option("checkpointLocation", given["checkpoint"])
    if "files" in sink:
        query = writer.format("json").start(sink["files"])
    elif sink.get("each_batch"):
        query = writer.foreachBatch(each_batch(**sink["options"])).start()
    else:
        query = writer.format("phalanx_held").options(**sink["options"]).start()
    print("started", query.id, flush=True)
    done = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > done:
            done = progress["batchId"]
            print("batch", done, progress["durationMs"], flush=True)
        if Path(given["stop"]).exists():
            query.stop()
        time.sleep(0.1)
    failure = query.exception()
    if failure is not None:
        print("failed", str(failure).splitlines()[0], flush=True)
    return failure is not None


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
