"""How long members lived, and which line of masters is the cluster that went on.

A member's end is known from its own log (`Left`, `Ejected`), from the log of what runs its process (`ProcessStruck`),
or not at all: then its last line, and the last time at which others heard it, say until when it lived at least. When a
member that hung wakes up, it records how long it hung.

Sides of a split follow different masters. Replicas, losses and removals are judged on one line: the masters one after
another that lead to the one that most members followed in the end. The other sides gave up what they did.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec

from phalanx.reports.trace_rows import PROCESS_EVENT
from phalanx_spark.audit.engine import AuditTable, QueryEngine

REIGNS_DDL = "history string, master string, number int, since bigint, until bigint"
FOREVER = 1 << 62


class Reign(msgspec.Struct):
    """A master of the line of the cluster that went on, and when it was."""

    history: str
    master: str
    number: int
    since: int
    until: int


LIFE = f"""
    min(at) filter (where bad is null) as oldest, max(at) filter (where bad is null) as newest,
    min(at) filter (where bad is null and event <> '{PROCESS_EVENT}') as first_at,
    max(at) filter (where bad is null and event <> '{PROCESS_EVENT}') as last_at,
    min(at) filter (where bad is null and event = 'Left') as left_at,
    min(at) filter (where bad is null and (event in ('Left', 'Ejected')
        or event = '{PROCESS_EVENT}' and what not in ('started', 'paused', 'resumed'))) as ended_at,
    min(at) filter (where bad is null and event = '{PROCESS_EVENT}' and what like 'crashed%') as crashed_at
"""
"""SQL: what some lines of a member are asked for."""
PIECES = f"""
    select history, member, log, block, min(id) as first, count(*) as lines, min(at) as begins, count(bad) as bad,
        count(event) filter (where bad is null) as good, {LIFE}
    from {{parsed}} group by history, member, log, block
"""
"""SQL: for each member in each piece of a file (`block`) what must be known of all lines. `parsed`: the lines."""
HEARD_AT = "at - silent_ms"
"""SQL, of a suspicion or a removal: when its suspect was heard last; NULL: it does not tell.

A member that only serves callers writes no lines, often for hours: its last line alone would make a long outage of its crash.
"""


def lives(spark: QueryEngine, pieces: AuditTable) -> AuditTable:
    """Return each member's first and last own line, its end (NULL: not known), and the event that recorded the end."""
    return spark.sql(
        """
        select history, member, min(first_at) as first_at, max(last_at) as last_at, min(left_at) as left_at,
            min(ended_at) as ended_at, min(crashed_at) as crashed_at
        from {pieces} where good > 0 group by history, member
        """,
        pieces=pieces,
    )


def heard(spark: QueryEngine, pieces: AuditTable) -> AuditTable:
    """Return the members whose own lines would be here if there were any: what they did not record they did not do.

    What others noted of a process does not stand for its log, if it stands apart from all members' own lines; in a log
    of all that happened (a simulated history) it says that the member was there, and did nothing.
    """
    return spark.sql(
        """
        select distinct p.history, p.member from {pieces} p
        left semi join (select distinct history, log from {pieces} where first_at is not null) o
            on o.history = p.history and o.log = p.log
        """,
        pieces=pieces,
    )


def gaps(spark: QueryEngine, events: AuditTable) -> AuditTable:
    """Return gaps in event logs whose disk failed for a time: the member, how many events, and between which times."""
    return spark.sql(
        """
        select history, member, at - missing_ms as since, at as until, cast(missing as bigint) as missing, reason
        from {events} where family = 'others' and event = 'EventsLost'
        """,
        events=events,
    )


def absences(spark: QueryEngine, events: AuditTable) -> AuditTable:
    """Return `since` and `until` of each time in which a member did not run although its process went on."""
    return spark.sql(
        f"""
        select history, member, at - away_ms as since, at as until from {{events}} where family = 'others' and event = 'WokeUp'
        union all
        select history, member, at, coalesce(resumed, {FOREVER}) from (
            select history, member, what, at,
                lead(at) over (partition by history, member order by at, place, line) as resumed
            from {{events}} where family = 'others' and event = '{PROCESS_EVENT}' and what in ('paused', 'resumed')
        ) where what = 'paused'
        """,
        events=events,
    )


def main_line(spark: QueryEngine, views: AuditTable, members: AuditTable) -> list[Reign]:
    """Find the reigns of the cluster that went on, oldest first, for every history."""
    reigns = spark.sql(
        """
        select history, member, min(at) as since, max(at) as newest,
            min_by(prev.master, struct(at, line)) as before
        from {views} where master = member group by history, member
        """,
        views=views,
    ).collect()
    followed = spark.sql(
        """
        select v.history, v.master, count_if(m.ended_at is null) as alive, count(*) as all, max(v.at) as newest
        from {views} v join {members} m on m.history = v.history and m.member = v.member
        where v.later is null group by v.history, v.master
        """,
        views=views, members=members,
    ).collect()  # fmt: skip
    since: dict[tuple[str, str], int] = {(row.history, row.member): row.since for row in reigns}
    before: dict[tuple[str, str], str | None] = {(row.history, row.member): row.before for row in reigns}
    followers: dict[str, list[tuple[int, int, int, str]]] = defaultdict(list)
    for row in followed:
        followers[row.history].append((row.alive, row.newest if not row.alive else row.all, row.newest, row.master))
    line_of_masters = []
    for history in sorted(followers):
        line: list[str] = []
        master: str | None = max(followers[history])[3]
        while master is not None and master not in line:
            line.append(master)
            master = before.get((history, master))
        line.reverse()
        begins = [since.get((history, each)) for each in line]
        for number, each in enumerate(line):
            later = next((begin for begin in begins[number + 1 :] if begin is not None), None)
            begun = begins[number]
            line_of_masters.append(
                Reign(history, each, number, begun if begun is not None else 0, later if later is not None else FOREVER)
            )
    return line_of_masters


def sides(reigns: list[Reign], views: AuditTable) -> dict[str, int]:
    """Count for each history the masters outside the line: of sides that were given up, or are still apart."""
    on_line = {(each.history, each.master) for each in reigns}
    masters = views.where("master = member").select("history", "member").distinct().collect()
    return Counter(row.history for row in masters if (row.history, row.member) not in on_line)
