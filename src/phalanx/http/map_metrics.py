"""What a member holds of each map, for Prometheus: few maps by name, all others added up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from phalanx.common.hidden_maps import is_hidden, is_staged
from phalanx.http.served_member import ServedMember
from phalanx.wire.figures import MOST_MAPS, OTHER

MAPS_AT_ONCE: Final = 500
"""Maps of partitions that are read in one turn: less than a millisecond."""


class HeldOfMap:
    """What this member holds of one map."""

    __slots__ = ("backup", "evicted", "expired", "journal", "owner")

    def __init__(self) -> None:
        self.owner, self.backup = [0, 0], [0, 0]
        """Entries and bytes."""
        self.journal = [0, 0]
        """Events and bytes, of partitions that this member owns."""
        self.evicted = self.expired = 0

    def add(self, other: HeldOfMap) -> None:
        for name in ("owner", "backup", "journal"):
            mine, its = getattr(self, name), getattr(other, name)
            mine[0], mine[1] = mine[0] + its[0], mine[1] + its[1]
        self.evicted, self.expired = self.evicted + other.evicted, self.expired + other.expired


async def count_maps(member: ServedMember) -> tuple[dict[str, HeldOfMap], list[int]]:
    """Return the largest maps, and the entries and bytes that jobs have staged."""
    found: dict[str, HeldOfMap] = {}
    staged = [0, 0]
    grid = member.node.grid
    replicas = [(each.replica, True) for each in grid.ownership.all_owned()]
    replicas += [(replica, False) for replica in grid.follower.replicas.values()]
    looked_at = 0
    for replica, is_owned in replicas:
        for name, store in list(replica.maps.items()):
            if is_hidden(name):
                if is_staged(name):
                    staged = [staged[0] + len(store.entries), staged[1] + store.held_bytes]
                continue
            held = found.setdefault(name, HeldOfMap())
            sums = held.owner if is_owned else held.backup
            sums[0], sums[1] = sums[0] + len(store.entries), sums[1] + store.held_bytes
            if is_owned and (journal := replica.journals.get(name)) is not None:
                held.journal[0] += len(journal.events)
                held.journal[1] += journal.size
        looked_at += 1 + len(replica.maps)
        if looked_at >= MAPS_AT_ONCE:
            looked_at = 0
            await asyncio.sleep(0)
    for name, count in grid.evictor.evicted.items():
        found.setdefault(name, HeldOfMap()).evicted = count
    for name, count in grid.leader.expired.items():
        found.setdefault(name, HeldOfMap()).expired = count
    return await _largest(found), staged


async def _largest(found: dict[str, HeldOfMap]) -> dict[str, HeldOfMap]:
    """Add up all but the largest maps under one name."""
    largest: list[tuple[int, str]] = []
    others = HeldOfMap()
    names = list(found)
    for start in range(0, len(names), MAPS_AT_ONCE):
        some = [(-found[name].owner[1] - found[name].backup[1], name) for name in names[start : start + MAPS_AT_ONCE]]
        some = sorted(largest + some)
        largest = some[:MOST_MAPS]
        for _, name in some[MOST_MAPS:]:
            others.add(found[name])
        await asyncio.sleep(0)
    kept = {name: found[name] for name in sorted(name for _, name in largest)}
    return kept | {OTHER: others} if len(names) > MOST_MAPS else kept


async def about_maps(member: ServedMember) -> AsyncIterator[Metric]:
    """Yield what this member holds of each map, and of what jobs have staged."""
    roles = ["map", "role"]
    entries = GaugeMetricFamily("phalanx_map_entries", "Entries that this member holds.", labels=roles)
    sizes = GaugeMetricFamily("phalanx_map_bytes", "Bytes of serialised keys and values that it holds.", labels=roles)
    evicted = CounterMetricFamily("phalanx_map_evictions", "Entries that it evicted from bounded maps.", labels=["map"])
    expired = CounterMetricFamily("phalanx_map_expirations", "Entries that it dropped at their end.", labels=["map"])
    events = GaugeMetricFamily("phalanx_journal_events", "Events that journals of its partitions keep.", labels=["map"])
    kept = GaugeMetricFamily("phalanx_journal_bytes", "Bytes of these events.", labels=["map"])
    found, staged = await count_maps(member)
    for name, held in found.items():
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
    yield GaugeMetricFamily("phalanx_staged_entries", said, value=staged[0])
    yield GaugeMetricFamily("phalanx_staged_bytes", "Bytes of these.", value=staged[1])
