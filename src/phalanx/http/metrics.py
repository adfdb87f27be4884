"""`/metrics`: what Prometheus scrapes. Names and units follow its conventions.

Nothing is counted here: the member counts as it works, and a scrape reads. Reading and writing out are done in pieces, with
turns of the loop in between, and one text serves all who ask at about the same time (`SharedAnswer`): so many scrapers, and
many maps, do not keep the member from its work.
"""

from __future__ import annotations

import asyncio
import gc
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import version
from itertools import accumulate
from typing import Any, Final, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from phalanx.common.errors import ErrorCode, UnavailableError
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import Millis, Target
from phalanx.http.durations import MOST_MAPS, OTHER, Durations
from phalanx.http.served_member import Questions, ServedMember, why_not_ready
from phalanx.http.shared_answer import SharedAnswer

RELEASE: Final = version("phalanx")
MAPS_AT_ONCE: Final = 2_000
"""Maps of partitions that are read in one turn."""
SAMPLES_AT_ONCE: Final = 400
"""Samples that are written out in one turn: about a millisecond."""
LAG_EVERY_S: Final = 0.1
LAG_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


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


class Sources(Protocol):
    """Where the figures of a member come from."""

    @property
    def member(self) -> ServedMember: ...
    def ask(self, to: Target, make: Any, *fields: Any, within_ms: Millis) -> asyncio.Future[Any]:
        """See `Ask`."""

    @property
    def calls(self) -> Mapping[tuple[str, type], CallSeries]: ...
    @property
    def events(self) -> Mapping[str, int]:
        """Kind of event to how many were recorded."""

    @property
    def refusals(self) -> Mapping[str, int]:
        """Why a connection or client was refused or dropped, to how often."""

    @property
    def slow_turns(self) -> tuple[int, float]:
        """How many turns took too long, and the longest in seconds."""

    def connections(self) -> Mapping[str, tuple[int, int, int, int]]:
        """Kind of peer to its connections, and their bytes received, sent and waiting to be sent."""


class Metrics:
    """Makes the text for one member."""

    def __init__(self, sources: Sources, questions: Questions) -> None:
        self._sources, self._questions = sources, questions
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)
        self._lag, self._collections = Durations(LAG_BUCKETS_S), Durations(LAG_BUCKETS_S)
        self._collection_began_s = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._text = SharedAnswer(self._make)

    # --- what nobody else measures ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to measure how late the loop is, and how long collections of garbage take."""
        gc.callbacks.append(self._on_collection)
        self._tick_later()

    def end(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
            gc.callbacks.remove(self._on_collection)

    def _tick_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(LAG_EVERY_S, self._tick, time.monotonic() + LAG_EVERY_S)

    def _tick(self, due_s: float) -> None:
        self._lag.note(max(time.monotonic() - due_s, 0.0))
        self._tick_later()

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._collection_began_s = time.perf_counter()
        elif self._collection_began_s:
            self._collections.note(time.perf_counter() - self._collection_began_s)

    # --- the text ---------------------------------------------------------------------------------------------------

    async def respond(self, request: Request) -> Response:
        return Response(await self._text.get(), media_type=None, headers={"content-type": CONTENT_TYPE_LATEST})

    async def _make(self) -> bytes:
        pieces = [generate_latest(self._process)]
        async for family in self._families():
            for piece in _pieces(family):
                pieces.append(piece)
                await asyncio.sleep(0)
        return b"".join(pieces)

    async def _families(self) -> AsyncIterator[Metric]:
        member = self._sources.member
        for family in _about_this(member):
            yield family
        for family in _about_cluster(member):
            yield family
        async for family in _about_replicas(member, self._questions):
            yield family
        async for family in _about_maps(member):
            yield family
        for family in (*self._about_calls(), *self._about_process()):
            yield family

    def _about_calls(self) -> Iterator[Metric]:
        labels = ["map", "operation"]
        durations = HistogramMetricFamily(
            "phalanx_call_duration_seconds", "Time from a client's request to the reply of this member.", labels=labels
        )
        errors = CounterMetricFamily(
            "phalanx_call_errors", "Calls of clients that ended with an error.", labels=[*labels, "error"]
        )
        for (name, kind), calls in sorted(
            self._sources.calls.items(), key=lambda item: (item[0][0], item[0][1].__name__)
        ):
            operation = in_snake_case(kind.__name__)
            durations.add_metric([name, operation], _buckets(calls), calls.total_s)
            for code, count in calls.errors.items():
                errors.add_metric([name, operation, ErrorCode(code).name.lower()], count)
        yield durations
        yield errors

    def _about_process(self) -> Iterator[Metric]:
        sources = self._sources
        connections = GaugeMetricFamily(
            "phalanx_connections", "Open connections that peers have made.", labels=["peer"]
        )
        received = CounterMetricFamily(
            "phalanx_received_bytes", "Bytes received on connections of peers.", labels=["peer"]
        )
        sent = CounterMetricFamily("phalanx_sent_bytes", "Bytes sent on connections of peers.", labels=["peer"])
        waiting = GaugeMetricFamily(
            "phalanx_backlog_bytes", "Bytes that wait until a peer reads them.", labels=["peer"]
        )
        for peer, figures in sources.connections().items():
            connections.add_metric([peer], figures[0])
            received.add_metric([peer], figures[1])
            sent.add_metric([peer], figures[2])
            waiting.add_metric([peer], figures[3])
        yield from (connections, received, sent, waiting)
        refused = CounterMetricFamily(
            "phalanx_refusals", "Connections and clients refused or dropped.", labels=["reason"]
        )
        for reason, count in sources.refusals.items():
            refused.add_metric([reason], count)
        yield refused
        events = CounterMetricFamily("phalanx_events", "Events that this member recorded, by kind.", labels=["event"])
        for event, count in sorted(sources.events.items()):
            events.add_metric([in_snake_case(event)], count)
        yield events
        turns, longest_s = sources.slow_turns
        yield CounterMetricFamily(
            "phalanx_slow_turns", "Inputs at which this member was busy for too long.", value=turns
        )
        yield GaugeMetricFamily("phalanx_longest_turn_seconds", "The longest of these.", value=longest_s)
        for name, said, pauses in (
            ("phalanx_loop_lag_seconds", "How late the event loop was, ten times a second.", self._lag),
            ("phalanx_collection_pause_seconds", "How long collections of garbage took.", self._collections),
        ):
            histogram = HistogramMetricFamily(name, said)
            histogram.add_metric([], _buckets(pauses), pauses.total_s)
            yield histogram


def in_snake_case(name: str) -> str:
    """`PutIfAbsent` as `put_if_absent`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _buckets(durations: Durations | CallSeries) -> list[tuple[str, float]]:
    """Return the cumulated classes with their ends, as Prometheus has them."""
    ends = (*map(repr, durations.ends_s), "+Inf")
    return list(zip(ends, accumulate(durations.classes), strict=True))


def _pieces(family: Metric) -> Iterator[bytes]:
    """Write a family out, some samples at a time; only the first piece has its head."""
    samples = family.samples
    for start in range(0, max(len(samples), 1), SAMPLES_AT_ONCE):
        family.samples = samples[start : start + SAMPLES_AT_ONCE]
        text = generate_latest(_Only(family))
        yield text if not start else text.split(b"\n", 2)[2]
    family.samples = samples


class _Only(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _gauge(name: str, said: str, value: float) -> Metric:
    return GaugeMetricFamily(name, said, value=value)


def _about_this(member: ServedMember) -> Iterator[Metric]:
    node = member.node
    labels = {"version": RELEASE, "address": member.address, "cluster": node.config.cluster}
    yield InfoMetricFamily("phalanx_member", "This member.", value=labels)
    yield _gauge("phalanx_ready", "1 if callers may be sent here.", not why_not_ready(member))
    yield _gauge("phalanx_leaving", "1 if this member was asked to leave.", member.is_leaving)
    memory = node.grid.memory
    yield _gauge("phalanx_memory_used_bytes", "Memory in use, as the limit counts it.", max(memory.used, 0))
    yield _gauge("phalanx_memory_limit_bytes", "The limit from which on writes are refused; 0: none.", memory.limit)
    yield _gauge("phalanx_memory_full", "1 if writes that grow this member are refused.", memory.is_full)


def _about_cluster(member: ServedMember) -> Iterator[Metric]:
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
    suspected = len(node.membership.suspicions.suspected) if view is not None else 0
    yield _gauge("phalanx_suspected_members", "Members that this one suspects.", suspected)


async def _about_replicas(member: ServedMember, questions: Questions) -> AsyncIterator[Metric]:
    partitions = GaugeMetricFamily("phalanx_partitions", "Partitions that this member holds.", labels=["role"])
    try:
        own = await questions.own_safety()
        lost = await questions.losses()
    except UnavailableError:  # it is in no cluster, or ends
        return
    partitions.add_metric(["owner"], own.owned)
    partitions.add_metric(["backup"], own.backups)
    yield partitions
    yield _gauge("phalanx_partitions_only_here", "Partitions that no other member holds.", own.only_here)
    yield _gauge("phalanx_partitions_lacking", "Partitions held here that have too few replicas.", own.lacking)
    said = "Partitions owned here with a backup that has not confirmed everything."
    yield _gauge("phalanx_partitions_unconfirmed", said, own.unconfirmed)
    yield _gauge("phalanx_partitions_migrating", "Partitions in a migration to or from this member.", own.migrating)
    said = "Losses of partitions that no operator has acknowledged, by this member's table."
    yield _gauge("phalanx_unacknowledged_losses", said, len(lost.losses.losses) + lost.losses.earlier)
    said = "Removed members that may come back with what only they have."
    yield _gauge("phalanx_members_away", said, len(lost.losses.away))
    if own.view.master != member.id or (told := await questions.migrations(member.id)) is None:
        return
    said = "Partitions of the cluster that have too few replicas on members that stay; of the master."
    yield _gauge("phalanx_cluster_partitions_lacking", said, told.lacking)
    said = "Partitions that are not yet where they should be; of the master."
    yield _gauge("phalanx_cluster_partitions_remaining", said, told.remaining)
    yield _gauge("phalanx_cluster_migrations", "Migrations under way; of the master.", len(told.under_way))
    said = "1 if every replica is where it should be and nobody leaves; of the master."
    yield _gauge("phalanx_cluster_whole", said, told.at_rest and not told.lacking)


class _Held:
    """What this member holds of one map."""

    __slots__ = ("backup", "evicted", "expired", "journal", "owner")

    def __init__(self) -> None:
        self.owner, self.backup = [0, 0], [0, 0]
        """Entries and bytes."""
        self.journal = [0, 0]
        """Events and bytes, of partitions that this member owns."""
        self.evicted = self.expired = 0

    def add(self, other: _Held) -> None:
        for name in ("owner", "backup", "journal"):
            mine, its = getattr(self, name), getattr(other, name)
            mine[0], mine[1] = mine[0] + its[0], mine[1] + its[1]
        self.evicted, self.expired = self.evicted + other.evicted, self.expired + other.expired


async def _count_maps(member: ServedMember) -> dict[str, _Held]:
    found: dict[str, _Held] = {}
    grid = member.node.grid
    replicas = [(each.replica, True) for each in grid.all_owned()]
    replicas += [(replica, False) for replica in grid.follower.replicas.values()]
    looked_at = 0
    for replica, is_owned in replicas:
        for name, store in list(replica.maps.items()):
            if is_hidden(name):
                continue
            held = found.setdefault(name, _Held())
            sums = held.owner if is_owned else held.backup
            sums[0], sums[1] = sums[0] + len(store.entries), sums[1] + store.held_bytes
            if is_owned and store.journal is not None:
                held.journal[0] += len(store.journal.events)
                held.journal[1] += store.journal.size
        looked_at += 1 + len(replica.maps)
        if looked_at >= MAPS_AT_ONCE:
            looked_at = 0
            await asyncio.sleep(0)
    for name, count in grid.evicted.items():
        found.setdefault(name, _Held()).evicted = count
    for name, count in grid.expired.items():
        found.setdefault(name, _Held()).expired = count
    return _largest(found)


def _largest(found: dict[str, _Held]) -> dict[str, _Held]:
    """Add up all but the largest maps under one name."""
    by_size = sorted(found, key=lambda name: (-found[name].owner[1] - found[name].backup[1], name))
    kept = {name: found[name] for name in sorted(by_size[:MOST_MAPS])}
    for name in by_size[MOST_MAPS:]:
        kept.setdefault(OTHER, _Held()).add(found[name])
    return kept


async def _about_maps(member: ServedMember) -> AsyncIterator[Metric]:
    roles = ["map", "role"]
    entries = GaugeMetricFamily("phalanx_map_entries", "Entries that this member holds.", labels=roles)
    sizes = GaugeMetricFamily("phalanx_map_bytes", "Bytes of serialised keys and values that it holds.", labels=roles)
    evicted = CounterMetricFamily("phalanx_map_evictions", "Entries that it evicted from bounded maps.", labels=["map"])
    expired = CounterMetricFamily("phalanx_map_expirations", "Entries that it dropped at their end.", labels=["map"])
    events = GaugeMetricFamily("phalanx_journal_events", "Events that journals of its partitions keep.", labels=["map"])
    kept = GaugeMetricFamily("phalanx_journal_bytes", "Bytes of these events.", labels=["map"])
    for name, held in (await _count_maps(member)).items():
        for role, sums in (("owner", held.owner), ("backup", held.backup)):
            entries.add_metric([name, role], sums[0])
            sizes.add_metric([name, role], sums[1])
        evicted.add_metric([name], held.evicted)
        expired.add_metric([name], held.expired)
        if held.journal[0]:
            events.add_metric([name], held.journal[0])
            kept.add_metric([name], held.journal[1])
    for family in (entries, sizes, evicted, expired, events, kept):
        yield family
