"""Read event logs: files of JSON lines (plain or compressed, rotated, of many members and days) and Parquet.

* A line that is not an event is counted, kept with its file and line number, and left out; it ends nothing. A killed member
  can leave half a line behind, a full disk more of them.
* Lines are numbered without a pass of their own: a reader's rows are numbered within each piece of a file that it reads,
  and pieces know where they begin.
* The same file twice (a copy beside its original, one still there after it was compressed) is one: if a member has
  several files which overlap in time, equal lines count once.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from phalanx.common.errors import UsageError
from phalanx.common.words import counted
from phalanx.reports.trace_rows import TRACE_DDL
from phalanx_spark.audit.engine import AuditTable
from phalanx_spark.audit.lives import PIECES
from phalanx_spark.audit.local_runner import NAMED_HERE, is_readable, read_here
from phalanx_spark.audit.scratch import OTHERS, Scratch, small

MOST_BAD_LINES = 20
SHOWN_CHARACTERS = 200
NAMES = ("*.jsonl", "*.jsonl.*", "*.jsonl-*", "*.parquet")
"""Which files of a folder are read."""
DAMAGED = "a file is damaged, and what stands behind the damage is left out"
_DOUBTFUL_DDL = "log string, block bigint, id bigint, text string"
_COUNTED_DDL = "history string, member string, log string, first bigint, lines bigint, oldest bigint, newest bigint"

ENVELOPE = "at bigint, cluster string, member string, event string"
FIELDS = """
    view_version bigint, maker string, master string, members array<string>, number bigint, voters array<string>,
    suspect string, suspected array<string>, removed string, reason string, rule string, joiner string, leaver string, claimer string,
    accepted boolean, replaced array<string>, outcome string, left_out array<string>, `by` string, what string,
    partition int, kind string, source string, source_current_index int, source_new_index int,
    destination string, destination_current_index int, destination_new_index int, owner string,
    current_replica_index int, new_replica_index int,
    partition_version bigint, table_version bigint, took_ms bigint, entries bigint, committed boolean, endpoint string,
    replicas array<string>, replicas_now array<string>, rows array<array<int>>, gone array<string>, promoted array<int>,
    rolled_back array<int>, adopted array<int>, before string, after bigint,
    away_ms bigint, former string, refuses boolean, writes boolean, map string, missing string, missing_ms bigint, silent_ms bigint,
    wanted_replicas bigint
"""
"""The fields that the audit uses, of all kinds of events. A field with another type in another kind is read as text."""


class BadLine(msgspec.Struct, frozen=True):
    """A line that is not an event."""

    log: str
    line: int
    why: str
    text: str
    """Cut if it is long."""


class Reading(msgspec.Struct, frozen=True):
    """The events that were read."""

    events: AuditTable
    """`history`, `log`, `line`, `at`, `member`, `event` and the fields; the order of one member's events is `at`, `place`,
    `line`."""
    pieces: AuditTable
    """The result of `_pieces`."""
    files: int
    count: int
    bad_count: int
    bad: tuple[BadLine, ...]
    """The first ones, by file and line."""
    empty_logs: tuple[str, ...]
    """Files without a line: of members that recorded nothing."""
    notes: tuple[str, ...]


def read_events(scratch: Scratch, folder: str) -> Reading:
    """Read all events of a folder into the scratch. Raises `UsageError` if there are none."""
    files = files_here(Path(folder)) if scratch.here and Path(folder).is_dir() else _files_in(scratch.spark, folder)
    if not files:
        raise no_event_log(folder)
    try:
        return _read(scratch, folder, files, skips_damage=False)
    except PySparkException as error:
        damage = _one_line(error)
    try:
        read = _read(scratch, folder, files, skips_damage=True)
    except PySparkException as error:
        raise UsageError(f"{folder} cannot be read: {_one_line(error)}") from error
    return msgspec.structs.replace(read, notes=(*read.notes, f"{DAMAGED}: {damage}"))


def no_event_log(folder: str) -> UsageError:
    """Return the error for a folder without event logs."""
    return UsageError(
        f"{folder} holds no event log (*.jsonl, *.jsonl.gz, *.parquet): give the folder that members had as --event-log, or one with "
        "traces of simulated histories"
    )


def nothing_read(folder: str, bad_count: int, bad: Sequence[BadLine]) -> UsageError:
    """Return the error for a folder in which no line is an event."""
    first = f"; the first of them: {bad[0].log} line {bad[0].line}: {bad[0].why}" if bad else ""
    return UsageError(
        f"{folder} holds no event: {counted(bad_count, 'line is not one', 'lines are not events')}{first}"
    )


def copies_note(copies: int) -> str:
    """Return the note about lines that another file repeats."""
    stand, count = counted(copies, "line stands", "lines stand"), "counts" if copies == 1 else "count"
    return f"{stand} in more than one file, and {count} once"


def shown_log(log: str, folder: str) -> str:
    """Return the name of a file that people read: its path within the folder."""
    path = unquote(log).removeprefix("file://").removeprefix("file:")
    return path.partition(folder.rstrip("/") + "/")[2] or path


def _files_in(spark: SparkSession, folder: str) -> dict[str, int]:
    """Return the size of each file by its path. The content is not read: the format has it in a column that is not
    selected.
    """
    glob = f"{{{','.join(NAMES)}}}"
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").option("pathGlobFilter", glob)
    try:
        rows = reader.load(folder).select("path", "length").collect()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error) or "Path does not exist" in str(error):
            raise UsageError(f"there is no folder {folder}") from None
        raise UsageError(f"{folder} cannot be read: {_one_line(error)}") from error
    except PySparkException as error:
        raise UsageError(f"{folder} cannot be read: {_one_line(error)}") from error
    return {row.path: row.length for row in sorted(rows)}


def files_here(folder: Path) -> dict[str, int]:
    """Return the size of each file in a folder of this machine by its path. A file without a byte counts: its member
    recorded nothing.
    """
    found: dict[str, int] = {}
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:  # a link leads back to a folder that was read
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        for name in names:
            if not name.startswith(("_", ".")) and any(fnmatchcase(name, each) for each in NAMES):
                path = Path(place, name).absolute()
                found[f"file://{path}"] = path.stat().st_size
    return dict(sorted(found.items()))


def _read(scratch: Scratch, folder: str, files: dict[str, int], *, skips_damage: bool) -> Reading:
    spark = scratch.spark
    lines = [path for path, size in files.items() if size and not path.endswith(".parquet")]
    tables = [path for path, size in files.items() if size and path.endswith(".parquet")]
    if not lines and not tables:
        raise UsageError(f"{folder}: its {len(files)} event logs are empty")
    here = [path for path in lines if scratch.here and path.startswith("file:") and is_readable(path)]
    doubtful, notes = _read_here(scratch, here)
    others = [path for path in lines if path not in set(here)]
    parts = [
        *([_parsed(doubtful)] if doubtful is not None else []),
        *([_lines(spark, others, skips_damage)] if others else []),
        *([_tables(spark, tables, skips_damage)] if tables else []),
    ]
    if parts:
        parsed = scratch.save_events(functools.reduce(DataFrame.unionByName, parts), "events")
    else:
        parsed = scratch.read_events(_parsed(small(spark, [], _DOUBTFUL_DDL)), "events")
    pieces = scratch.save(_pieces(scratch, parsed, bool(parts)), "pieces")
    whole = spark.sql(
        """
        select sum(bad) as bad, sum(good) as good,
            (select count(*) from (select 1 from {p} where good > 0 group by history, member having count(distinct log) > 1)) as several
        from {p}
        """,
        p=pieces,
    ).collect()[0]  # fmt: skip
    bad_count, good = whole.bad, whole.good
    if others or whole.several:
        numbered = parsed.join(F.broadcast(_blocks(spark, pieces)), ["log", "block"])
        line = F.when(F.col("block") < 0, F.col("id")).otherwise(F.col("id") - F.col("first") + F.col("above") + 1)
        numbered = numbered.withColumn("line", line).drop("block", "id", "first", "above")
    else:  # lines have their numbers, and no member has two files of which one came first
        numbered = parsed.withColumn("line", F.col("id")).withColumn("place", F.lit(0)).drop("block", "id")
    first = (
        numbered.where("bad is not null").orderBy("log", "line").limit(MOST_BAD_LINES).collect() if bad_count else []
    )
    bad = tuple(BadLine(shown_log(row.log, folder), row.line, row.bad, row.text) for row in first)
    if not good:
        raise nothing_read(folder, bad_count, bad)
    events, copies = numbered.where("bad is null and event is not null").drop("bad", "text"), 0
    if whole.several:
        events, copies = _once(events, pieces)
    if copies:  # once, and not again by every query
        events = scratch.save_events(events, "once")
        notes.append(copies_note(copies))
    empty = tuple(shown_log(path, folder) for path, size in files.items() if not size)
    return Reading(events, pieces, len(files), good - copies, bad_count, bad, empty, tuple(notes))


def _read_here(scratch: Scratch, paths: list[str]) -> tuple[DataFrame | None, list[str]]:
    """Read these files without Spark. Return the doubtful lines, because all others are among the events, and what is
    damaged.
    """
    if scratch.here is None or not paths:
        return None, []
    for name in ("events", "counted", "doubtful"):
        shutil.rmtree(scratch.here / name, ignore_errors=True)
    (scratch.here / "events").mkdir()
    fields = to_arrow_schema(cast(StructType, StructType.fromDDL(f"{ENVELOPE}, {FIELDS}")))
    threads = scratch.spark.sparkContext.defaultParallelism
    damage = read_here([Path(path.removeprefix("file:")) for path in paths], scratch.here, fields, threads)
    doubtful = scratch.here / "doubtful"
    left = scratch.spark.read.schema(_DOUBTFUL_DDL).parquet(str(doubtful)) if doubtful.is_dir() else None
    return left, [f"{DAMAGED}: {each}" for each in damage]


def _pieces(scratch: Scratch, parsed: DataFrame, any_by_spark: bool) -> DataFrame:
    """Return for each member in each piece of a file what must be known of all lines; a member and piece can have
    several rows.

    All lines are read once for all of it, without those that were counted when they were parsed.
    """
    spark, counted = scratch.spark, scratch.here / "counted" if scratch.here else None
    if counted is not None:
        by_spark = f" or _metadata.file_name not like '{NAMED_HERE}%'" if any_by_spark else ""
        parsed = parsed.where(f"family = '{OTHERS}'{by_spark}")
    looked_at = spark.sql(
        PIECES,
        parsed=parsed,
    )
    if counted is None or not counted.is_dir():
        return looked_at
    counts = spark.sql(
        """
        select history, member, log, bigint(0) as block, first, lines, oldest as begins, bigint(0) as bad, lines as good,
            oldest, newest, oldest as first_at, newest as last_at
        from {counts}
        """,
        counts=spark.read.schema(_COUNTED_DDL).parquet(str(counted)),
    )
    return looked_at.unionByName(counts, allowMissingColumns=True)


def _blocks(spark: SparkSession, pieces: DataFrame) -> DataFrame:
    """Return for each piece of a file its first number, the lines above it, and the file's `place`: when it begins."""
    found = pieces.groupBy("log", "block").agg(
        F.min("first").alias("first"), F.sum("lines").alias("lines"), F.min("begins").alias("begins")
    ).collect()  # fmt: skip
    begins: dict[str, int] = {}
    for row in found:
        if row.begins is not None:
            begins[row.log] = min(row.begins, begins.get(row.log, row.begins))
    above: dict[str, int] = {}
    blocks = []
    for row in sorted(found, key=lambda each: (each.log, each.block)):
        blocks.append((row.log, row.block, row.first, above.get(row.log, 0), begins.get(row.log, 0)))
        above[row.log] = above.get(row.log, 0) + row.lines
    ddl = "log string, block bigint, first bigint, above bigint, place bigint"
    return cast(DataFrame, small(spark, blocks, ddl))


def _lines(spark: SparkSession, paths: list[str], skips_damage: bool) -> DataFrame:
    raw = spark.read.option("ignoreCorruptFiles", skips_damage).text(paths)
    return _parsed(raw.select(
        F.col("_metadata.file_path").alias("log"),
        F.col("_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("id"),
        F.col("value").alias("text"),
    ))  # fmt: skip


def _parsed(lines: DataFrame) -> DataFrame:
    """Parse the columns `log`, `block`, `id` and `text`."""
    schema = f"{ENVELOPE}, {FIELDS}, _damage string"
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_damage"}
    read = lines.withColumn("history", F.lit("")).withColumn("e", F.from_json("text", schema, options))
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
        F.from_json("fields", f"{FIELDS}, _damage string", options).alias("e"),
    )
    return _judged(read.select("history", "log", "block", "id", "text", "at", "cluster", "member", "event", "e.*"))


def _judged(read: DataFrame) -> DataFrame:
    """Add the reason why a line is not an event. An empty `history` becomes the cluster's name."""
    blank = F.trim("text") == ""  # still counted as lines of their file
    missing: Column = F.concat_ws(", ", *(F.when(F.col(name).isNull(), F.lit(name))
                                          for name in ("at", "cluster", "member", "event")))  # fmt: skip
    bad = (
        F.when(blank, F.lit(None))
        .when(F.col("_damage").isNotNull() & F.col("event").isNull(), F.lit("it is not a JSON object of an event"))
        .when(F.col("_damage").isNotNull(), F.lit("a field has another type than the schema says"))
        .when(missing != "", F.concat(F.lit("it lacks: "), missing))
    )
    shown = F.when(bad.isNotNull(), F.substring("text", 1, SHOWN_CHARACTERS))
    named = F.when(F.col("history") == "", F.col("cluster")).otherwise(F.col("history"))
    return read.withColumn("bad", bad).withColumn("text", shown).withColumn("history", named).drop("_damage", "cluster")


def _once(events: DataFrame, pieces: DataFrame) -> tuple[DataFrame, int]:
    """Drop lines that another file of the same member repeats. Return the rest, and how many were dropped."""
    spans = pieces.where("good > 0").groupBy("history", "member", "log").agg(
        F.min("oldest").alias("begins"), F.max("newest").alias("ends")
    )  # fmt: skip
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
    # An event that a member recorded several times in one millisecond is several times in each file.
    same = Window.partitionBy("history", "member", "content", "log").orderBy("line")
    ours = ours.withColumn("nth", F.row_number().over(same))
    first = Window.partitionBy("history", "member", "content", "nth").orderBy("place", "log")
    ours = ours.withColumn("file", F.row_number().over(first))
    copies = ours.where("file > 1").count()
    kept = ours.where("file = 1").select(*events.columns)
    return events.join(who, ["history", "member"], "left_anti").unionByName(kept), copies


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
