"""On the master: which partitions wait for a member that comes back, before their replicas are made elsewhere (DU-39).

A member that stops says that it comes back with what its folder has. One that crashes can: it is waited for only where two others
still hold the partition. Another crash would end the only replica that is in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from phalanx.common.departure import Departure, Departures
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Slots
from phalanx.common.view import MembersView

ENOUGH = 2
"""So many others must hold a partition of which a replica went in a crash."""


class _Wait(NamedTuple):
    stores: frozenset[str]
    """The folders that are waited for."""
    until: Millis


class RestartGrace:
    """The partitions of which a replica is in the folder of a member that can be back soon."""

    def __init__(self, grace_ms: Millis) -> None:
        self._grace_ms = grace_ms
        self.away: Departures = ()
        """The members that keep in their folders what they held."""
        self._waits: dict[int, _Wait] = {}

    def __repr__(self) -> str:
        return f"RestartGrace({sorted(self._waits)})"

    @property
    def partitions(self) -> Collection[int]:
        """Return the partitions that wait."""
        return self._waits.keys()

    @property
    def until(self) -> Millis | None:
        """Return when the first wait is over; None: nothing waits."""
        return min((wait.until for wait in self._waits.values()), default=None)

    def forget(self) -> None:
        """Wait for nobody."""
        self._waits.clear()

    def note(self, before: PartitionTable, changes: Mapping[int, Slots], view: MembersView, now: Millis) -> None:
        """Note which replicas went with members that are not in the view."""
        away = {MemberId(each.member): each for each in self.away}
        for partition, row in changes.items():
            gone = [member for member in before.replicas(partition) if member not in view]
            stores = _stores_of(gone, away, sum(member is not None for member in row))
            earlier = self._waits.pop(partition, None)
            if not gone and earlier is not None:
                self._waits[partition] = earlier
            elif stores and row and self._grace_ms:
                known = earlier.stores if earlier is not None else frozenset()
                self._waits[partition] = _Wait(stores | known, now + self._grace_ms)

    def end_if_over(self, back: Collection[str], now: Millis) -> bool:
        """End the waits for folders that are back, and those that have lasted for long enough. Return whether any has ended."""
        over = [p for p, wait in self._waits.items() if now >= wait.until or wait.stores.issubset(back)]
        for partition in over:
            del self._waits[partition]
        return bool(over)


def _stores_of(gone: Collection[MemberId], away: Mapping[MemberId, Departure], left: int) -> frozenset[str]:
    """Return the folders that are worth a wait; empty: replicas are made elsewhere at once."""
    if not all(member in away and (away[member].returns or left >= ENOUGH) for member in gone):
        return frozenset()
    return frozenset(away[member].store for member in gone)
