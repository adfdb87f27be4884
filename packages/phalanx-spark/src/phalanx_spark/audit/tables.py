"""The tables that all parts of the audit use: made once, and kept in files meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from phalanx_spark.audit import detector, lives, migrations, replicas, views
from phalanx_spark.audit.engine import AuditTable, Kept
from phalanx_spark.audit.reading import Reading
from phalanx_spark.audit.scratch import small


class Tables(msgspec.Struct, frozen=True):
    """The tables that all parts of the audit use."""

    events: AuditTable
    views: AuditTable
    members: AuditTable
    """See `lives`; with `removed_at`, when the line's list was without it."""
    spans: AuditTable
    reigns: AuditTable
    gone: AuditTable
    away: AuditTable
    rows: AuditTable
    held: AuditTable
    moves: AuditTable
    lost: AuditTable
    waits: AuditTable
    outages: AuditTable
    judged: AuditTable
    line: list[lives.Reign]


def make_tables(kept: Kept, reading: Reading, pool: ThreadPoolExecutor) -> Tables:
    """Make the tables: those on which others depend one after another, and the others beside them."""
    spark, events = kept.spark, reading.events

    def later(name: str, make: Callable[..., AuditTable], *of: Any) -> Future[AuditTable]:
        return pool.submit(lambda: kept.save(make(*of), name))

    away = later("away", lives.absences, spark, events)
    moves = later("moves", migrations.migrations, spark, events)
    seen = kept.save(views.installed_views(spark, events), "views")
    lived = kept.save(lives.lives(spark, reading.pieces), "lives")
    line = lives.main_line(spark, seen, lived)
    reigns = kept.save(small(spark, [msgspec.structs.astuple(each) for each in line], lives.REIGNS_DDL), "reigns")
    rows = later("rows", replicas.rows_of_table, spark, events, reigns)
    lost = later("lost", replicas.losses, spark, events, reigns)
    gone = kept.save(replicas.departures(spark, seen, reigns), "gone")
    removed = gone.selectExpr("history", "member", "at as removed_at")
    members = kept.save(lived.join(removed, ["history", "member"], "left"), "members")
    judged = later("judged", detector.suspicions, kept, events, members, away.result(), gone, seen)
    waits = later("waits", replicas.refusals, spark, events, members)
    spans = kept.save(
        spark.sql("select history, min(first_at) as begins, max(last_at) as ends from {m} group by history", m=lived),
        "spans",
    )
    held = kept.save(replicas.held(spark, rows.result(), gone), "held")
    outages = kept.save(
        replicas.outages(spark, events, held, gone, members, away.result(), reigns), "outages"
    )  # fmt: skip
    return Tables(
        events, seen, members, spans, reigns, gone, away.result(), rows.result(), held, moves.result(), lost.result(),
        waits.result(), outages, judged.result(), line,
    )  # fmt: skip
