"""How good the failure detector was: which suspicions were right, and how long it took to notice an end.

A suspicion is judged by what the suspect's own log says of that time:

| kind | the suspect |
|---|---|
| crashed | had ended, by its own log, by the log of what ran it, or because its log ends before |
| hung | did not run, and says so when it woke up |
| cut off | ran, on another side: it, or the master that it followed, suspected the other one as well |
| false | ran, and could be heard |
| no log | left no log: nothing can be said |

If no log says when a process ended, its last line stands for that: the time to detection is then an upper bound.
"""

from __future__ import annotations

from phalanx_spark.audit.engine import AuditTable, Kept, QueryEngine
from phalanx_spark.audit.findings import line_of
from phalanx_spark.audit.lives import HEARD_AT

MUTUAL_WITHIN_MS = 60_000
ENDED_WITHIN_MS = 1_000
"""A member that says that it has ended so shortly after it was suspected had closed its connections first."""


def suspicions(
    kept: Kept, events: AuditTable, members: AuditTable, away: AuditTable, gone: AuditTable, views: AuditTable
) -> AuditTable:
    """Return each suspicion and each removal from the line's list, with its `kind` and the time to detection
    (`took_ms`).

    Intermediate tables are kept in the scratch: they are read four times, and Spark would plan them as often.
    """
    asked = kept.save(_asked(kept.spark, events, gone), "asked")
    silences = kept.save(_silences(kept.spark, events, views), "silences")
    return kept.spark.sql(
        f"""
        select history, member, log, line, event, at, suspect, reason, did, taken_back_at,
            kind, case kind when 'crashed' then greatest(at - coalesce(crashed_at, greatest(least(ended_at, last_at), heard_at)), 0)
                when 'hung' then at - hung_since end as took_ms,
            kind = 'crashed' and crashed_at is null as is_bound, left_at
        from (
            select *, max({HEARD_AT}) over (partition by history, suspect order by at) as heard_at, case
                when hung_since is not null then 'hung'
                when not is_known then 'no log'
                when coalesce(crashed_at, ended_at) <= at + {ENDED_WITHIN_MS} then 'crashed'
                when last_at < at and taken_back_at is null then 'crashed'
                when is_cut then 'cut off'
                else 'false' end as kind
            from {{suspicions}}
        )
        """,
        suspicions=_with_suspects_state(kept.spark, asked, silences, events, members, away),
    )


def _asked(spark: QueryEngine, events: AuditTable, gone: AuditTable) -> AuditTable:
    """Return what must be judged: suspicions, and removals by others that neither a leave nor a new incarnation
    explains.
    """
    return spark.sql(
        """
        select history, member, log, line, event, at, suspect, reason, silent_ms, 'suspected' as did
        from {events} where family = 'others' and event = 'MemberSuspected' and suspect is not null
        union all
        select g.history, g.master, g.log, g.line, 'ViewInstalled', g.at, g.member, coalesce(r.reason, 'left out of its list'),
            cast(null as bigint), 'removed'
        from {gone} g
        left join (select * from {events} where family = 'others' and event = 'MemberRemoved') r
        on r.history = g.history and r.member = g.master and r.removed = g.member and r.view_version = g.view_version
        left anti join (select history, member, explode(replaced) as replaced from {events} where family = 'others' and event = 'MemberAdmitted') n
        on n.history = g.history and n.replaced = g.member
        where g.maker <> g.member and coalesce(r.reason, '') <> 'it left' and coalesce(r.rule, '') not like 'PD%'
        """,
        events=events, gone=gone,
    )  # fmt: skip


def _silences(spark: QueryEngine, events: AuditTable, views: AuditTable) -> AuditTable:
    """Return which members a member did not hear, by its own detector or its list maker's; not what others reported
    (CS-40).
    """
    return spark.sql(
        """
        with own as (
            select history, member, suspect, at from {events}
            where family = 'others' and event = 'MemberSuspected' and rule like 'CS-33%'
        )
        select * from own
        union all
        select v.history, v.member, o.suspect, o.at from own o
        join (select distinct history, member, maker from {views} where maker <> member) v
        on v.history = o.history and v.maker = o.member
        """,
        events=events, views=views,
    )  # fmt: skip


def _with_suspects_state(
    spark: QueryEngine,
    asked: AuditTable,
    silences: AuditTable,
    events: AuditTable,
    members: AuditTable,
    away: AuditTable,
) -> AuditTable:
    """Add to each suspicion whether the suspect is known, when it ended, since when it hung, whether it heard nothing
    either (`is_cut`), and when the suspicion was taken back.
    """
    return spark.sql(
        """
        select a.*, m.member is not null and m.first_at is not null as is_known, m.last_at, m.ended_at, m.crashed_at, m.left_at,
            w.since as hung_since, c.at is not null as is_cut, t.at as taken_back_at
        from {asked} a
        left join {members} m on m.history = a.history and m.member = a.suspect
        left join (
            select x.history, x.suspect, x.at, min(y.since) as since from {asked} x join {away} y
            on y.history = x.history and y.member = x.suspect and x.at between y.since and y.until group by all
        ) w on w.history = a.history and w.suspect = a.suspect and w.at = a.at
        left join (
            select distinct x.history, x.suspect, x.member, x.at as asked_at, x.at from {asked} x
            join {silences} y on y.history = x.history and y.member = x.suspect and y.suspect = x.member
                and y.at between x.at - {within} and x.at + {within}
        ) c on c.history = a.history and c.suspect = a.suspect and c.member = a.member and c.asked_at = a.at
        left join (
            select x.history, x.suspect, x.member, x.at as asked_at, min(y.at) as at from {asked} x
            join (select history, member, suspect, at from {events} where family = 'others' and event = 'SuspicionRemoved') y
            on y.history = x.history and y.member = x.member and y.suspect = x.suspect and y.at >= x.at group by all
        ) t on t.history = a.history and t.suspect = a.suspect and t.member = a.member and t.asked_at = a.at
        """,
        asked=asked, silences=silences, members=members, away=away, events=events, within=MUTUAL_WITHIN_MS,
    )  # fmt: skip


def removal_findings(spark: QueryEngine, judged: AuditTable, events: AuditTable) -> list[AuditTable]:
    """Return findings about live members that were removed. What they did next is read only if there are any."""
    if judged.where("did = 'removed' and kind = 'false'").isEmpty():
        return []
    found = spark.sql(
        f"""
        select 'detector' as property, r.history, r.at, concat(r.suspect, ' was removed by ', r.member, ', and ran') as what,
            array({line_of("r", "r.reason")}, alive) as lines
        from {{judged}} r join (
            select x.history, x.suspect, x.at, min_by({line_of("e", "'it runs'")}, struct(e.at, e.place, e.line)) as alive
            from {{judged}} x join {{events}} e on e.history = x.history and e.member = x.suspect and e.at > x.at
                and e.event not in ('WokeUp', 'ProcessStruck')
            where x.did = 'removed' and x.kind = 'false' group by all
        ) a on a.history = r.history and a.suspect = r.suspect and a.at = r.at
        where r.did = 'removed' and r.kind = 'false'
        """,
        judged=judged, events=events,
    )  # fmt: skip
    return [found]


def quality(spark: QueryEngine, judged: AuditTable) -> AuditTable:
    """Count the suspicions of each kind, with detection times: `did`, `kind`, `count`, `taken_back`, median, p99 and
    max of `took_ms`.

    Only the first notice of an end counts as its detection.
    """
    return spark.sql(
        """
        with firsts as (
            select *, row_number() over (partition by history, did, suspect, kind order by at) as nth from {judged}
        )
        select did, kind, count(*) as count, count(taken_back_at) as taken_back, count(distinct history, suspect) as members,
            percentile(took_ms, 0.5) filter (where nth = 1) as median_ms,
            percentile(took_ms, 0.99) filter (where nth = 1) as p99_ms, max(took_ms) filter (where nth = 1) as max_ms,
            count_if(is_bound and nth = 1) as bounds
        from firsts group by did, kind order by did, kind
        """,
        judged=judged,
    )
