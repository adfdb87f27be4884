"""Spark in local mode: a DataFrame into a map and back, against redis-py in tasks, with one server process each.

Rows are a key of 16 characters and a text of 100. Writing: `df.write.format("phalanx")` against MSET of 1000 rows at a
time in `foreachPartition`. Reading, with every column of every row brought to Spark (format `noop`): the source with
its schema given against one task that goes through the keys with SCAN and fetches each page with MGET, since a SCAN
cannot be shared between tasks. Both sides' DataFrames have the same rows, and nothing is converted but text.

The processor time of Spark itself is not counted: its processes come and go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import phalanx
from benchmarks.measure import Contender, compare
from benchmarks.plan import MAP, VALUE_BYTES, Plan, SkippedCase
from benchmarks.results import Comparison, Goal
from benchmarks.servers import Server, members, redis_server
from phalanx.common.errors import UsageError
from phalanx_spark.requirements import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITE_GOAL = Goal(least=1.3)
READ_GOAL = Goal(least=5.0)
SCHEMA = "key string, value string"
MSET_ROWS = 1000
SCAN_COUNT = 10_000
"""Keys that one SCAN is asked to return: far more than usual, in favour of Redis."""
TASKS = 2
MOST_ROUNDS = 5


async def run_spark(plan: Plan) -> list[Comparison]:
    """Rows written and read in a second."""
    check_spark()
    with contextlib.ExitStack() as stack:
        spark = _session(stack)
        server = stack.enter_context(members(1))[0]
        other = stack.enter_context(redis_server()) if plan.with_redis else None
        rows = _rows(spark, plan.spark_rows)
        found = []
        for name, goal, ours, theirs in (
            ("Spark write", WRITE_GOAL, _our_write, _their_write),
            ("Spark read", READ_GOAL, _our_read, _their_read),
        ):
            comparison = await compare(
                name,
                goal,
                Contender("phalanx source", _counted(ours, rows, server, plan.spark_rows), [server.pid]),
                Contender("redis-py", _counted(theirs, rows, other, plan.spark_rows), [other.pid]) if other else None,
                rounds=min(plan.rounds, MOST_ROUNDS),
                seconds=plan.round_s,
                unit="rows/s",
            )
            for side in (comparison.ours, comparison.theirs):
                if side is not None:
                    side.client_cpu = None
            comparison.remark = f"{plan.spark_rows:,} rows a round, local[{TASKS}]"
            found.append(comparison)
        _check(server, plan.spark_rows)
        return found


def check_spark() -> None:
    """Raises `SkippedCase` where Spark cannot start."""
    try:
        require_spark("this case")
    except UsageError as error:
        raise SkippedCase(str(error)) from None


def _session(stack: contextlib.ExitStack) -> SparkSession:
    import phalanx.spark

    spark = phalanx.spark.session(f"local[{TASKS}]", **{"spark.sql.shuffle.partitions": str(TASKS)})
    stack.callback(spark.stop)
    return spark


def _rows(spark: SparkSession, count: int) -> DataFrame:
    """The rows, made once and kept by Spark."""
    numbers = spark.range(0, count, 1, TASKS)
    rows = numbers.selectExpr(
        "format_string('key:%012d', id) as key", f"rpad(cast(id as string), {VALUE_BYTES}, 'abcdefghij') as value"
    ).cache()
    rows.count()
    return rows


def _counted(work: Callable[[DataFrame, int], None], rows: DataFrame, server: Server | None, count: int) -> Any:
    """A contender whose round is all rows once, however long that takes."""

    async def run(seconds: float) -> tuple[int, list[int]]:
        work(rows, server.port if server is not None else 0)
        return count, []

    return run


def _our_write(rows: DataFrame, port: int) -> None:
    rows.write.format("phalanx").option("members", f"127.0.0.1:{port}").option("map", MAP).mode("append").save()


def _our_read(rows: DataFrame, port: int) -> None:
    reader = rows.sparkSession.read.format("phalanx").option("members", f"127.0.0.1:{port}").option("map", MAP)
    use_all(reader.schema(SCHEMA).load())


def _their_write(rows: DataFrame, port: int) -> None:
    def write(partition: Iterator[Any]) -> None:
        import redis

        with redis.Redis(port=port) as client:
            batch: dict[str, str] = {}
            for row in partition:
                batch[row.key] = row.value
                if len(batch) == MSET_ROWS:
                    client.mset(batch)
                    batch = {}
            if batch:
                client.mset(batch)

    rows.foreachPartition(write)


def _their_read(rows: DataFrame, port: int) -> None:
    def read(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        import redis

        with redis.Redis(port=port, decode_responses=True) as client:
            cursor: Any = "0"
            while cursor != 0:
                cursor, keys = client.scan(cursor, count=SCAN_COUNT)
                if keys:
                    yield from zip(keys, client.mget(keys), strict=True)

    spark = rows.sparkSession
    use_all(spark.sparkContext.parallelize([0], 1).mapPartitions(read).toDF(SCHEMA))


def use_all(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _check(server: Server, count: int) -> None:
    """The map must hold what was written, or the figures are worth nothing."""
    with phalanx.Client(server.address) as client:
        stored = client.map(MAP).size()
    if stored != count:
        raise phalanx.PhalanxError(f"Spark wrote {count} rows, but the map holds {stored}")
