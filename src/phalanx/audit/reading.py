"""Reads event logs: files of JSON lines (plain or compressed, rotated, of many members and days) and Parquet.

* A line that is no event is counted, kept with its file and line number, and left out; it ends nothing. A killed member
  may leave half a line behind, a full disk more of them.
* Lines are numbered without a pass of their own: a reader's rows are numbered within each piece of a file that it reads,
  and pieces know where they begin.
* The same file twice (a copy beside its original, one still there after it was compressed) is one: of members that have
  several files which overlap in time, equal lines count once.
"""

from __future__ import annotations

import functools
from pathlib import Path
from urllib.parse import unquote

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from phalanx.audit.schema import TRACE_DDL
from phalanx.audit.scratch import Scratch, small
from phalanx.common.errors import UsageError

TOLD_BAD_LINES = 20
SHOWN_CHARACTERS = 200
NAMES = "*.{jsonl,jsonl.*,jsonl-*,parquet}"
"""Which files of a folder are read; others are none of ours."""

_ENVELOPE = "at bigint, cluster string, member string, event string"
_FIELDS = """
    view_version bigint, maker string, master string, members array<string>, number bigint, voters array<string>,
    suspect string, suspected array<string>, removed string, reason string, rule string, joiner string, leaver string, claimer string,
    accepted boolean, replaced array<string>, outcome string, left_out array<string>, `by` string, what string,
    partition int, kind string, source string, source_current_index int, source_new_index int,
    destination string, destination_current_index int, destination_new_index int, owner string,
    current_replica_index int, new_replica_index int,
    partition_version bigint, table_version bigint, took_ms bigint, entries bigint, committed boolean, endpoint string,
    replicas array<string>, replicas_now array<string>, rows array<array<int>>, gone array<string>, promoted array<int>,
    lost array<int>, rolled_back array<int>, adopted array<int>, before string, after bigint,
    away_ms bigint, former string, refuses boolean, writes boolean, map string
"""
"""What the audit looks at of all kinds of events. A field that has another type in another kind is read as text."""


class BadLine(msgspec.Struct, frozen=True):
    """One that is no event."""

    log: str
    line: int
    why: str
    text: str
    """Cut if it is long."""


class Reading(msgspec.Struct, frozen=True):
    """What was read."""

    events: DataFrame
    """`history`, `log`, `line`, `at`, `member`, `event` and the fields; the order of one member's events is `at`, `place`,
    `line`."""
    files: int
    count: int
    bad_count: int
    bad: tuple[BadLine, ...]
    """The first ones, by file and line."""
    empty_logs: tuple[str, ...]
    """Files without a line: of members that recorded nothing."""
    notes: tuple[str, ...]


def read_events(scratch: Scratch, folder: str) -> Reading:
    """All events of a folder, kept in the scratch. Raises `UsageError` if there are none."""
    spark = scratch.spark
    files = _files_in(spark, folder)
    if not files:
        raise UsageError(f"{folder} holds no event log (*.jsonl, *.jsonl.gz, *.parquet): give the folder that members had "
                         "as --event-log, or one with traces of simulated histories")  # fmt: skip
    try:
        return _read(scratch, folder, files, skips_damage=False)
    except PySparkException as error:
        damage = _one_line(error)
    told = f"a file is damaged, and what stands behind the damage is left out: {damage}"
    try:
        read = _read(scratch, folder, files, skips_damage=True)
    except PySparkException as error:
        raise UsageError(f"{folder} cannot be read: {_one_line(error)}") from error
    return msgspec.structs.replace(read, notes=(*read.notes, told))


def shown_log(log: str, folder: str) -> str:
    """A file as people name it: by its place in the folder."""
    path = unquote(log).removeprefix("file://").removeprefix("file:")
    return path.partition(folder.rstrip("/") + "/")[2] or path


def _files_in(spark: SparkSession, folder: str) -> dict[str, int]:
    """Path to size. Their content is not read: the format has it in a column that nobody asks for."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", NAMES)
    try:
        rows = reader.load(folder).select("path", "length").collect()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error):
            raise UsageError(f"there is no folder {folder}") from None
        raise UsageError(f"{folder} cannot be read: {_one_line(error)}") from error
    except PySparkException as error:
        raise UsageError(f"{folder} cannot be read: {_one_line(error)}") from error
    return {row.path: row.length for row in sorted(rows)} | _empty_in(Path(folder))


def _empty_in(folder: Path) -> dict[str, int]:
    """Spark leaves out files without a byte. Where the folder is one of this machine they are found all the same: they tell
    that a member recorded nothing."""
    found = (path for path in folder.rglob("*.jsonl*") if path.is_file() and not path.stat().st_size)
    return {f"file://{path.absolute()}": 0 for path in sorted(found)}


def _read(scratch: Scratch, folder: str, files: dict[str, int], *, skips_damage: bool) -> Reading:
    parts, spark = [], scratch.spark
    lines = [path for path, size in files.items() if size and not path.endswith(".parquet")]
    tables = [path for path, size in files.items() if size and path.endswith(".parquet")]
    if lines:
        parts.append(_lines(spark, lines, skips_damage))
    if tables:
        parts.append(_tables(spark, tables, skips_damage))
    if not parts:
        raise UsageError(f"{folder}: its {len(files)} event logs are empty")
    parsed = scratch.save_events(functools.reduce(DataFrame.unionByName, parts), "events")
    blocks, bad_count, good = _blocks(spark, parsed)
    numbered = parsed.join(F.broadcast(blocks), ["log", "block"])
    line = F.when(F.col("block") < 0, F.col("id")).otherwise(F.col("id") - F.col("first") + F.col("above") + 1)
    numbered = numbered.withColumn("line", line).drop("block", "id", "first", "above")
    told = numbered.where("bad is not null").orderBy("log", "line").limit(TOLD_BAD_LINES).collect() if bad_count else []
    bad = tuple(BadLine(shown_log(row.log, folder), row.line, row.bad, row.text) for row in told)
    if not good:
        first = f"; the first of them: {bad[0].log} line {bad[0].line}: {bad[0].why}" if bad else ""
        raise UsageError(f"{folder} holds no event: {bad_count} lines are none{first}")
    events, copies = _once(numbered.where("bad is null and event is not null").drop("bad", "text"))
    if copies:  # what tells copies apart is worked out once, and not by every query again
        events = scratch.save_events(events, "once")
    notes = (f"{copies} lines stand in more than one file, and count once",) if copies else ()
    empty = tuple(shown_log(path, folder) for path, size in files.items() if not size)
    return Reading(events, len(files), good - copies, bad_count, bad, empty, notes)


def _blocks(spark: SparkSession, parsed: DataFrame) -> tuple[DataFrame, int, int]:
    """Of each piece of a file the first number, the lines above it, and the `place` of the file: when it begins. And how
    many lines are bad, and good."""
    found = parsed.groupBy("log", "block").agg(
        F.min("id").alias("first"), F.count(F.lit(1)).alias("lines"), F.min("at").alias("begins"),
        F.count("bad").alias("bad"), F.count(F.when(F.col("bad").isNull(), F.col("event"))).alias("good"),
    ).collect()  # fmt: skip
    begins: dict[str, int] = {}
    for row in found:
        if row.begins is not None:
            begins[row.log] = min(row.begins, begins.get(row.log, row.begins))
    above: dict[str, int] = {}
    told = []
    for row in sorted(found, key=lambda each: (each.log, each.block)):
        told.append((row.log, row.block, row.first, above.get(row.log, 0), begins.get(row.log, 0)))
        above[row.log] = above.get(row.log, 0) + row.lines
    ddl = "log string, block bigint, first bigint, above bigint, place bigint"
    return small(spark, told, ddl), sum(row.bad for row in found), sum(row.good for row in found)


def _lines(spark: SparkSession, paths: list[str], skips_damage: bool) -> DataFrame:
    schema = f"{_ENVELOPE}, {_FIELDS}, _damage string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_damage"}
    raw = spark.read.option("ignoreCorruptFiles", skips_damage).text(paths)
    read = raw.select(
        F.lit("").alias("history"),
        F.col("_metadata.file_path").alias("log"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("id"),
        F.col("value").alias("text"),
        F.from_json("value", schema, options).alias("e"),
    )
    return _judged(read.select("history", "log", "block", "id", "text", "e.*"))


def _tables(spark: SparkSession, paths: list[str], skips_damage: bool) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_damage"}
    raw = spark.read.schema(TRACE_DDL).option("ignoreCorruptFiles", skips_damage).parquet(*paths)
    # Results beside the traces are tables, too, with other columns.
    read = raw.where("coalesce(event, member, fields) is not null").select(
        F.coalesce("history", F.lit("")).alias("history"),
        F.coalesce("log", F.col("_metadata.file_path")).alias("log"),
        F.lit(-1).cast("bigint").alias("block"),
        F.col("line").alias("id"),
        F.col("fields").alias("text"),
        *(F.col(name) for name in ("at", "cluster", "member", "event")),
        F.from_json("fields", f"{_FIELDS}, _damage string", options).alias("e"),
    )
    return _judged(read.select("history", "log", "block", "id", "text", "at", "cluster", "member", "event", "e.*"))


def _judged(read: DataFrame) -> DataFrame:
    """With why a line is no event, where it is none; `history` is the cluster's name where it is empty."""
    blank = F.trim("text") == ""  # still counted as lines of their file
    missing: Column = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name))
                                          for name in ("at", "cluster", "member", "event")))  # fmt: skip
    bad = (
        F.when(blank, F.lit(None))
        .when(F.col("_damage").isNotNull() & F.col("event").isNull(), F.lit("it is no JSON object of an event"))
        .when(F.col("_damage").isNotNull(), F.lit("a field has another type than the schema says"))
        .when(missing != "", F.concat(F.lit("it lacks: "), missing))
    )
    shown = F.when(bad.isNotNull(), F.substring("text", 1, SHOWN_CHARACTERS))
    named = F.when(F.col("history") == "", F.col("cluster")).otherwise(F.col("history"))
    return read.withColumn("bad", bad).withColumn("text", shown).withColumn("history", named).drop("_damage", "cluster")


def _once(events: DataFrame) -> tuple[DataFrame, int]:
    """Without what stands in a second file of the same member; and how many lines that were."""
    spans = events.groupBy("history", "member", "log").agg(F.min("at").alias("begins"), F.max("at").alias("ends"))
    behind = Window.partitionBy("history", "member").orderBy("begins", "log").rowsBetween(Window.unboundedPreceding, -1)
    spans = spans.withColumn("until", F.max("ends").over(behind)).where("begins <= until")
    doubtful = [(row.history, row.member) for row in spans.select("history", "member").distinct().collect()]
    if not doubtful:
        return events, 0
    spark = events.sparkSession
    who = F.broadcast(small(spark, doubtful, "history string, member string"))
    content = F.xxhash64(
        *(F.to_json(F.struct(*(name for name in events.columns if name not in ("log", "line", "place")))),)
    )
    ours = events.join(who, ["history", "member"], "left_semi").withColumn("content", content)
    # What a member told several times in one millisecond stands several times in each file.
    same = Window.partitionBy("history", "member", "content", "log").orderBy("line")
    ours = ours.withColumn("nth", F.row_number().over(same))
    first = Window.partitionBy("history", "member", "content", "nth").orderBy("place", "log")
    ours = ours.withColumn("file", F.row_number().over(first))
    copies = ours.where("file > 1").count()
    kept = ours.where("file = 1").select(*events.columns)
    return events.join(who, ["history", "member"], "left_anti").unionByName(kept), copies


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
