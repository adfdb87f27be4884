"""What a member holds of each map, for Prometheus: few maps by name, all others added up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from typing import Final, TypeVar, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from phalanx.http.served_member import ServedMember
from phalanx.node.held_maps import count_held

T = TypeVar("T")

MAPS_AT_ONCE: Final = 500
"""Maps of partitions that are read in one turn: less than a millisecond."""


async def in_turns(counting: Generator[int, None, T]) -> T:
    """Return what the count finds. Others have their turns meanwhile."""
    looked_at = 0
    while True:
        try:
            looked_at += next(counting)
        except StopIteration as done:
            return cast(T, done.value)
        if looked_at >= MAPS_AT_ONCE:
            looked_at = 0
            await asyncio.sleep(0)


async def about_maps(member: ServedMember) -> AsyncIterator[Metric]:
    """Yield what this member holds of each map, and of what jobs have staged."""
    roles = ["map", "role"]
    entries = GaugeMetricFamily("phalanx_map_entries", "Entries that this member holds.", labels=roles)
    sizes = GaugeMetricFamily("phalanx_map_bytes", "Bytes of serialised keys and values that it holds.", labels=roles)
    evicted = CounterMetricFamily("phalanx_map_evictions", "Entries that it evicted from bounded maps.", labels=["map"])
    expired = CounterMetricFamily("phalanx_map_expirations", "Entries that it dropped at their end.", labels=["map"])
    events = GaugeMetricFamily("phalanx_journal_events", "Events that journals of its partitions keep.", labels=["map"])
    kept = GaugeMetricFamily("phalanx_journal_bytes", "Bytes of these events.", labels=["map"])
    found = await in_turns(count_held(member.node.grid))
    for name, held in found.maps.items():
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
    said = "Rows, or pages of rows, that jobs have staged or kept on this member."
    yield GaugeMetricFamily("phalanx_staged_entries", said, value=found.staged[0])
    yield GaugeMetricFamily("phalanx_staged_bytes", "Bytes of these.", value=found.staged[1])
