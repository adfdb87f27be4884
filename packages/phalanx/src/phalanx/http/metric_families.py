"""The families of metrics of a member: names, units and meanings. What is counted by map is in `map_metrics`, the text is made in `metrics`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from phalanx.common.errors import ClientClosed, ErrorCode, UnavailableError
from phalanx.common.ids import Millis, Target
from phalanx.http.durations import Durations
from phalanx.http.served_member import Questions, ServedMember, why_not_ready
from phalanx.membership.detect.suspicion import Trust

RELEASE: Final = version("phalanx")


class CallSeries(Protocol):
    """The calls of one operation on one map: `Durations`, with errors (`runtime.call_statistics.Calls`)."""

    @property
    def ends_s(self) -> tuple[float, ...]: ...
    @property
    def classes(self) -> list[int]: ...
    @property
    def total_s(self) -> float: ...
    @property
    def errors(self) -> Mapping[Any, int]: ...


class EventMemory(Protocol):
    """The last events of this process (`runtime.statistics.recent_events`)."""

    @property
    def count(self) -> int: ...
    def tell(self, on_event: Callable[[], None] | None) -> None: ...
    def since(self, number: int) -> Sequence[Any]: ...


class MergeCounts(Protocol):
    """What merges of sides of a split cluster did at this process (`runtime.event_figures.MergeFigures`)."""

    @property
    def started(self) -> int: ...
    @property
    def ended(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def taken(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def kept_won(self) -> int: ...
    @property
    def here_won(self) -> int: ...
    @property
    def too_old(self) -> int: ...


class EventCounts(Protocol):
    """What is counted of the events of this process (`runtime.event_figures.EventFigures`)."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Kind of event to how many were recorded."""

    @property
    def merges(self) -> MergeCounts: ...
    @property
    def moves(self) -> Durations: ...
    @property
    def copies(self) -> Durations: ...


class Sources(Protocol):
    """Where the figures of a member come from."""

    @property
    def member(self) -> ServedMember: ...
    def ask(self, to: Target, make: Any, *fields: Any, within_ms: Millis) -> asyncio.Future[Any]:
        """See `Ask`."""

    @property
    def calls(self) -> Mapping[tuple[str, type], CallSeries]: ...
    @property
    def event_figures(self) -> EventCounts: ...

    @property
    def recent(self) -> EventMemory: ...
    @property
    def refusals(self) -> Mapping[str, int]:
        """Why a connection or client was refused or dropped, to how often."""

    @property
    def passed_on(self) -> tuple[int, int]:
        """How many connections of clients are passed on to other members now, and how many were in all."""

    @property
    def slow_turns(self) -> tuple[int, float]:
        """How many turns took too long, and the longest in seconds."""

    def connections(self) -> Mapping[str, tuple[int, int, int, int]]:
        """Return, for each kind of peer, the number of connections that such peers have opened, and three counts of bytes.

        The bytes are those received, sent, and waiting to be sent, also on connections that this member has opened.
        """

    @property
    def links(self) -> int:
        """How many connections to other members this one has open that it opened itself."""


def in_snake_case(name: str) -> str:
    """Convert a name of a class to snake case: `PutIfAbsent` to `put_if_absent`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _buckets(durations: Durations | CallSeries) -> list[tuple[str, float]]:
    """Return the cumulated classes with their ends, as Prometheus has them."""
    ends = (*map(repr, durations.ends_s), "+Inf")
    return list(zip(ends, accumulate(durations.classes), strict=True))


def about_calls(sources: Sources) -> Iterator[Metric]:
    """Yield how many calls clients made, how long they took and how they failed."""
    labels = ["map", "operation"]
    durations = HistogramMetricFamily(
        "phalanx_call_duration_seconds", "Time from a client's request to the reply of this member.", labels=labels
    )
    errors = CounterMetricFamily(
        "phalanx_call_errors", "Calls of clients that ended with an error.", labels=[*labels, "error"]
    )
    for (name, kind), calls in sorted(sources.calls.items(), key=lambda item: (item[0][0], item[0][1].__name__)):
        operation = in_snake_case(kind.__name__)
        durations.add_metric([name, operation], _buckets(calls), calls.total_s)
        for code, count in calls.errors.items():
            errors.add_metric([name, operation, ErrorCode(code).name.lower()], count)
    yield durations
    yield errors


def about_process(sources: Sources, lag: Durations, collections: Durations) -> Iterator[Metric]:
    """Yield connections, refusals, events, and how late the loop is."""
    connections = GaugeMetricFamily("phalanx_connections", "Open connections that peers have made.", labels=["peer"])
    received = CounterMetricFamily("phalanx_received_bytes", "Bytes received from peers.", labels=["peer"])
    sent = CounterMetricFamily("phalanx_sent_bytes", "Bytes sent to peers.", labels=["peer"])
    waiting = GaugeMetricFamily("phalanx_backlog_bytes", "Bytes that wait until a peer reads them.", labels=["peer"])
    for peer, figures in sources.connections().items():
        connections.add_metric([peer], figures[0])
        received.add_metric([peer], figures[1])
        sent.add_metric([peer], figures[2])
        waiting.add_metric([peer], figures[3])
    yield from (connections, received, sent, waiting)
    yield _gauge("phalanx_links", "Open connections to other members that this one has opened.", sources.links)
    passed_on, passed_on_total = sources.passed_on
    whose = "of clients that this member passes on to another one, which they do not reach themselves."
    yield _gauge("phalanx_passed_on_connections", f"Open connections {whose}", passed_on)
    yield CounterMetricFamily("phalanx_passed_on", f"Connections {whose}", value=passed_on_total)
    refused = CounterMetricFamily("phalanx_refusals", "Connections and clients refused or dropped.", labels=["reason"])
    for reason, count in sources.refusals.items():
        refused.add_metric([reason], count)
    yield refused
    events = CounterMetricFamily("phalanx_events", "Events that this member recorded, by kind.", labels=["event"])
    for event, count in sorted(sources.event_figures.counts.items()):
        events.add_metric([in_snake_case(event)], count)
    yield events
    turns, longest_s = sources.slow_turns
    yield CounterMetricFamily("phalanx_slow_turns", "Inputs at which this member was busy for too long.", value=turns)
    yield GaugeMetricFamily("phalanx_longest_turn_seconds", "The longest of these.", value=longest_s)
    for name, said, pauses in (
        ("phalanx_loop_lag_seconds", "How late the event loop was, ten times a second.", lag),
        ("phalanx_collection_pause_seconds", "How long collections of garbage took.", collections),
    ):
        histogram = HistogramMetricFamily(name, said)
        histogram.add_metric([], _buckets(pauses), pauses.total_s)
        yield histogram


def about_merges_and_moves(events: EventCounts) -> Iterator[Metric]:
    """Yield what merges did at this member, and how long single moves took."""
    merges = events.merges
    for name, said, value in (
        (
            "merges_started",
            "Merges that this member began: of what it kept of a side that gave up its cluster.",
            merges.started,
        ),
        ("merges_ended", "Merges that it has ended: the cluster has acknowledged all of it.", merges.ended),
        (
            "merge_entries_sent",
            "Entries and removals of ended merges that their new owners have acknowledged.",
            merges.sent,
        ),
        ("merge_entries_taken", "Those of them that changed what the new owner had.", merges.taken),
        (
            "merge_entries_dropped",
            "Entries that were lost: this member left before it had merged them.",
            merges.dropped,
        ),
        (
            "merge_entries_too_old",
            "Entries that it did not take as an owner: their removal may be forgotten.",
            merges.too_old,
        ),
    ):
        yield CounterMetricFamily(f"phalanx_{name}", said, value=value)
    said = "Keys of which two sides had different versions, decided by this member as an owner."
    conflicts = CounterMetricFamily("phalanx_merge_conflicts", said, labels=["winner"])
    conflicts.add_metric(["kept"], merges.kept_won)
    conflicts.add_metric(["here"], merges.here_won)
    yield conflicts
    for name, said, durations in (
        (
            "phalanx_migration_duration_seconds",
            "From the order of a migration to its commit; of the master.",
            events.moves,
        ),
        (
            "phalanx_migration_copy_duration_seconds",
            "How long this owner copied a partition to another member.",
            events.copies,
        ),
    ):
        histogram = HistogramMetricFamily(name, said)
        histogram.add_metric([], _buckets(durations), durations.total_s)
        yield histogram


def _gauge(name: str, said: str, value: float) -> Metric:
    return GaugeMetricFamily(name, said, value=value)


def about_this(member: ServedMember) -> Iterator[Metric]:
    """Yield what this member is, and its memory."""
    node = member.node
    labels = {"version": RELEASE, "address": member.address, "cluster": node.config.cluster}
    yield InfoMetricFamily("phalanx_member", "This member.", value=labels)
    yield _gauge("phalanx_ready", "1 if callers may be sent here.", not why_not_ready(member))
    yield _gauge("phalanx_leaving", "1 if this member was asked to leave.", member.is_leaving)
    said = "1 while the event log cannot be written: events wait, and are lost if too many wait."
    yield _gauge("phalanx_event_log_failing", said, bool(member.event_log_problem))
    memory = node.grid.memory
    yield _gauge("phalanx_memory_used_bytes", "Memory in use, as the limit counts it.", max(memory.used, 0))
    yield _gauge("phalanx_memory_limit_bytes", "The limit from which on writes are refused; 0: none.", memory.limit)
    failed = CounterMetricFamily(
        "phalanx_requests_failed", "Requests whose function or condition raised an unexpected error.", labels=["kind"]
    )
    for kind, count in sorted(node.grid.evaluator.failed.items()):
        failed.add_metric([in_snake_case(kind)], count)
    yield failed
    yield _gauge("phalanx_memory_full", "1 if writes that grow this member are refused.", memory.is_full)


def about_cluster(member: ServedMember) -> Iterator[Metric]:
    """Yield the member list as this member has it, and whom it has not heard."""
    node = member.node
    view, table = node.membership.view, node.installed_table.table
    yield _gauge(
        "phalanx_members",
        "Members in the installed view; 0: this member is in no cluster.",
        len(view.members) if view else 0,
    )
    yield _gauge("phalanx_view_version", "Version of the installed view.", view.version if view else 0)
    yield _gauge("phalanx_table_version", "Version of the installed partition table.", table.version)
    yield _gauge("phalanx_master", "1 if this member is the master.", view is not None and node.membership.is_master)
    said = "Members that this one has removed as the master, without that they had asked to leave or came back at once."
    yield CounterMetricFamily("phalanx_members_lost", said, value=node.membership.gone.former.lost)
    suspicions, now = node.membership.suspicions, member.now()
    suspected = len(suspicions.suspected) if view is not None else 0
    yield _gauge("phalanx_suspected_members", "Members that this one suspects.", suspected)
    trust = GaugeMetricFamily(
        "phalanx_watched_members", "Other members, by what this one thinks of them.", labels=["trust"]
    )
    thought = suspicions.count_trust()
    for each in (Trust.TRUSTED, Trust.QUESTIONED, Trust.SUSPECTED):
        trust.add_metric([each.name.lower()], thought[each])
    yield trust
    said = "The longest time since a member whose heartbeats are expected was heard."
    yield _gauge("phalanx_longest_silence_seconds", said, suspicions.longest_silence_ms(now) / 1000)
    said = "The highest share of the allowed silence that a watched member has used; from 1 on it is suspected."
    yield _gauge("phalanx_longest_silence_ratio", said, suspicions.highest_silence_ratio(now))


async def about_replicas(member: ServedMember, questions: Questions) -> AsyncIterator[Metric]:
    """Yield what this member holds, and of the master how far the cluster is."""
    partitions = GaugeMetricFamily("phalanx_partitions", "Partitions that this member holds.", labels=["role"])
    try:
        own = await questions.own_safety()
        lost = await questions.losses()
    except (ClientClosed, UnavailableError):  # it is in no cluster, or ends
        return
    partitions.add_metric(["owner"], own.owned)
    partitions.add_metric(["backup"], own.backups)
    yield partitions
    yield _gauge("phalanx_partitions_only_here", "Partitions that no other member holds.", own.only_here)
    yield _gauge("phalanx_partitions_lacking", "Partitions held here that have too few replicas.", own.lacking)
    said = "Partitions owned here with a backup that has not confirmed everything."
    yield _gauge("phalanx_partitions_unconfirmed", said, own.unconfirmed)
    yield _gauge(
        "phalanx_orphaned_entries", "Entries of a side that gave up its cluster, not merged yet.", own.kept_entries
    )
    locks = member.node.grid.locks
    yield _gauge("phalanx_locks", "Locks and semaphores of owned partitions that are held or waited for.", locks.count)
    yield _gauge("phalanx_lock_waiters", "Callers that wait for them.", locks.waiters)
    said = "Locks and semaphores of which replicas here keep a state: held, or with a token that is remembered; as counted last."
    yield _gauge("phalanx_lock_states", said, member.node.grid.memory.data.size.lock_states)
    waiting = member.node.grid.waiting
    said = "Requests that wait here: for locks, for their partition, for their next turn."
    yield _gauge("phalanx_waiting_requests", said, waiting.total)
    said = "Requests that were turned away because too many waited."
    yield CounterMetricFamily("phalanx_waiting_requests_refused", said, value=waiting.refused)
    yield _gauge("phalanx_partitions_migrating", "Partitions in a migration to or from this member.", own.migrating)
    said = "Losses of partitions that no operator has acknowledged, by this member's table."
    yield _gauge("phalanx_unacknowledged_losses", said, len(lost.losses.losses) + lost.losses.earlier)
    said = "Removed members that may come back with what only they have."
    yield _gauge("phalanx_members_away", said, len(lost.losses.away))
    if own.view.master != member.id or (migrations := await questions.migrations(member.id)) is None:
        return
    said = "Partitions of the cluster that have too few replicas on members that stay; of the master."
    yield _gauge("phalanx_cluster_partitions_lacking", said, migrations.lacking)
    said = "Partitions that are not yet where they should be; of the master."
    yield _gauge("phalanx_cluster_partitions_remaining", said, migrations.remaining)
    yield _gauge("phalanx_cluster_migrations", "Migrations under way; of the master.", len(migrations.under_way))
    said = "Bytes of keys and values copied in the present or last rebalancing; of the master."
    yield _gauge("phalanx_cluster_rebalancing_copied_bytes", said, migrations.copied_bytes)
    said = "How long the present rebalancing has taken, or the last one took; of the master."
    yield _gauge("phalanx_cluster_rebalancing_duration_seconds", said, migrations.took_ms / 1000)
    said = "Age of the migration that has been under way for longest; of the master."
    oldest_ms = max((each.age_ms for each in migrations.under_way), default=0)
    yield _gauge("phalanx_cluster_oldest_migration_seconds", said, oldest_ms / 1000)
    said = "1 if every replica is where it should be and nobody leaves; of the master."
    yield _gauge("phalanx_cluster_whole", said, migrations.at_rest and not migrations.lacking)
