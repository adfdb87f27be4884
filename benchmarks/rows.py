"""Rows of one text and five numbers into a map with Spark and back, and what else could be done with them: `./run bench spark`.

All on the same rows, which Spark keeps in memory, in one run on `local[2]`, each contender in turn, round after round:

* the map of one member: a whole job staged (the default), and straight
* redis-server with redis-py and hiredis in tasks: MSET of 1,000 in `foreachPartition`; SCAN and MGET in one task, as a SCAN
  cannot be shared between tasks. Values are the five numbers as MessagePack, packed and unpacked in C
* Parquet on the local disk
* for reading, a data source in Python that yields Arrow batches made in advance: what Spark itself leaves to reach

Rates are of the median round, begun and ended at the driver. Before each round its contender does the same with a few rows:
Spark ends workers that nothing needs for a minute, and new ones import for some tenths of a second. Beside the rates stands the
processor time of all processes that took part: Spark's, its workers' and the server's; what a machine that is busy with other
things does not change. The profile is processor time of one process for each step of a row's way, without Spark.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.plan import MAP, SkippedCase
from benchmarks.processor import ProcessorTime
from benchmarks.servers import Server, members, redis_server, redis_version
from benchmarks.spark import MSET_ROWS, SCAN_COUNT, TASKS, check_spark, use_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter

SCHEMA = "key string, a int, b bigint, c double, d double, e bigint"
STAGED, STRAIGHT, READ = "phalanx, staged", "phalanx, straight", "phalanx"
REDIS, PARQUET, PREPARED = "redis-py", "parquet", "prepared batches"
GOALS = (
    ("write", STRAIGHT, REDIS, 5.0),
    ("write", STAGED, REDIS, 5.0),
    ("write", STAGED, PARQUET, None),
    ("read", READ, REDIS, 15.0),
    ("read", READ, PREPARED, 0.6),
    ("read", READ, PARQUET, None),
)
"""Of whom to whom, and how many times as fast the first is to be."""
FEW, FEW_MAP = 1_000, "few"
"""Rows for a warm-up, and where they go."""
PROFILED_ROWS = 40_000
PROFILED_PARTITIONS = 271


class Rate(msgspec.Struct):
    """One contender."""

    what: str
    name: str
    rows_s: float
    """Of the median round."""
    spread: tuple[float, float]
    cpu_ns: float
    """Processor time of all processes for each row, in the median round."""


class Ratio(msgspec.Struct):
    what: str
    name: str
    other: str
    ratio: float
    cpu_ratio: float
    """How many times as much processor time the other takes."""
    goal: float | None


class Step(msgspec.Struct):
    """One step of a row's way."""

    where: str
    name: str
    ns: float


class RowsReport(msgspec.Struct):
    rows: int
    rounds: int
    ratios: list[Ratio]
    rates: list[Rate]
    profile: list[Step]


Work = Callable[["DataFrame"], None]


def spark(
    rows: Annotated[int, typer.Option(help="How many rows.", min=1_000)] = 2_000_000,
    rounds: Annotated[int, typer.Option(help="How often each contender does all of it.", min=1)] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON object.")] = False,
) -> None:
    """How fast Spark writes rows into a map and reads them, beside Redis, Parquet, and batches made in advance."""
    try:
        report = measure(rows, rounds, Console(stderr=True))
    except SkippedCase as reason:
        raise typer.BadParameter(str(reason), param_hint="spark") from None
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    else:
        _print(report, Console())


def measure(count: int, rounds: int, progress: Console) -> RowsReport:
    """All contenders in turn."""
    check_spark()
    import phalanx.spark

    with contextlib.ExitStack() as stack:
        session = phalanx.spark.session(f"local[{TASKS}]", **{"spark.sql.shuffle.partitions": str(TASKS)})
        stack.callback(session.stop)
        server = stack.enter_context(members(1))[0]
        other = stack.enter_context(redis_server()) if redis_version() is not None else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="phalanx-bench-")))
        frame = _rows(session, count)
        servers = [server.pid] + ([other.pid] if other is not None else [])
        jvm = session.sparkContext._gateway.proc.pid  # type: ignore[union-attr]  # the session has just started it
        spent = stack.enter_context(ProcessorTime([jvm, *servers]))
        times: dict[tuple[str, str], list[float]] = {}
        cpu: dict[tuple[str, str], list[float]] = {}
        contenders = _contenders(server, other, folder / "all", MAP, count)
        few, warm_up = _rows(session, FEW), _contenders(server, other, folder / "few", FEW_MAP, FEW)
        for _ in range(rounds + 1):  # the first one warms up: workers start, code is compiled, tables grow
            for (what, name), work in contenders.items():
                progress.print(f"{what}: {name}", style="dim")
                if (what, name) != ("read", REDIS):  # It would go through all keys.
                    warm_up[what, name](few)
                began, used = time.perf_counter(), spent.seconds()
                work(frame)
                times.setdefault((what, name), []).append(time.perf_counter() - began)
                cpu.setdefault((what, name), []).append(spent.seconds() - used)
        _check(server, count)
        profile = _profile(frame)
    rates = [
        Rate(
            what,
            name,
            count / statistics.median(took[1:]),
            (count / max(took[1:]), count / min(took[1:])),
            statistics.median(cpu[what, name][1:]) / count * 1e9,
        )
        for (what, name), took in times.items()
    ]
    found = {(rate.what, rate.name): rate for rate in rates}
    ratios = [
        Ratio(
            what,
            name,
            than,
            found[what, name].rows_s / found[what, than].rows_s,
            found[what, than].cpu_ns / found[what, name].cpu_ns,
            goal,
        )
        for what, name, than, goal in GOALS
        if (what, name) in found and (what, than) in found
    ]
    return RowsReport(count, rounds, ratios, rates, profile)


def _rows(session: Any, count: int) -> DataFrame:
    """The rows, made once and kept by Spark."""
    frame: DataFrame = (
        session.range(0, count, 1, TASKS)
        .selectExpr(
            "format_string('key:%012d', id) as key",
            "cast(hash(id) as int) as a",
            "xxhash64(id) as b",
            "id / 7.0D as c",
            "rand(7) as d",
            "id % 1000 as e",
        )
        .cache()
    )
    frame.count()
    return frame


def _contenders(
    server: Server, other: Server | None, folder: Path, name: str, count: int
) -> dict[tuple[str, str], Work]:
    def write(staged: str) -> Work:
        def work(frame: DataFrame) -> None:
            writer: DataFrameWriter = frame.write.format("phalanx").option("members", server.address)
            writer.option("map", name).option("staged", staged).mode("append").save()

        return work

    def read(frame: DataFrame) -> None:
        reader: DataFrameReader = frame.sparkSession.read.format("phalanx").schema(SCHEMA)
        use_all(reader.option("members", server.address).option("map", name).load())

    def prepared(frame: DataFrame) -> None:
        frame.sparkSession.dataSource.register(prepared_source())
        use_all(frame.sparkSession.read.format("prepared").option("rows", count // TASKS).load())

    files = str(folder / "rows")
    found: dict[tuple[str, str], Work] = {("write", STRAIGHT): write("false"), ("write", STAGED): write("true")}
    if other is not None:
        port = other.port
        found["write", REDIS] = lambda frame: frame.foreachPartition(lambda rows: _mset(rows, port))
    found["write", PARQUET] = lambda frame: frame.write.mode("overwrite").parquet(files)
    found["read", READ] = read
    if other is not None:
        found["read", REDIS] = lambda frame: use_all(
            frame.sparkSession.sparkContext.parallelize([0], 1).mapPartitions(lambda _: _mget(port)).toDF(SCHEMA)
        )
    found["read", PREPARED] = prepared
    found["read", PARQUET] = lambda frame: use_all(frame.sparkSession.read.parquet(files))
    return found


def _mset(rows: Iterable[Any], port: int) -> None:
    import redis

    encode = msgspec.msgpack.Encoder().encode
    with redis.Redis(port=port) as client:
        batch: dict[str, bytes] = {}
        for key, *numbers in rows:
            batch[key] = encode(numbers)
            if len(batch) == MSET_ROWS:
                client.mset(batch)
                batch = {}
        if batch:
            client.mset(batch)


def _mget(port: int) -> Iterator[tuple[Any, ...]]:
    import redis

    decode = msgspec.msgpack.Decoder().decode
    with redis.Redis(port=port) as client:
        cursor: Any = "0"
        while cursor != 0:
            cursor, keys = client.scan(cursor, count=SCAN_COUNT)
            for key, value in zip(keys, client.mget(keys) if keys else (), strict=True):
                yield (key.decode(), *decode(value))


def prepared_source() -> Any:
    """A data source that yields one batch again and again. Made here, because Spark is not there for every bench."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class PreparedReader(DataSourceReader):
        def __init__(self, rows: int) -> None:
            self.rows = rows

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(task) for task in range(TASKS)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            size = 16_384
            numbers = list(range(size))
            columns = [
                pa.array([f"key:{number:012d}" for number in numbers]),
                pa.array(numbers, pa.int32()),
                pa.array(numbers, pa.int64()),
                pa.array(numbers, pa.float64()),
                pa.array(numbers, pa.float64()),
                pa.array(numbers, pa.int64()),
            ]
            batch = pa.RecordBatch.from_arrays(columns, names=["key", "a", "b", "c", "d", "e"])
            for start in range(0, self.rows, size):
                yield batch.slice(0, min(size, self.rows - start))

    class PreparedSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "prepared"

        def schema(self) -> str:
            return SCHEMA

        def reader(self, schema: Any) -> DataSourceReader:
            return PreparedReader(int(self.options["rows"]))

    return PreparedSource


def _check(server: Server, count: int) -> None:
    """The map must hold what was written, or the figures are worth nothing."""
    import phalanx

    with phalanx.Client(server.address) as client:
        stored = client.map(MAP).size()
    if stored != count:
        raise phalanx.PhalanxError(f"Spark wrote {count} rows, but the map holds {stored}")


# --- where the time of a row goes -----------------------------------------------------------------------------------


def _profile(frame: DataFrame) -> list[Step]:
    from phalanx.codec.rows import extents_of, unpack_rows
    from phalanx.common.clock import STAMP_BYTES
    from phalanx.grid.replica.map_store import MapStore
    from phalanx.grid.serving.packing import NOTHING, PackedPage, PageSpec, packed_page
    from phalanx.wire.codec import encode_frame, message_decoder, reply_decoder
    from phalanx.wire.messages import PackedReply, PackedRows, PutPacked
    from phalanx_spark.columns.packing import rows_by_partition
    from phalanx_spark.columns.pages import ScannedPage
    from phalanx_spark.connector.keys import encode_keys
    from phalanx_spark.connector.options import READ as USE
    from phalanx_spark.connector.options import parse_options
    from phalanx_spark.connector.rows import decode_entries, encode_rows

    (batch,) = frame.limit(PROFILED_ROWS).toArrow().combine_chunks().to_batches()
    options = parse_options({"members": "127.0.0.1:1", "map": MAP}, USE)
    keys, values = encode_keys(batch, options), encode_rows(batch, options)
    parts = rows_by_partition(keys, values, PROFILED_PARTITIONS)
    request = PutPacked(1, MAP, tuple(PackedRows(*part) for part in parts.items()), PROFILED_PARTITIONS, 0)
    frame_in = encode_frame(request)[4:]
    stamp = bytes(STAMP_BYTES)
    unpacked = [unpack_rows(rows, 0, stamp) for rows in parts.values()]
    stores = [MapStore() for _ in parts]

    def store() -> None:
        for each, rows in zip(stores, unpacked, strict=True):
            each.put_many(*rows, 0, 0)

    store()

    def make_pages() -> list[PackedPage]:
        return [packed_page(each, PageSpec(b"", 1 << 30), 0) or NOTHING for each in stores]

    pages = make_pages()
    replies = [encode_frame(PackedReply(1, *page))[4:] for page in pages]

    def decode() -> list[Any]:
        keys = ScannedPage.from_packed([page[:2] for page in pages], 0)
        values = ScannedPage.from_packed([page[2:4] for page in pages], STAMP_BYTES)
        return list(decode_entries(keys, values, batch.schema, options))

    return [
        Step("task", "encode keys", _ns(lambda: encode_keys(batch, options))),
        Step("task", "encode rows", _ns(lambda: encode_rows(batch, options))),
        Step("task", "pack by partition", _ns(lambda: rows_by_partition(keys, values, PROFILED_PARTITIONS))),
        Step("task", "make the request", _ns(lambda: encode_frame(request))),
        Step("member", "take the request apart", _ns(lambda: message_decoder.decode(frame_in))),
        Step("member", "check sizes", _ns(lambda: [extents_of(rows) for rows in parts.values()])),
        Step("member", "unpack and stamp", _ns(lambda: [unpack_rows(rows, 0, stamp) for rows in parts.values()])),
        Step("member", "store", _ns(store)),
        Step("member", "make pages", _ns(make_pages)),
        Step("member", "make replies", _ns(lambda: [encode_frame(PackedReply(1, *page)) for page in pages])),
        Step("task", "take replies apart", _ns(lambda: [reply_decoder.decode(reply) for reply in replies])),
        Step("task", "decode rows", _ns(decode)),
    ]


def _ns(work: Callable[[], object]) -> float:
    """Processor time for each row, the best of some tries."""
    best = float("inf")
    for _ in range(7):
        began = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - began)
    return best / PROFILED_ROWS


# --- report ---------------------------------------------------------------------------------------------------------


def _print(report: RowsReport, console: Console) -> None:
    ratios = Table("", "", "times as fast as", "", "goal", "less processor time", box=SIMPLE_HEAD)
    for each in report.ratios:
        goal = "" if each.goal is None else f"{each.goal:g} {'met' if each.ratio >= each.goal else 'MISSED'}"
        ratios.add_row(each.what, each.name, each.other, f"{each.ratio:.2f}", goal, f"{each.cpu_ratio:.2f} times")
    rates = Table("", "", "rows/s", "slowest", "fastest", "processor ns/row", box=SIMPLE_HEAD)
    for rate in report.rates:
        low, high = rate.spread
        figures = [f"{each:,.0f}" for each in (rate.rows_s, low, high, rate.cpu_ns)]
        rates.add_row(rate.what, rate.name, *figures)
    steps = Table("processor time of a row", "", "ns", box=SIMPLE_HEAD)
    for step in report.profile:
        steps.add_row(step.where, step.name, f"{step.ns:,.0f}")
    console.print(f"{report.rows:,} rows, local[{TASKS}], {report.rounds} rounds")
    for table in (ratios, rates, steps):
        console.print(table)
    if shutil.which("redis-server") is None:
        console.print("Redis is not here: install redis-server.")
