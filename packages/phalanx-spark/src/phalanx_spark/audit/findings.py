"""Findings as rows: every check is a query that yields them, and one job collects the earliest of each property.

A row has `property`, `history`, `at`, `what`, and `lines`: the evidence, each as `line_of` makes it.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import msgspec

from phalanx_spark.audit.engine import AuditTable, QueryEngine
from phalanx_spark.audit.reading import shown_log
from phalanx_spark.audit.verdicts import MOST_FINDINGS, PROPERTIES, Finding, Line

FINDING_DDL = (
    "property string, history string, at bigint, what string, "
    "lines array<struct<log string, line bigint, at bigint, member string, event string, told string>>"
)


class Found(msgspec.Struct):
    """The findings about one property."""

    count: int = 0
    first: list[Finding] = []


def line_of(row: str, detail: str) -> str:
    """Return SQL for one line of evidence, of the event with the alias `row`. `detail`: SQL for what matters in it."""
    return (
        f"named_struct('log', {row}.log, 'line', {row}.line, 'at', {row}.at, 'member', {row}.member, "
        f"'event', {row}.event, 'told', {detail})"
    )


def list_of(row: str) -> str:
    """Return SQL for a member list in words."""
    return f"concat('list ', {row}.view_version, ' by ', {row}.maker, ': ', array_join({row}.members, ', '))"


def collect(spark: QueryEngine, findings: Iterable[AuditTable], folder: str, gaps: AuditTable) -> dict[str, Found]:
    """Count the findings of each property, and collect the earliest of them.

    Findings that a gap in a log of their history can have made are left out.
    """
    together: Any = functools.reduce(lambda one, other: one.unionByName(other), findings)
    proved = ", ".join(f"'{each.name}'" for each in PROPERTIES if each.holds_despite_gaps)
    ranked = spark.sql(
        f"""
        select * from (
            select t.*, row_number() over (partition by property order by at, history, what) as rank,
                count(*) over (partition by property) as found
            from {{together}} t left join (select history as of, min(since) as gap from {{gaps}} group by history) on of = history
            where property in ({proved}) or gap is null or at < gap
        ) where rank <= {MOST_FINDINGS} order by property, rank
        """,
        together=together, gaps=gaps,
    )  # fmt: skip
    found_by_name: dict[str, Found] = defaultdict(Found)
    for row in ranked.collect():
        lines = tuple(_line(each, folder) for each in row.lines)
        found_by_name[row.property].count = row.found
        found_by_name[row.property].first.append(Finding(row.history, row.at, row.what, lines))
    return found_by_name


def merged(parts: Iterable[dict[str, Found]]) -> dict[str, Found]:
    """Merge the findings of all parts."""
    found_by_name: dict[str, Found] = defaultdict(Found)
    for part in parts:
        for name, found in part.items():
            found_by_name[name].count += found.count
            found_by_name[name].first = sorted(
                [*found_by_name[name].first, *found.first], key=lambda each: (each.at, each.history, each.what)
            )[:MOST_FINDINGS]
    return found_by_name


def _line(row: Any, folder: str) -> Line:
    return Line(shown_log(row.log, folder), row.line, row.at, row.member, row.event, row.told or "")
