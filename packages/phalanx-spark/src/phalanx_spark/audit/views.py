"""M1 to M3, versions and mastership, from the lists that members installed (docs/protocol/membership.md).

M1 is judged over all members together: what each installed next makes one graph of views, and a circle in it is a
conflict, also one through several members. Versions that only grow leave no circle: the graph is looked at only for
histories in which a member stepped back.

M2 is judged as members can keep it: every list is whole, so a member that missed one and installed a later one knows what
it said. M2 is then about the last list of each member that still runs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

from phalanx_spark.audit.engine import AuditTable, QueryEngine
from phalanx_spark.audit.findings import FINDING_DDL, line_of, list_of
from phalanx_spark.audit.scratch import small

PATIENCE_MS = 30_000
"""A list that was published so shortly before the logs end can still have been on its way, and an order not carried out."""
MOST_STEPS = 200_000
"""The most different steps between views that are searched for circles, in histories with a step back."""

ViewId = tuple[str, int, str]
"""History, version, maker."""


def installed_views(spark: QueryEngine, events: AuditTable) -> AuditTable:
    """Return the views that every member installed, each with the one before (`prev`) and whether one came `later`."""
    return spark.sql(
        """
        select history, member, log, line, at, place, event, view_version, maker, master, members,
            lag(struct(log, line, at, member, event, view_version, maker, master, members)) over own as prev,
            lead(at) over own as later
        from {events} where family = 'lists' and event = 'ViewInstalled' and members is not null and view_version is not null
        window own as (partition by history, member order by at, place, line)
        """,
        events=events,
    )


def view_findings(spark: QueryEngine, events: AuditTable, views: AuditTable, members: AuditTable) -> list[AuditTable]:
    """Return all findings about lists except M1 and M2."""
    kinds = [_INTEGRITY, _ONE_LIST, _FIRST_IS_MASTER, _VERSION_BACK, _MAKER, _MASTER_UNKNOWN, _MASTER_OLD, _NO_CLAIM]
    return [spark.sql(kind, views=views, events=events, members=members) for kind in (*kinds, _NOT_AGREED)]


def table_findings(spark: QueryEngine, events: AuditTable) -> list[AuditTable]:
    """Return findings about partition tables that went back."""
    return [spark.sql(_TABLE_BACK, events=events)]


_INTEGRITY = f"""
    select 'view_integrity' as property, history, at, concat(member, ' installed a list without itself') as what,
        array({line_of("v", list_of("v"))}) as lines
    from {{views}} v where not array_contains(members, member)
"""

_ONE_LIST = f"""
    select 'one_list' as property, history, a.at as at,
        concat('version ', view_version, ' by ', maker, ' means two lists') as what,
        array({line_of("a", list_of("a"))}, {line_of("b", list_of("b"))}) as lines
    from (
        select history, view_version, maker,
            min(struct(members, at, log, line, member, event, view_version, maker)) as a,
            max(struct(members, at, log, line, member, event, view_version, maker)) as b
        from {{views}} group by history, view_version, maker
    ) where a.members <> b.members
"""

_FIRST_IS_MASTER = f"""
    select 'one_list' as property, history, at, concat(master, ' is the master, and not the first of the list') as what,
        array({line_of("v", list_of("v"))}) as lines
    from {{views}} v where master <> members[0]
"""

_VERSION_BACK = f"""
    select 'versions' as property, history, at,
        concat(member, ' installed list ', view_version, ' after ', prev.view_version) as what,
        array({line_of("prev", list_of("prev"))}, {line_of("v", list_of("v"))}) as lines
    from {{views}} v where view_version <= prev.view_version
"""

_TABLE_BACK = f"""
    select 'versions' as property, history, at,
        concat(member, ' installed partition table ', table_version, ' after ', prev.table_version) as what,
        array({line_of("prev", "concat('table ', prev.table_version)")}, {line_of("t", "concat('table ', t.table_version)")}) as lines
    from (
        select *, lag(struct(log, line, at, member, event, table_version)) over (
            partition by history, member order by at, place, line) as prev
        from {{events}} where family = 'tables'
    ) t where table_version < prev.table_version
"""

_MAKER = f"""
    select 'masters' as property, history, at,
        concat(maker, ' made a list of which ', master, ' is the master, and is in it itself') as what,
        array({line_of("v", list_of("v"))}) as lines
    from {{views}} v where maker <> master and array_contains(members, maker)
"""

_MASTER_UNKNOWN = f"""
    select 'masters' as property, history, at,
        concat(member, ' changed to a master that was not in its list: from ', prev.master, ' to ', master) as what,
        array({line_of("prev", list_of("prev"))}, {line_of("v", list_of("v"))}) as lines
    from {{views}} v where master <> prev.master and not array_contains(prev.members, master)
"""

_MASTER_OLD = f"""
    select 'masters' as property, history, at,
        concat(member, ' changed to ', master, ' as its master, and keeps somebody older: ', array_join(kept, ', ')) as what,
        array({line_of("v.prev", list_of("v.prev"))}, {line_of("v", list_of("v"))}) as lines
    from (
        select *, filter(slice(prev.members, 1, cast(array_position(prev.members, master) as int) - 1),
            each -> array_contains(members, each)) as kept
        from {{views}} where master <> prev.master and array_position(prev.members, master) > 1
    ) v where size(kept) > 0
"""

_NO_CLAIM = f"""
    select 'masters' as property, v.history, v.at,
        concat(v.member, ' made itself the master without a claim') as what,
        array({line_of("v.prev", list_of("v.prev"))}, {line_of("v", list_of("v"))}) as lines
    from (select * from {{views}} where maker = member and prev.master <> member) v
    left anti join (select history, member, at from {{events}} where family = 'others' and event = 'ClaimStarted') c
    on c.history = v.history and c.member = v.member and c.at between v.prev.at and v.at
"""

_NOT_AGREED = f"""
    select 'masters' as property, v.history, v.at,
        concat(v.member, ' has members in its first list as the master that did not agree with its claim: ',
               array_join(sort_array(collect_list(other)), ', ')) as what,
        array({line_of("v", list_of("v"))}) as lines
    from (
        select *, explode(filter(members, x -> x <> member)) as other
        from {{views}} where maker = member and prev.master <> member
    ) v
    left semi join {{members}} k on k.history = v.history and k.member = v.other
    left anti join (select history, member, claimer from {{events}} where family = 'others' and event = 'ClaimAnswered' and accepted) c
    on c.history = v.history and c.member = v.other and c.claimer = v.member
    group by v.history, v.log, v.line, v.at, v.member, v.event, v.view_version, v.maker, v.members
"""


def agreement(
    spark: QueryEngine, views: AuditTable, members: AuditTable, spans: AuditTable
) -> tuple[AuditTable, AuditTable]:
    """Judge M2. Return the findings, and what cannot be told (`property`, `history`, `what`).

    `members`: see `lives`; `spans`: of each history its first and last time.
    """
    unmet = spark.sql(
        """
        with final as (select * from {views} where later is null),
        judged as (
            select p.*, s.ends, m.last_at as lived_until
            from final p
            join {members} m on m.history = p.history and m.member = p.member and m.ended_at is null
            join final h on h.history = p.history and h.member = p.master and array_contains(h.members, p.member)
            join {members} n on n.history = h.history and n.member = h.member and n.ended_at is null
            join {spans} s on s.history = p.history
        ),
        pairs as (select *, explode(members) as other from judged)
        select p.*, q.last_at as other_last, q.member is not null as other_known, q.ended_at as other_ended,
            f.log as other_log, f.line as other_line, f.at as other_at, f.view_version as other_version,
            f.maker as other_maker, f.members as other_members
        from pairs p
        left join {members} q on q.history = p.history and q.member = p.other
        left join final f on f.history = p.history and f.member = p.other
        where p.other <> p.member and coalesce(f.view_version, -1) < p.view_version
        """,
        views=views, members=members, spans=spans,
    )  # fmt: skip
    had = (
        "if(other_log is null, array(), array(named_struct('log', other_log, 'line', other_line, 'at', other_at, 'member', other, "
        "'event', 'ViewInstalled', 'told', concat('list ', other_version, ' by ', other_maker, ': ', array_join(other_members, ', ')))))"
    )
    found = spark.sql(
        f"""
        select 'view_agreement' as property, history, at,
            concat(member, ' installed list ', view_version, ' for the last time, and ', other, ' never did, or a later one')
                as what,
            concat(array({line_of("u", list_of("u"))}), {had}) as lines
        from {{unmet}} u where other_known and {_IS_LATE}
        """,
        unmet=unmet,
    )
    untold = spark.sql(
        f"""
        select 'view_agreement' as property, history,
            if(other_known,
               concat('the logs end ', ends - at, ' ms after list ', view_version, ' of ', member, ', which ', other, ' has not yet'),
               concat('the log of ', other, ', which is in list ', view_version, ' of ', member)) as what
        from {{unmet}} where not other_known or not {_IS_LATE}
        """,
        unmet=unmet,
    )
    return found, untold


_IS_LATE = f"(ends >= at + {PATIENCE_MS} and (lived_until >= at + {PATIENCE_MS} or member <> master))"


# --- M1 -------------------------------------------------------------------------------------------------------------


def order_findings(spark: QueryEngine, views: AuditTable) -> tuple[list[AuditTable], list[tuple[str, str, str]]]:
    """Judge M1. Return the findings, and what cannot be told, as rows of `property`, `history`, `what`."""
    steps = spark.sql(
        f"""
        with back as (select distinct history from {{views}} where view_version <= prev.view_version)
        select v.history, prev.view_version as from_version, prev.maker as from_maker, view_version, maker,
            min(struct(at, array({line_of("prev", list_of("prev"))}, {line_of("v", list_of("v"))}) as lines)) as first
        from {{views}} v left semi join back on back.history = v.history
        where prev is not null group by all limit {MOST_STEPS + 1}
        """,
        views=views,
    ).collect()
    untold: list[tuple[str, str, str]] = []
    if len(steps) > MOST_STEPS:
        untold.append(
            (
                "view_order",
                "",
                f"more than {MOST_STEPS:,} different steps from list to list are not searched for circles",
            )
        )
    rows = []
    for circle in _circles(steps):
        lines = [line for step in circle for line in step.first.lines]
        who = ", ".join(
            f"{step.first.lines[1].member} installed {step.from_version}, then {step.view_version}" for step in circle
        )
        rows.append(("view_order", circle[0].history, circle[0].first.at, f"a circle of views: {who}", lines))
    return ([small(spark, rows, FINDING_DDL)] if rows else []), untold


def _circles(steps: list[Any]) -> list[list[Any]]:
    """Return for each step back the shortest way to where it began."""
    following: dict[ViewId, list[Any]] = defaultdict(list)
    for step in sorted(steps, key=lambda each: (each.history, each.from_version, each.from_maker, each.view_version)):
        following[(step.history, step.from_version, step.from_maker)].append(step)
    found = []
    for step in steps:
        if step.view_version <= step.from_version:
            start, end = (
                (step.history, step.view_version, step.maker),
                (step.history, step.from_version, step.from_maker),
            )
            way = _way(following, start, end)
            if way is not None:
                found.append([step, *way])
    return sorted(found, key=lambda circle: (circle[0].history, len(circle), circle[0].first.at))


def _way(following: dict[ViewId, list[Any]], start: ViewId, end: ViewId) -> list[Any] | None:
    came_by: dict[ViewId, Any] = {start: None}
    to_do = deque([start])
    while to_do:
        view = to_do.popleft()
        if view == end:
            way = []
            while (step := came_by[view]) is not None:
                way.append(step)
                view = (step.history, step.from_version, step.from_maker)
            return way[::-1]
        for step in following.get(view, ()):
            came_by.setdefault((target := (step.history, step.view_version, step.maker)), step)
            if came_by[target] is step:
                to_do.append(target)
    return None
