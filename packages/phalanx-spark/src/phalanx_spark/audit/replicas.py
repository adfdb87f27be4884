"""Which members held each partition when, on the line of the cluster that went on; what was lost, and where writes
waited.

A row of the table holds from the event that records it until the next one, and each replica of it until the list of the
line's master is without its member. So every replica is one interval, and nothing is counted twice.
"""

from __future__ import annotations

from phalanx_spark.audit.engine import AuditTable, Kept, QueryEngine
from phalanx_spark.audit.findings import line_of
from phalanx_spark.audit.lives import FOREVER, HEARD_AT
from phalanx_spark.audit.scratch import small
from phalanx_spark.audit.views import PATIENCE_MS


def departures(spark: QueryEngine, views: AuditTable, reigns: AuditTable) -> AuditTable:
    """Return which members left the line's list for good, and when: `history`, `member`, `at`, and the list's line.

    1. In a cut A, the master, removes B and C. 2. B claims with C, and the cluster goes on with them: nobody but A has
    left.
    """
    return spark.sql(
        """
        with lists as (
            select v.*, row_number() over (partition by v.history order by g.number, v.at, v.place, v.line) as nth
            from {views} v join {reigns} g on g.history = v.history and g.master = v.member and g.master = v.master
                and v.at between g.since and g.until
        ),
        present as (
            select history, each, max(nth) as nth from (select history, nth, explode(members) as each from lists) group by history, each
        )
        select p.history, p.each as member, l.at, l.view_version, l.log, l.line, l.member as master, l.maker
        from present p join lists l on l.history = p.history and l.nth = p.nth + 1
        """,
        views=views, reigns=reigns,
    )  # fmt: skip


def rows_of_table(spark: QueryEngine, events: AuditTable, reigns: AuditTable) -> AuditTable:
    """Return each row that a partition had, from `at` until `until`. `n` numbers them; a missing replica is NULL."""
    ours = spark.sql(
        """
        select e.history, g.number, e.at, e.place, e.line, e.log, e.member, e.event, e.kind, e.partition, e.replicas,
            e.replicas_now, e.rows, e.members, e.before, e.after
        from {events} e join {reigns} g on g.history = e.history and g.master = e.member and e.at between g.since and g.until
        where e.family in ('others', 'ends')
            and e.event in ('PartitionsAssigned', 'MigrationCommitted', 'PartitionLost', 'PartitionsDivided')
        """,
        events=events, reigns=reigns,
    )  # fmt: skip
    divisions = spark.sql(
        """
        select history, number, at, line, cast(before as int) as before, after,
            row_number() over (partition by history order by number, at, place, line) as nth
        from {ours} where event = 'PartitionsDivided'
        """,
        ours=ours,
    ).collect()
    recorded = _recorded_rows(spark, ours)
    divided = small(spark, [tuple(row) for row in divisions], _DIVIDED_DDL)
    of_divided = _recorded_rows(spark, ours.join(divided, "history", "left_semi"))
    for nth in range(1, max((row.nth for row in divisions), default=0) + 1):
        parts = _parts(spark, of_divided, divided.where(f"nth = {nth}"))
        recorded, of_divided = recorded.unionByName(parts), of_divided.unionByName(parts)
    return spark.sql(
        f"""
        select *, row_number() over own as n, greatest(at, coalesce(lead(at) over own, {FOREVER})) as until
        from {{recorded}} where replicas is not null
        window own as (partition by history, partition order by number, at, place, line)
        """,
        recorded=recorded,
    )


_OF_ROW = "history, number, at, place, line, log, member, event, kind"
_DIVIDED_DDL = "history string, number int, at bigint, line bigint, before int, after bigint, nth int"
_HANDS_OVER = "members want to hold nothing any more"
"""Why a plan was made that takes replicas from members which are leaving."""


def _recorded_rows(spark: QueryEngine, ours: AuditTable) -> AuditTable:
    """Return the rows of the table that events record: all of a new table, or one."""
    return spark.sql(
        f"""
        select {_OF_ROW}, part as partition, holders as replicas
        from {{ours}} lateral view inline(case event
            when 'PartitionsAssigned' then
                transform(sequence(0, size(rows) - 1), nth -> struct(nth as part,
                    transform(element_at(rows, nth + 1), place_ -> if(place_ < 0, null, element_at(members, place_ + 1))) as holders))
            when 'MigrationCommitted' then array(struct(partition as part, replicas as holders))
            when 'PartitionLost' then array(struct(partition as part, replicas_now as holders)) end) each as part, holders
        where part is not null
        """,
        ours=ours,
    )


def _parts(spark: QueryEngine, recorded: AuditTable, divided: AuditTable) -> AuditTable:
    """Return the rows that parts of divided partitions began with: that of the partition from which each part comes."""
    return spark.sql(
        """
        select history, now.number as number, now.at as at, place, now.line as line, log, member, 'PartitionsDivided' as event,
            kind, part as partition, replicas
        from (
            select t.*, struct(d.number, d.at, d.line) as now, row_number() over (
                    partition by t.history, t.partition order by t.number desc, t.at desc, t.place desc, t.line desc) as back,
                explode(sequence(t.partition + d.before, cast(d.after as int) - 1, d.before)) as part
            from {recorded} t join {divided} d on d.history = t.history and t.partition + d.before < d.after
                and t.partition < d.before and struct(t.number, t.at) <= struct(d.number, d.at)
        ) where back = 1
        """,
        recorded=recorded, divided=divided,
    )  # fmt: skip


def held(spark: QueryEngine, rows: AuditTable, gone: AuditTable) -> AuditTable:
    """Return each replica of each row: `index` (0: the owner), `at`, `until`, and `gone_at`, when its member left."""
    return spark.sql(
        """
        select r.history, r.partition, r.n, r.at, r.until, r.index, r.replica as member, g.at as gone_at
        from (select *, posexplode(replicas) as (index, replica) from {rows}) r
        left join {gone} g on g.history = r.history and g.member = r.replica
        where r.replica is not null
        """,
        rows=rows, gone=gone,
    )  # fmt: skip


def replica_findings(
    kept: Kept, events: AuditTable, members: AuditTable, reigns: AuditTable, rows: AuditTable, replicas: AuditTable
) -> list[AuditTable]:
    """Return findings about commits that left a partition with fewer replicas than it had, although members for as many
    are there.

    Members that are leaving do not count, nor does what they held. Partitions that had fewer of them after any commit
    are found first, by numbers alone; what the master had recorded before is looked up for these commits only.
    """
    spark, keys = kept.spark, ["history", "partition"]
    fewer = kept.save(spark.sql(
        """
        with counts as (
            select history, partition, n, count_if(gone_at is null or gone_at > at) as has,
                count_if(gone_at is null or gone_at > until) as keeps
            from {replicas} group by history, partition, n
        ),
        steps as (
            select r.history, r.partition, r.event, r.kind, coalesce(c.has, 0) as has,
                lag(coalesce(c.keeps, 0)) over (partition by r.history, r.partition order by r.n) as had
            from {rows} r left join counts c on c.history = r.history and c.partition = r.partition and c.n = r.n
        )
        select distinct history, partition from steps where event = 'MigrationCommitted' and kind <> 'clear' and has < had
        """,
        rows=rows, replicas=replicas,
    ), "fewer")  # fmt: skip
    if fewer.isEmpty():
        return []
    rows, replicas = rows.join(fewer, keys, "left_semi"), replicas.join(fewer, keys, "left_semi")
    found = spark.sql(
        f"""
        with counts as (
            select history, partition, n,
                collect_list(member) filter (where gone_at is null or gone_at > at) as has,
                collect_list(member) filter (where gone_at is null or gone_at > until) as keeps
            from {{replicas}} group by history, partition, n
        ),
        leaving as (
            select history, collect_set(leaver) as leavers from (
                select history, leaver from {{events}} where family = 'others' and event = 'LeaveStarted'
                union all select history, member from {{members}} where left_at is not null
            ) group by history
        ),
        steps as (
            select r.*, coalesce(c.has, array()) as has,
                lag(struct(r.log, r.line, r.at, r.member, r.event, r.replicas, coalesce(c.keeps, array()) as keeps)) over (
                    partition by r.history, r.partition order by r.n) as prev
            from {{rows}} r left join counts c on c.history = r.history and c.partition = r.partition and c.n = r.n
        ),
        fell as (
            select * from steps where event = 'MigrationCommitted' and kind <> 'clear' and size(has) < size(prev.keeps)
        ),
        told as (
            select history, member, at, place, line,
                struct(history, partition, kind, at, log, line, member, event, replicas, has, prev) as step, null as reason, null as wanted_replicas, null as members from fell
            union all
            select e.history, e.member, e.at, e.place, e.line, null, if(e.event = 'MigrationsPlanned', e.reason, null), e.wanted_replicas,
                if(e.event = 'ViewInstalled', e.members, null)
            from {{events}} e join {{reigns}} g on g.history = e.history and g.master = e.member
                and e.at between g.since and g.until
            where e.family in ('others', 'lists') and e.event in ('MigrationsPlanned', 'ViewInstalled')
        ),
        known as (
            select step, last_value(reason, true) over own as plan, last_value(wanted_replicas, true) over own as wanted, last_value(members, true) over own as list
            from told
            window own as (partition by history, member order by at, place, line)
        )
        select 'replicas' as property, s.history, s.at,
            concat('partition ', partition, ' had ', size(prev.keeps), ' replicas, and ', size(has), ' after a ', kind) as what,
            array({line_of("s.prev", _holders_of("s.prev"))}, {line_of("s", _holders_of("s"))}) as lines
        from (select step.*, plan, wanted, list from known where step is not null) s left join leaving l on l.history = s.history
        where coalesce(plan, '') <> '{_HANDS_OVER}'
            and size(has) < least(size(prev.keeps), coalesce(wanted, size(prev.keeps)), size(array_except(list, coalesce(leavers, array()))))
            and size(array_except(array_except(prev.keeps, has), coalesce(leavers, array()))) > 0
        """,
        events=events, members=members, reigns=reigns, rows=rows, replicas=replicas,
    )  # fmt: skip
    return [found]


def _holders_of(row: str) -> str:
    return f"concat('held by ', array_join({row}.replicas, ', ', '(nobody)'))"


# --- losses ---------------------------------------------------------------------------------------------------------


def losses(spark: QueryEngine, events: AuditTable, reigns: AuditTable) -> AuditTable:
    """Return the partitions that began empty on the line; `back`: when a former holder had brought its data back.

    Data is not lost if the last members, told to leave, took it along: somebody stopped the whole cluster.
    """
    return spark.sql(
        """
        with lost as (
            select e.* from {events} e
            join {reigns} g on g.history = e.history and g.master = e.member and e.at between g.since and g.until
            left join (
                select history, member, min(at) as at from {events} where family = 'others' and event = 'LastMembersLeave' group by all
            ) over_ on over_.history = e.history and over_.member = e.member and over_.at <= e.at
            where e.family = 'others' and e.event = 'PartitionLost' and size(e.replicas) > 0 and over_.at is null
        )
        select l.history, l.partition, l.at, l.log, l.line, l.member, l.event, l.replicas, min(m.at) as back
        from lost l left join (select * from {events} where family = 'others' and event = 'MergeEnded') m
        on m.history = l.history and m.at >= l.at and array_contains(l.replicas, m.former)
        group by all
        """,
        events=events, reigns=reigns,
    )  # fmt: skip


def loss_findings(spark: QueryEngine, lost: AuditTable) -> AuditTable:
    """Return findings about losses of which nothing came back: one for all partitions lost in one moment."""
    holders = "concat('partition ', l.partition, ' was held by ', array_join(l.replicas, ', ', '(nobody)'))"
    return spark.sql(
        f"""
        select 'no_loss' as property, history, at,
            concat(size(lines), if(size(lines) = 1, ' partition', ' partitions'), ' lost all replicas by ', member, ': ',
                   array_join(slice(array_sort(partitions), 1, 10), ', '), if(size(lines) > 10, ', …', '')) as what,
            slice(lines, 1, 3) as lines
        from (
            select history, at, member, collect_list(partition) as partitions, sort_array(collect_list({line_of("l", holders)})) as lines
            from {{lost}} l where back is null group by history, at, member
        )
        """,
        lost=lost,
    )


# --- writes that wait -----------------------------------------------------------------------------------------------


def outages(
    spark: QueryEngine, events: AuditTable, replicas: AuditTable, gone: AuditTable, members: AuditTable, away: AuditTable,
    reigns: AuditTable,
) -> AuditTable:  # fmt: skip
    """Return the owners that left without handing over: `member`, `partitions` it owned, from `since` (its last sign of
    life) until others owned them (`until`, NULL: not known).
    """
    return spark.sql(
        f"""
        with owners as (
            select history, member, gone_at, count(distinct partition) as partitions
            from {{replicas}} where index = 0 and gone_at >= at and gone_at < until group by all
        ),
        repaired as (
            select e.history, gone_ as member, min(e.at) as at from (select *, explode(gone) as gone_ from {{events}}
                where family = 'others' and event = 'PartitionsRepaired') e
            join {{reigns}} g on g.history = e.history and g.master = e.member and e.at between g.since and g.until
            group by all
        ),
        absent as (
            select o.history, o.member, min(a.since) as since from owners o join {{away}} a
            on a.history = o.history and a.member = o.member and o.gone_at between a.since and a.until group by all
        ),
        suspected as (
            select o.history, o.member, min(s.at) as at, max(s.heard_at) as heard_at
            from owners o join (select *, {HEARD_AT} as heard_at from {{events}} where family = 'others' and event = 'MemberSuspected') s
            on s.history = o.history and s.suspect = o.member and s.at between o.gone_at - 120000 and o.gone_at group by all
        )
        select o.history, o.member, o.partitions, o.gone_at,
            least(o.gone_at, coalesce(m.crashed_at, a.since, greatest(if(m.last_at < o.gone_at, m.last_at, null), s.heard_at), s.at, o.gone_at)) as since,
            greatest(r.at, o.gone_at) as until, g.log, g.line, g.master,
            case when m.crashed_at is not null then 'crashed' when a.since is not null then 'hung'
                 when m.member is null then 'no log' when m.last_at >= o.gone_at then 'cut off' else 'silent' end as cause
        from owners o
        left join {{members}} m on m.history = o.history and m.member = o.member
        left join {{gone}} g on g.history = o.history and g.member = o.member
        left join repaired r on r.history = o.history and r.member = o.member
        left join absent a on a.history = o.history and a.member = o.member
        left join suspected s on s.history = o.history and s.member = o.member
        """,
        events=events, replicas=replicas, gone=gone, members=members, away=away, reigns=reigns,
    )  # fmt: skip


def refusals(spark: QueryEngine, events: AuditTable, members: AuditTable) -> AuditTable:
    """Return the times in which a member refused writes of a protected map, or waited for a migration's outcome (`map`
    NULL).
    """
    return spark.sql(
        """
        with told as (
            select *, lead(at) over (partition by history, member, map order by at, place, line) as next_at
            from {events} where family = 'others' and event = 'ProtectionChanged'
        ),
        sealed as (
            select s.history, s.member, s.log, s.line, s.event, s.at, s.partition, min(f.at) as until
            from (select * from {events} where family = 'finals' and event = 'PartitionSealed') s
            left join (select * from {events} where family = 'finals' and event = 'MigrationFinalized' and endpoint = 'source') f
            on f.history = s.history and f.member = s.member and f.partition = s.partition
                and f.partition_version >= s.partition_version and f.at >= s.at
            group by all
        )
        select r.*, m.ended_at, m.removed_at from (
            select history, member, log, line, event, at, cast(null as int) as partition, map, next_at as until
            from told where refuses and writes
            union all select history, member, log, line, event, at, partition, null, until from sealed
        ) r join {members} m on m.history = r.history and m.member = r.member
        """,
        events=events, members=members,
    )  # fmt: skip


def write_findings(spark: QueryEngine, waits: AuditTable, out: AuditTable, spans: AuditTable) -> list[AuditTable]:
    """Return findings about times without writes that are not over when the logs end."""
    sealed = "concat('sealed partition ', w.partition)"
    refused = "concat('refuses writes of ', w.map)"
    endless = spark.sql(
        f"""
        select 'writes' as property, w.history, w.at,
            concat(w.member, if(map is null, concat(' waits for the outcome of a migration of partition ', partition),
                                concat(' refuses writes of ', map)), ' until the logs end') as what,
            array({line_of("w", f"if(w.map is null, {sealed}, {refused})")}) as lines
        from {{waits}} w join {{spans}} s on s.history = w.history
        where until is null and ended_at is null and removed_at is null and s.ends >= w.at + {PATIENCE_MS}
        """,
        waits=waits, spans=spans,
    )  # fmt: skip
    ownerless = spark.sql(
        f"""
        select 'writes' as property, o.history, o.gone_at as at,
            concat(o.partitions, ' partitions of ', o.member, ' had no other owner until the logs end') as what,
            array(named_struct('log', o.log, 'line', o.line, 'at', o.gone_at, 'member', o.master, 'event', 'ViewInstalled',
                               'told', concat('list without ', o.member))) as lines
        from {{out}} o join {{spans}} s on s.history = o.history where o.until is null and s.ends >= o.gone_at + {PATIENCE_MS}
        """,
        out=out, spans=spans,
    )  # fmt: skip
    return [endless, ownerless]
