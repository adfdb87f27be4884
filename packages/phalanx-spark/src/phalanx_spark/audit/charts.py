"""The data of the charts, of one cluster or history: aggregated in Spark so far that a page holds it, however long the
logs.

Every list here has a greatest length; `left_out` counts the rest. If there are many things of a kind, the page shows
how many there were in each piece of time, instead of each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, address_of, incarnation_of
from phalanx_spark.audit.engine import AuditTable, QueryEngine
from phalanx_spark.audit.findings import Found
from phalanx_spark.audit.lives import FOREVER
from phalanx_spark.audit.scratch import small
from phalanx_spark.audit.tables import Tables

PIECES = 240
"""The number of pieces into which the shown time is divided."""
MOST_MEMBERS = 80
MOST_BARS = 400
MOST_POINTS = 1_500


def gather(
    spark: QueryEngine, t: Tables, history: str, found: dict[str, Found], pool: ThreadPoolExecutor
) -> dict[str, Any]:
    """Collect the data of all charts at once. Raises `UsageError` if there is no such history."""
    chosen = _choose(spark, t, history, found)
    [span] = [each for each in t.spans.collect() if each.history == chosen]
    of = _Of(spark, t, chosen, span.begins, span.ends)
    names = ("members", "lists", "replicas", "suspicions", "lost", "outages", "refusals")
    asked = {name: pool.submit(getattr(of, name)) for name in names}
    moved = pool.submit(of.migrations)
    charts = {
        "history": chosen,
        "begins": span.begins,
        "ends": span.ends,
        **{name: rows.result() for name, rows in asked.items()},
        **moved.result(),
        "left_out": of.left_out,
    }
    return _with_short_names(charts)


def _choose(spark: QueryEngine, t: Tables, history: str, found: dict[str, Found]) -> str:
    known = sorted(row.history for row in t.spans.select("history").collect())
    if history:
        if history not in known:
            more = f" and {len(known) - 10} more" if len(known) > 10 else ""
            raise UsageError(f"--history {history}: there is no such history; there are {', '.join(known[:10])}{more}")
        return history
    broken = Counter(each.history for one in found.values() for each in one.first)
    if broken:
        return min(broken, key=lambda name: (-broken[name], name))
    most = spark.sql(
        "select history from {views} group by history order by count(*) desc, history limit 1", views=t.views
    ).first()
    return str(most.history) if most is not None else known[0]


class _Of:
    """One history's charts."""

    def __init__(self, spark: QueryEngine, t: Tables, history: str, begins: int, ends: int) -> None:
        self._spark, self._t, self._begins, self._ends = spark, t, begins, ends
        self._chosen = small(spark, [(history,)], "history string")
        self._piece = max((ends - begins) // PIECES, 1)
        self.left_out: dict[str, int] = {}

    def _rows(self, query: str, most: int, what: str, **tables: AuditTable) -> list[dict[str, Any]]:
        """Return at most `most` rows of a query, and note how many more there are."""
        ours: dict[str, Any] = {
            name: table.join(self._chosen, "history", "left_semi") for name, table in tables.items()
        }
        found = self._spark.sql(
            f"select *, count(*) over () as all_ from ({query}) order by rank_ limit {most}", **ours
        )
        rows = [row.asDict() for row in found.collect()]
        if rows and rows[0]["all_"] > most:
            self.left_out[what] = rows[0]["all_"] - most
        return [{name: value for name, value in row.items() if name not in ("all_", "rank_")} for row in rows]

    def members(self) -> list[dict[str, Any]]:
        """Return which master each member followed: one row for each time with one master."""
        return self._rows(
            f"""
            with runs as (
                select *, sum(if(master = prev.master, 0, 1)) over (partition by member order by at, place, line) as run
                from {{views}}
            ),
            spans as (
                select member, run, min_by(master, at) as master, min(at) as since, max(at) as newest, count(*) as lists,
                    min(view_version) as first_version, max(view_version) as last_version,
                    max_by(size(members), struct(at, line)) as size
                from runs group by member, run
            ),
            ranked as (select *, dense_rank() over (order by first_at, member) as nth from (
                select s.*, min(since) over (partition by s.member) as first_at from spans s))
            select r.member, r.master, r.since,
                coalesce(lead(r.since) over (partition by r.member order by run), m.ended_at, m.removed_at, {self._ends}) as until,
                lists, first_version, last_version, size, m.ended_at, m.crashed_at, m.left_at, m.last_at, r.nth as rank_
            from ranked r join {{members}} m on m.member = r.member where r.nth <= {MOST_MEMBERS}
            """,
            MOST_MEMBERS * 20, "members", views=self._t.views, members=self._t.members,
        )  # fmt: skip

    def lists(self) -> list[dict[str, Any]]:
        """Return the newest list of the line in each piece of time."""
        return self._rows(
            f"""
            select max(v.at) as at, max_by(v.view_version, struct(v.at, v.line)) as version,
                max_by(size(v.members), struct(v.at, v.line)) as size, max_by(v.member, struct(v.at, v.line)) as master,
                count(*) as lists, max(v.at) as rank_
            from {{views}} v join {{reigns}} g on g.master = v.member and v.master = v.member and v.at between g.since and g.until
            group by v.at div {self._piece}
            """,
            PIECES * 2, "lists", views=self._t.views, reigns=self._t.reigns,
        )  # fmt: skip

    def replicas(self) -> list[dict[str, Any]]:
        """Return for each piece of time how many partitions had how many replicas: at its end, and the most at any
        moment.
        """
        return self._rows(
            f"""
            with steps as (
                select partition, at, sum(step) as step from (
                    select partition, at, 1 as step from {{held}} where gone_at is null or gone_at > at
                    union all
                    select partition, least(until, coalesce(gone_at, {FOREVER})) as at, -1 from {{held}}
                    where (gone_at is null or gone_at > at) and least(until, coalesce(gone_at, {FOREVER})) < {FOREVER}
                ) group by partition, at
            ),
            counts as (select partition, at, sum(step) over (partition by partition order by at) as has from steps),
            changes as (select at, has, lag(has) over (partition by partition order by at) as had from counts),
            deltas as (
                select at, has, sum(delta) as delta from (
                    select at, has, 1 as delta from changes
                    union all select at, had, -1 from changes where had is not null
                ) group by at, has
            ),
            levels as (select at, has, sum(delta) over (partition by has order by at) as partitions from deltas)
            select at div {self._piece} * {self._piece} as at, has as replicas, max_by(partitions, at) as partitions,
                max(partitions) as most, at div {self._piece} as rank_
            from levels group by at div {self._piece}, has
            """,
            PIECES * 10, "replicas", held=self._t.held,
        )  # fmt: skip

    def migrations(self) -> dict[str, list[dict[str, Any]]]:
        """Return each migration if they are few, else the longest ones; and how many ran in each piece of time.

        An order without a result ends with its master.
        """
        over = f"greatest(at, coalesce(least(m.ended_at, m.removed_at), {self._ends}))"
        bars = self._rows(
            f"""
            select partition, kind, source, destination, master, at as since, coalesce(o.ended_at, {over}) as until,
                case result when 'MigrationCommitted' then 'committed' when 'MigrationRolledBack' then 'rolled back'
                     else 'no result' end as result, coalesce(reason, '') as reason,
                struct(result = 'MigrationCommitted', at - coalesce(o.ended_at, {over}), at, partition) as rank_
            from {{moves}} o left join {{members}} m on m.member = o.master
            """,
            MOST_BARS, "migrations", moves=self._t.moves, members=self._t.members,
        )  # fmt: skip
        pieces = self._rows(
            f"""
            select at div {self._piece} * {self._piece} as at, coalesce(destination, source) as destination, count(*) as migrations,
                count_if(result = 'MigrationRolledBack') as rolled_back, count_if(result is null) as without_result,
                percentile(ended_at - at, 0.5) as median_ms, max(ended_at - at) as max_ms,
                struct(at div {self._piece}, coalesce(destination, source)) as rank_
            from {{moves}} group by at div {self._piece}, coalesce(destination, source)
            """,
            PIECES * 40, "pieces of migrations", moves=self._t.moves,
        )  # fmt: skip
        return {"migrations": bars, "pieces": pieces}

    def suspicions(self) -> list[dict[str, Any]]:
        """Return the suspicions, each with its result. If there are too many, false ones come first."""
        return self._rows(
            """
            select at, suspect, member as by, did, kind, took_ms, coalesce(reason, '') as reason, is_bound,
                taken_back_at is not null as taken_back, struct(kind <> 'false', did, at, suspect, member) as rank_
            from {judged}
            """,
            MOST_POINTS, "suspicions", judged=self._t.judged,
        )  # fmt: skip

    def lost(self) -> list[dict[str, Any]]:
        """Return the partitions that were lost in one moment, until their data came back."""
        return self._rows(
            f"""
            select at, member as master, coalesce(back, {self._ends}) as until, back is not null as came_back,
                count(*) as partitions, array_join(slice(array_sort(collect_list(partition)), 1, 12), ', ') as which, at as rank_
            from {{lost}} group by at, member, back
            """,
            MOST_BARS, "lost", lost=self._t.lost,
        )  # fmt: skip

    def outages(self) -> list[dict[str, Any]]:
        """Return the owners that were gone before others had their partitions."""
        return self._rows(
            f"""
            select member, partitions, since, coalesce(until, {self._ends}) as until, cause, until is null as is_open, since as rank_
            from {{outages}}
            """,
            MOST_BARS, "outages", outages=self._t.outages,
        )  # fmt: skip

    def refusals(self) -> list[dict[str, Any]]:
        """Return the times in which a member refused writes of a map."""
        return self._rows(
            f"""
            select member, map, at as since, coalesce(until, ended_at, {self._ends}) as until, at as rank_
            from {{waits}} where map is not null
            """,
            MOST_BARS, "refusals", waits=self._t.waits,
        )  # fmt: skip


_WHO = ("member", "master", "source", "destination", "suspect", "by")


def _with_short_names(charts: dict[str, Any]) -> dict[str, Any]:
    """Shorten the names of members to their addresses. If an address had several members, keep the beginning of the
    incarnation.
    """
    rows = [row for value in charts.values() if isinstance(value, list) for row in value]
    incarnations: dict[str, set[str]] = defaultdict(set)
    for name in _who(rows):
        incarnations[address_of(MemberId(name))].add(name)
    short = {
        name: f"{address}/{incarnation_of(MemberId(name))[:6]}" if len(names) > 1 else address
        for address, names in incarnations.items()
        for name in names
    }
    for row in rows:
        for field in _WHO:
            if isinstance(row.get(field), str):
                row[field] = short[row[field]]
    return charts


def _who(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    return (row[field] for row in rows for field in _WHO if isinstance(row.get(field), str))
