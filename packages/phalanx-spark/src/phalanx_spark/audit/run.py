"""The audit: read the logs, judge every property, and gather the data of the charts. Only aggregates leave Spark."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from pyspark.sql import SparkSession

from phalanx.rules import cite
from phalanx_spark.audit import detector, lives, migrations, replicas, views
from phalanx_spark.audit.answers import answers_of
from phalanx_spark.audit.charts import gather
from phalanx_spark.audit.engine import AuditTable, Kept, QueryEngine
from phalanx_spark.audit.findings import Found, collect, merged
from phalanx_spark.audit.reading import Reading, read_events
from phalanx_spark.audit.scratch import scratch, small
from phalanx_spark.audit.tables import Tables, make_tables
from phalanx_spark.audit.verdicts import MOST_FINDINGS, PROPERTIES, AuditVerdict, Property, Report, Status

AT_ONCE = 3
"""The number of queries at a time: while one is planned, others keep the cores busy."""
UNTOLD_DDL = "property string, history string, what string"


def audit(spark: SparkSession, folder: str, *, with_charts: bool = False, history: str = "") -> Report:
    """Judge the event logs of a folder by Spark. Raises `UsageError` if there are none, or no such history."""
    with scratch(spark, folder) as kept:
        return judge(
            cast(Kept, kept), read_events(kept, folder), folder, AT_ONCE, with_charts=with_charts, history=history
        )


def judge(
    kept: Kept, reading: Reading, folder: str, at_once: int, *, with_charts: bool = False, history: str = ""
) -> Report:
    """Judge what was read. `at_once`: the number of queries at a time. Raises `UsageError` if there is no such history."""
    began, spark = time.monotonic(), kept.spark
    with _threads(at_once) as pool:
        gaps = kept.save(lives.gaps(spark, reading.events), "gaps")
        on_tables = pool.submit(_found, spark, lambda: views.table_findings(spark, reading.events), folder, gaps)
        tables = make_tables(kept, reading, pool)
        figures = pool.submit(_figures, spark, tables)
        circles, unsearched = views.order_findings(spark, tables.views)
        untold = pool.submit(_untold, spark, tables, reading, unsearched, gaps)
        parts = [
            on_tables,
            *(pool.submit(_found, spark, find, folder, gaps) for find in _finders(kept, tables, circles)),
        ]
        found = merged(part.result() for part in parts)
        charts = gather(spark, tables, history, found, pool) if with_charts or history else {}
        return _report(reading, folder, tables, found, untold.result(), figures.result(), charts, began)


@contextlib.contextmanager
def _threads(at_once: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a pool of threads. If something fails, tasks that have not begun are cancelled."""
    pool = ThreadPoolExecutor(at_once)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _found(spark: QueryEngine, find: Callable[[], list[AuditTable]], folder: str, gaps: AuditTable) -> dict[str, Found]:
    findings = find()
    return collect(spark, findings, folder, gaps) if findings else {}


def _finders(kept: Kept, t: Tables, circles: list[AuditTable]) -> list[Callable[[], list[AuditTable]]]:
    """Return the searches for findings of all properties, in parts that run at once; those that take longest first."""
    spark = kept.spark
    return [
        lambda: migrations.result_findings(kept, t.events, t.moves, t.reigns, t.members),
        lambda: replicas.replica_findings(kept, t.events, t.members, t.reigns, t.rows, t.held),
        lambda: views.view_findings(spark, t.events, t.views, t.members),
        lambda: [
            views.agreement(spark, t.views, t.members, t.spans)[0],
            *circles,
            replicas.loss_findings(spark, t.lost),
            *replicas.write_findings(spark, t.waits, t.outages, t.spans),
            *detector.removal_findings(spark, t.judged, t.events),
        ],
    ]


def _untold(
    spark: QueryEngine, t: Tables, reading: Reading, unsearched: list[tuple[str, str, str]], gaps: AuditTable
) -> dict[str, list[str]]:
    """Return what is missing to judge each property."""
    missing = [
        views.agreement(spark, t.views, t.members, t.spans)[1],
        _unread(spark, t, reading),
        migrations.open_orders(spark, t.moves, t.reigns, t.members, t.spans),
        small(spark, unsearched, UNTOLD_DDL),
        _lost(spark, gaps),
    ]
    together = missing[0]
    for each in missing[1:]:
        together = together.unionByName(each)
    missing_by_name: dict[str, list[str]] = defaultdict(list)
    counted = spark.sql(
        """
        select property, count(*) as count, slice(array_sort(collect_set(concat(if(history = '', '', concat(history, ': ')), what))),
            1, {most}) as first
        from {untold} group by property
        """,
        untold=together, most=MOST_FINDINGS,
    )  # fmt: skip
    for row in counted.collect():
        more = row["count"] - len(row.first)
        missing_by_name[row.property] = [*row.first, *([f"and {more} more"] if more > 0 else [])]
    return missing_by_name


def _unread(spark: QueryEngine, t: Tables, reading: Reading) -> AuditTable:
    """Return the members that are in lists and left no log: nobody knows what they installed. An empty log says:
    nothing.
    """
    silent = [(name.rpartition("/")[2].partition(".jsonl")[0],) for name in reading.empty_logs]
    return spark.sql(
        """
        select property, m.history, concat('the log of ', m.member, ', which is in lists of others') as what
        from (select distinct history, explode(members) as member from {views}) m
        left anti join {heard} k on k.history = m.history and k.member = m.member
        left anti join {silent} s on s.name = translate(m.member, '/:', '__')
        cross join (select explode(array('view_order', 'view_integrity', 'versions')) as property)
        """,
        views=t.views, heard=lives.heard(spark, reading.pieces), silent=small(spark, silent, "name string"),
    )  # fmt: skip


def _lost(spark: QueryEngine, gaps: AuditTable) -> AuditTable:
    """Return the gaps in logs: no property holds for certain where a member can have done anything."""
    return spark.sql(
        """
        select property, history,
            concat(missing, ' events of ', member, ' in the ', until - since, ' ms before ', until, ': ', reason) as what
        from {gaps} cross join (select explode(array({properties})) as property)
        """.replace("{properties}", ", ".join(f"'{each.name}'" for each in PROPERTIES)),
        gaps=gaps,
    )  # fmt: skip


# --- figures --------------------------------------------------------------------------------------------------------


def _figures(spark: QueryEngine, t: Tables) -> dict[str, dict[str, Any]]:
    """Return for each property what was measured, and how much."""
    one = _one(spark.sql(
        """
        select (select count(*) from {views}) as lists,
            (select count(distinct history, view_version, maker) from {views}) as views,
            (select count(*) from {members} where first_at is not null) as members,
            (select count(distinct history) from {members}) as histories,
            (select count(distinct history, member) from {views} where master = member) as masters
        """,
        views=t.views, members=t.members,
    ))  # fmt: skip
    moved = _one(
        spark.sql(
            """
        select count(*) as ordered, count_if(result = 'MigrationCommitted') as committed,
            count_if(result = 'MigrationRolledBack') as rolled_back, count_if(result is null) as without_result,
            percentile(ended_at - at, 0.5) as median_ms, percentile(ended_at - at, 0.99) as p99_ms, max(ended_at - at) as max_ms
        from {moves}
        """,
            moves=t.moves,
        )
    )
    written = _one(spark.sql(
        """
        with parts as (select history, count(distinct partition) as partitions, min(at) as begins from {rows} group by history),
        whole as (select sum(partitions * (s.ends - p.begins)) as ms from parts p join {spans} s using (history)),
        sealed as (select * from {waits} where map is null and until is not null)
        select (select count(*) from {outages}) as owners_lost, (select sum(partitions) from {outages}) as partitions_without_owner,
            (select max(until - since) from {outages}) as longest_without_owner_ms,
            (select percentile(until - since, 0.5) from {outages}) as median_without_owner_ms,
            (select count(*) from sealed) as seals, (select percentile(until - at, 0.5) from sealed) as median_sealed_ms,
            (select max(until - at) from sealed) as longest_sealed_ms,
            (select count(*) from {waits} where map is not null) as refusals,
            (select coalesce(sum(partitions * (until - since)), 0) from {outages}) as without_owner_ms,
            (select coalesce(sum(until - at), 0) from sealed) as sealed_ms, (select ms from whole) as partition_ms
        """,
        rows=t.rows, spans=t.spans, waits=t.waits, outages=t.outages,
    ))  # fmt: skip
    lost = _one(
        spark.sql(
            "select count(*) as partitions, count(back) as came_back, max(back - at) as longest_ms from {lost}",
            lost=t.lost,
        )
    )
    quality = [row.asDict() for row in detector.quality(spark, t.judged).collect()]
    whole = written.pop("partition_ms")
    missed = written.pop("without_owner_ms") + written.pop("sealed_ms")
    written["available"] = round(1 - missed / whole, 7) if whole else None
    return {
        "views": one,
        "migrations": moved,
        "writes": written,
        "lost": lost,
        "detector": {"kinds": quality},
        "line": {"masters": len(t.line), "sides": dict(lives.sides(t.line, t.views))},
    }


def _one(table: AuditTable) -> dict[str, Any]:
    """Return the only row as a dict."""
    return dict(table.collect()[0].asDict())


# --- the report -----------------------------------------------------------------------------------------------------


def _report(
    reading: Reading, folder: str, t: Tables, found: dict[str, Found], untold: dict[str, list[str]],
    figures: dict[str, dict[str, Any]], charts: dict[str, Any], began: float,
) -> Report:  # fmt: skip
    span = t.spans.selectExpr("min(begins) as begins", "max(ends) as ends").first()
    counts = figures["views"]
    verdicts = tuple(
        _verdict(each, found.get(each.name, Found()), untold.get(each.name, []), figures) for each in PROPERTIES
    )
    return Report(
        ok=all(verdict.status is not Status.BROKEN for verdict in verdicts),
        folder=folder,
        files=reading.files,
        events=reading.count,
        members=counts["members"],
        histories=counts["histories"],
        begins=span.begins if span else 0,
        ends=span.ends if span else 0,
        answers=answers_of(verdicts),
        verdicts=verdicts,
        bad_lines=reading.bad_count,
        bad=reading.bad,
        empty_logs=reading.empty_logs,
        notes=reading.notes,
        took_s=round(time.monotonic() - began, 1),
        charts=charts,
    )


_FIGURES = {
    "view_order": "views", "versions": "views", "masters": "line", "one_result": "migrations", "no_loss": "lost",
    "writes": "writes", "detector": "detector",
}  # fmt: skip
_ON_LISTS = {"view_order", "view_agreement", "view_integrity", "one_list", "versions", "masters", "detector"}
"""Properties that cannot be judged without a list of members."""


def _verdict(judged: Property, found: Found, missing: list[str], figures: dict[str, dict[str, Any]]) -> AuditVerdict:
    if judged.name in _ON_LISTS and not figures["views"]["lists"]:
        missing = ["a list that a member installed (ViewInstalled)", *missing]
    own = figures.get(_FIGURES.get(judged.name, ""), {})
    if found.count:
        status, said = Status.BROKEN, found.first[0].what
        if found.count > 1:
            said += f"; and {found.count - 1} more"
    elif missing:
        status, said = Status.UNTOLD, f"What would tell is missing: {missing[0]}"
    else:
        status, said = Status.HOLDS, judged.promise
    return AuditVerdict(
        property=judged.name,
        title=judged.title,
        rule=judged.rule,
        status=status,
        said=said,
        findings=tuple(found.first),
        found=found.count,
        missing=tuple(missing),
        with_skew=judged.with_skew,
        figures=own,
        rules=cite(judged.rule),
    )
