"""Findings as rows: every check is a query that yields them, and one job collects the earliest of each property.

A row has `property`, `history`, `at`, `what`, and `lines`: the evidence, each as `line_of` makes it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable

import msgspec
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from phalanx.audit.reading import shown_log
from phalanx.audit.verdicts import PROPERTIES, TOLD_FINDINGS, Finding, Line

FINDING_DDL = (
    "property string, history string, at bigint, what string, "
    "lines array<struct<log string, line bigint, at bigint, member string, event string, told string>>"
)


class Found(msgspec.Struct):
    """The findings about one property."""

    count: int = 0
    first: list[Finding] = []


def line_of(row: str, told: str) -> str:
    """SQL: one line of evidence, of the event with this alias; `told`: an expression for what matters in it."""
    return (
        f"named_struct('log', {row}.log, 'line', {row}.line, 'at', {row}.at, 'member', {row}.member, "
        f"'event', {row}.event, 'told', {told})"
    )


def list_of(row: str) -> str:
    """SQL: a member list in words."""
    return f"concat('list ', {row}.view_version, ' by ', {row}.maker, ': ', concat_ws(', ', {row}.members))"


def collect(findings: Iterable[DataFrame], folder: str, gaps: DataFrame) -> dict[str, Found]:
    """The number of findings of each property, and the earliest of them; without those that a gap in a log of their history
    may have made."""
    together = functools.reduce(DataFrame.unionByName, findings)
    proved = F.col("property").isin([each.name for each in PROPERTIES if each.holds_despite_gaps])
    begins = gaps.groupBy("history").agg(F.min("since").alias("gap"))
    together = together.join(F.broadcast(begins), "history", "left")
    together = together.where(proved | F.col("gap").isNull() | (F.col("at") < F.col("gap"))).drop("gap")
    by_time = Window.partitionBy("property").orderBy("at", "history", "what")
    ranked = together.withColumn("rank", F.row_number().over(by_time)).withColumn(
        "found", F.count(F.lit(1)).over(Window.partitionBy("property"))
    )
    told: dict[str, Found] = defaultdict(Found)
    for row in ranked.where(F.col("rank") <= TOLD_FINDINGS).orderBy("property", "rank").collect():
        lines = tuple(_line(each, folder) for each in row.lines)
        told[row.property].count = row.found
        told[row.property].first.append(Finding(row.history, row.at, row.what, lines))
    return told


def merged(parts: Iterable[dict[str, Found]]) -> dict[str, Found]:
    """Merge the findings of all parts."""
    told: dict[str, Found] = defaultdict(Found)
    for part in parts:
        for name, found in part.items():
            told[name].count += found.count
            told[name].first = sorted(
                [*told[name].first, *found.first], key=lambda each: (each.at, each.history, each.what)
            )[:TOLD_FINDINGS]
    return told


def _line(row: Row, folder: str) -> Line:
    return Line(shown_log(row.log, folder), row.line, row.at, row.member, row.event, row.told or "")
