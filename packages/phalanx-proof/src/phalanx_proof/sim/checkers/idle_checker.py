"""Judges entries that expire when nobody uses them, by the calls of their only users and the answers (PX-17).

The owner of an entry serves a call between its begin and its end. So an entry is gone early if a read finds nothing, and
ends sooner after the begin of the use before than the idle time. It is gone late if a read finds it, and begins later than the
idle time after both the end of the use before and the last time at which a member became the owner of its partition.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phalanx.codec.hashing import partition_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx_proof.sim.checkers.findings import Findings

CLOCK_PART = 50
"""The part of an idle time by which clocks that run wrong are off at most."""


class Use(NamedTuple):
    """One answered call for an entry."""

    begin: Millis
    end: Millis
    found: bool
    """Whether it stored or found the value."""


class Life(NamedTuple):
    """An entry that one program stored once, and read until it was gone or a call failed."""

    key: bytes
    idle_ms: Millis
    uses: list[Use]


class IdleChecker:
    """Judges the lives of entries in one history."""

    def __init__(self, findings: Findings, late_ms: Millis) -> None:
        """`late_ms`: how long a read that was given up, or that arrives twice, can be served after its caller's answer."""
        self._findings = findings
        self._late_ms = late_ms
        self._owned: dict[MemberId, set[tuple[int, int]]] = {}
        """Member to the partitions that it owns by its last table, each with the count of partitions."""
        self._takeovers: dict[tuple[int, int], list[Millis]] = {}
        """Partition and count of partitions to the times at which a member became its owner."""
        self.reads = self.ends = 0
        """Reads that found an entry, and reads that did not find it any more."""

    def on_table(self, member: MemberId, table: PartitionTable, now: Millis) -> None:
        """Note of which partitions a member became the owner by a table that it has installed."""
        partition_count = table.partition_count
        owned = {
            (partition, partition_count)
            for partition in range(partition_count)
            if table.rows[partition] and table.owner(partition) == member
        }
        for place in owned - self._owned.get(member, set()):
            self._takeovers.setdefault(place, []).append(now)
        self._owned[member] = owned

    def check(self, lives: list[Life], lost: Collection[int], partitions: int) -> None:
        """Judge all lives. `lost`: partitions, of `partitions`, of which all replicas were lost at some time."""
        for life in lives:
            if partition_of(life.key, partitions) in lost:
                continue
            for before, use in zip(life.uses, life.uses[1:], strict=False):
                self._judge(life, before, use)

    def _judge(self, life: Life, before: Use, use: Use) -> None:
        idle_ms, spare = life.idle_ms, life.idle_ms // CLOCK_PART
        story = f"{life.key[4:].decode()}, which can be idle for {idle_ms}: {before} and then {use}"
        if not use.found:
            self.ends += 1
            if use.end - before.begin < idle_ms - spare:
                self._findings.add(use.end, "an entry in use does not expire", story)
            return
        self.reads += 1
        taken = [
            at
            for (partition, partition_count), times in self._takeovers.items()
            if partition == partition_of(life.key, partition_count)
            for at in times
            if at <= use.end
        ]
        since = max([before.end, *taken])
        if use.begin - since > idle_ms + spare + self._late_ms:
            self._findings.add(
                use.end, "an entry that nobody uses expires", f"{story}; owned anew at {max(taken, default=0)}"
            )
