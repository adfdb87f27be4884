"""What became of migrations: one result each, how long they took, and how many went on at once."""

from __future__ import annotations

from phalanx_spark.audit.engine import AuditTable, Kept, QueryEngine
from phalanx_spark.audit.findings import line_of
from phalanx_spark.audit.views import PATIENCE_MS

_ENDS = "'MigrationCommitted', 'MigrationRolledBack'"


def migrations(spark: QueryEngine, events: AuditTable) -> AuditTable:
    """Return each order of a master with the first end that it recorded: `result` is that event, or NULL."""
    return spark.sql(
        """
        with orders as (select * from {events} where family = 'moves'),
        ends as (
            select history, member, partition, partition_version,
                min_by(struct(at, event, reason), struct(at, line)) as ended
            from {events} where family = 'ends' group by all
        )
        select o.history, o.member as master, o.log, o.line, o.event, o.partition, o.partition_version, o.kind,
            o.source, o.destination, o.at, e.ended.at as ended_at, e.ended.event as result, e.ended.reason as reason
        from orders o left join ends e on e.history = o.history and e.member = o.member and e.partition = o.partition
            and e.partition_version = o.partition_version
        """,
        events=events,
    )


def result_findings(
    kept: Kept, events: AuditTable, moves: AuditTable, reigns: AuditTable, members: AuditTable
) -> list[AuditTable]:
    """Return findings about migrations with two results: of one master, or of a master and a participant.

    Two masters can each have ordered the same migration: a rollback by a master that nobody followed any more binds
    nobody. Whether there are any such results is asked first: that needs few columns, and most often the answer is no.
    """
    spark, order = kept.spark, "concat(r.kind, ' of partition ', r.partition, ' (version ', r.partition_version, ')')"
    results = spark.sql("select * from {events} where family = 'ends'", events=events)
    keys = ["history", "partition", "partition_version", "member"]
    again = kept.save(spark.sql(
        f"select {', '.join(keys)} from {{results}} group by all having count(*) > 1", results=results
    ), "again")  # fmt: skip
    twice = spark.sql(
        f"""
        select 'one_result' as property, history, first.at as at,
            concat(first.told, ' ended twice: ', first.event, ' and ', last.event) as what,
            array({line_of("first", "first.told")}, {line_of("last", "last.told")}) as lines
        from (
            select history, partition, partition_version, member,
                min(struct(at, line, log, member, event, {order} as told)) as first,
                max(struct(at, line, log, member, event, {order} as told)) as last, count(*) as results
            from {{results}} r group by all
        ) where results > 1
        """,
        results=results.join(again, keys, "left_semi"),
    )
    clashes = kept.save(spark.sql(
        f"""
        select r.history, r.member, r.partition, r.partition_version, r.at, f.at as final_at, f.member as participant,
            concat({order}, ' is ', if(f.committed, 'committed', 'rolled back'), ' for ', f.member, ', and for its master ',
                   if(f.committed, 'rolled back', 'committed')) as what,
            array({line_of("r", order)}, {line_of("f", "concat(f.endpoint, if(f.committed, ': committed', ': rolled back'))")})
                as lines
        from {{results}} r join {{events}} f on f.history = r.history and f.family = 'finals' and f.event = 'MigrationFinalized'
            and f.partition = r.partition and f.partition_version = r.partition_version
            and f.member = if(f.endpoint = 'source', r.source, r.destination)
            and f.committed <> (r.event = 'MigrationCommitted')
            and f.current_replica_index = if(f.endpoint = 'source', r.source_current_index, r.destination_current_index)
            and f.new_replica_index = if(f.endpoint = 'source', r.source_new_index, r.destination_new_index)
        """,
        results=results, events=events,
    ), "clashes")  # fmt: skip
    participants = spark.sql(
        """
        select 'one_result' as property, c.history, c.at, c.what, c.lines
        from {clashes} c join {reigns} g on g.history = c.history and g.master = c.member and c.at between g.since and g.until
        join {moves} o on o.history = c.history and o.master = c.member and o.partition = c.partition
            and o.partition_version = c.partition_version and c.final_at >= o.at
        join {members} m on m.history = c.history and m.member = c.participant
        where m.removed_at is null or m.removed_at > greatest(c.final_at, c.at)
        """,
        clashes=clashes, moves=moves, reigns=reigns, members=members,
    )  # fmt: skip
    return [each for each, found in ((twice, again), (participants, clashes)) if not found.isEmpty()]


def open_orders(
    spark: QueryEngine, moves: AuditTable, reigns: AuditTable, members: AuditTable, spans: AuditTable
) -> AuditTable:
    """Return the orders of the last master, if it still runs, whose result no log has: `property`, `history`, `what`."""
    return spark.sql(
        f"""
        select 'one_result' as property, o.history,
            concat('the result of the ', kind, ' of partition ', partition, ' (version ', partition_version, '), ordered by ',
                   o.master, ' ', ends - at, ' ms before the logs end: ', log, ' line ', line) as what
        from {{moves}} o join {{reigns}} g on g.history = o.history and g.master = o.master
        join {{members}} m on m.history = o.history and m.member = o.master
        join {{spans}} s on s.history = o.history
        where result is null and o.at >= g.since and g.until > ends and m.ended_at is null and ends >= at + {PATIENCE_MS}
        """,
        moves=moves, reigns=reigns, members=members, spans=spans,
    )  # fmt: skip
