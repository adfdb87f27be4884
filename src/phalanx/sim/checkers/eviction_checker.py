"""Checks what owners evict from bounded maps, and records it: a write that was evicted is missing, and not lost.

* No partition evicts below its share, nor any live entry while it holds expired ones.
* What is evicted was written before all that stays.
* At rest no partition holds more than its share.
* Readers of journals are told of no eviction that did not happen. (That they are told of each one once follows from the old
  values in the events.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import Millis
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.node.node import Node
from phalanx.sim.checkers.findings import Findings
from phalanx.sim.cluster.host import Host

STAMP = 8
"""Bytes of the stamp before a stored value."""
EVICTED = 5
"""The kind of an event that tells of an eviction."""


class Eviction(NamedTuple):
    """An entry that some owner has evicted. A merge may bring it back."""

    at: Millis
    value: bytes
    partition: int
    of: int
    """How many partitions there were."""


class EvictionChecker:
    """Looks at each member's evictions as they are made."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.of: dict[tuple[str, bytes], list[Eviction]] = {}
        """By map and key, in their order."""
        self.count = 0

    def watch(self, node: Node) -> None:
        """Check each eviction of a new member when it is made."""
        evictor = node.grid.evictor
        original = evictor.trim

        def trim(owned: OwnedPartition, name: str, share: int, limit: int, now: Millis) -> int:
            store = owned.replica.maps[name]
            before = dict(store.entries)
            over = {key for key in before if store.expires_at.get(key, now + 1) <= now}
            dropped = original(owned, name, share, limit, now)
            self._judge(node, owned, name, before, over, now)
            return dropped

        evictor.trim = trim  # type: ignore[method-assign]  # as bugs are planted

    def _judge(
        self, node: Node, owned: OwnedPartition, name: str, before: dict[bytes, bytes], over: set[bytes], now: Millis
    ) -> None:
        store = owned.replica.maps.get(name)
        after = store.entries if store is not None else {}
        gone = [key for key in before if key not in after and key not in over]
        if not gone:
            return
        table = node.grid.table
        share = _share(table.maps.of(name).max_entries, table.partition_count)
        where = f"{node.this} evicts {len(gone)} of {len(before)} entries of {name!r} in partition {owned.number}"
        if not share or len(after) < share or not over.isdisjoint(after):
            story = f"{where}, which may hold {share}; {len(over)} were over, and {len(over & after.keys())} of them are there"
            self._findings.add(now, "no more is evicted than must", story)
        newest = max(before[key][:STAMP] for key in gone)
        if any(stored[:STAMP] < newest for stored in after.values()):
            self._findings.add(
                now, "what was written first is evicted first", f"{where}: {gone}, and not {sorted(after)}"
            )
        for key in gone:
            told = Eviction(now, before[key][STAMP:], owned.number, table.partition_count)
            self.of.setdefault((name, key), []).append(told)
            self.count += 1

    def may_have_gone(self, name: str, key: bytes) -> list[Eviction]:
        """List the evictions of the key's partition: a merge takes nothing older than these, wherever it comes from."""
        return [
            each
            for (of_map, _), several in self.of.items()
            if of_map == name
            for each in several
            if partition_of(key, each.of) == each.partition
        ]

    # --- at rest ---------------------------------------------------------------------------------------------------

    def check_bounds(self, hosts: Iterable[Host], now: Millis) -> None:
        for host in hosts:
            grid = host.running_node.grid
            for owned in grid.all_owned():
                for name, store in owned.replica.maps.items():
                    share = _share(grid.table.maps.of(name).max_entries, grid.table.partition_count)
                    if 0 < share < len(store.entries):
                        story = f"partition {owned.number} at {host.member} has {len(store.entries)} of {name!r}, and may have {share}"
                        self._findings.add(now, "a bounded map keeps to its bound", story)

    def check_events(self, events: Iterable[tuple[str, tuple[int, bytes, bytes | None, bytes | None, int]]]) -> None:
        """Check the evictions that readers of journals were told of. `events`: the map, and the event."""
        for name, (kind, key, _, old, at) in events:
            if kind == EVICTED and old not in [each.value for each in self.of.get((name, key), ())]:
                story = f"{key!r} of {name!r} is said to have been evicted with {old!r}, and was not"
                self._findings.add(at, "an event tells what has happened", story)


def _share(max_entries: int, partition_count: int) -> int:
    return max(1, max_entries // partition_count) if max_entries else 0
