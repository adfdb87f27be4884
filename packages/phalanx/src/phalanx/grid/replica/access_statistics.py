"""When and how often the entries of a map are read: recorded by the owner, for maps whose settings ask for it.

Merge policies that compare reads ask for it, and eviction policies. Other maps pay nothing. Reads are recorded from the
moment at which such a setting is chosen. An entry that is removed takes its statistics along.

The statistics travel with copies of the partition. They are not replicated with each read, so a failover forgets the
reads since the last copy: then an entry counts as last read when it was written, or when the backup's copy was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.common.ids import Millis
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import EvictionPolicy, MapSettings
from phalanx.grid.replica.merge_policies import COUNTING

NOTHING, TIMES, COUNTS = 0, 1, 2
"""What is recorded of a map's reads: flags that are added."""
EVICTION_USES: dict[str, int] = {EvictionPolicy.LRU: TIMES, EvictionPolicy.LFU: COUNTS}
"""Eviction policy to what it wants to be recorded."""
NEVER = (0, 0)
"""Of an entry that was not read: how often, and when last."""


def recorded_for(settings: MapSettings) -> int:
    """Return what the settings of a map want to be recorded of its reads."""
    if settings.merge_policy in COUNTING:
        return TIMES + COUNTS
    return EVICTION_USES.get(settings.eviction, NOTHING) if settings.is_bounded else NOTHING


def counts_reads(plan: MapPlan) -> bool:
    """Return whether reads of any map are recorded."""
    return any(recorded_for(settings) for settings in (plan.usual, *(plan.of(name) for name, _ in plan.maps)))


class AccessStatistics:
    """The statistics of the entries of one map in one replica."""

    __slots__ = ("hits", "read_at", "recorded")

    def __init__(self, recorded: int = NOTHING) -> None:
        self.recorded = recorded
        """What is recorded; another member may have recorded more."""
        self.read_at: dict[bytes, Millis] = {}
        """Key to its last read, by the grid's clock; 0: it was not read."""
        self.hits: dict[bytes, int] = {}
        """Key to the number of its reads."""

    def expect(self, keys: Iterable[bytes]) -> None:
        """Make room for the statistics of entries that are stored under these very objects.

        A read brings a key of its own, which would stay here: half as much memory again as everything else.
        """
        if self.recorded & TIMES:
            for key in keys:
                self.read_at.setdefault(key, 0)
        if self.recorded & COUNTS:
            for key in keys:
                self.hits.setdefault(key, 0)

    def note(self, key: bytes, at: Millis) -> None:
        """Record a read."""
        if self.recorded & TIMES:
            self.read_at[key] = at
        if self.recorded & COUNTS:
            self.hits[key] = self.hits.get(key, 0) + 1

    def record(self, recorded: int) -> None:
        """Record this from now on, and forget what is recorded no more."""
        self.recorded = recorded
        if not recorded & TIMES:
            self.read_at = {}
        if not recorded & COUNTS:
            self.hits = {}

    def find(self, key: bytes) -> tuple[int, Millis]:
        """Return how often an entry was read, and when it was read last."""
        return self.hits.get(key, 0), self.read_at.get(key, 0)

    def forget(self, key: bytes) -> None:
        """Drop the statistics of an entry that is gone."""
        self.hits.pop(key, None)
        self.read_at.pop(key, None)

    def halve_hits(self, keys: Sequence[bytes]) -> None:
        """Count each second read of these entries only."""
        hits = self.hits
        for key in keys:
            if count := hits.get(key):
                hits[key] = count // 2

    def columns(self, keys: Sequence[bytes]) -> tuple[tuple[int, ...], tuple[Millis, ...]]:
        """Return the statistics of several keys; nothing if none of them was read."""
        hits, read_at = self.hits, self.read_at
        if not hits and not read_at:
            return (), ()
        found = [(hits.get(key, 0), read_at.get(key, 0)) for key in keys]
        if all(each == NEVER for each in found):
            return (), ()
        return tuple([count for count, _ in found]), tuple([at for _, at in found])

    def take(self, keys: Sequence[bytes], hits: Sequence[int], accessed: Sequence[Millis]) -> None:
        """Store statistics that a copy or a merge brings."""
        for key, count, at in zip(keys, hits, accessed, strict=True):
            self.forget(key)
            if count:
                self.hits[key] = count
            if at:
                self.read_at[key] = at
