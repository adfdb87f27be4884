"""Entries of bounded maps, dropped by the owner where there are too many.

A bound is of a whole map (`MapSettings.max_entries`); each partition holds its share of it, and evicts when it has more. It
evicts what was written longest ago, by the stamps of the writes: these are the same on every replica and after every
failover, so an owner goes on where the one before it was. Reads do not count. What a merge brings has the stamp of its write.
Whose time is over ends first; no partition evicts below its share.

An eviction is a write of its own, behind the one that was too much, and nobody waits for it: the owner says which keys are
gone, and its backups do not work it out. A write evicts as many as it may have brought, and some more; what is still too much
then, because a bound was lowered or a step has written many rows, goes in turns.

Settings are for any number of maps, and each partition may hold thousands: when a bound has changed, or an owner, the maps
are looked at in turns, too. A write looks at its own map only.

The oldest are found by ranking all entries of the partition now and then (`MapStore.oldest`), a few thousand in a turn: while a
large partition is ranked it evicts nothing, and holds more than its share by what is written in that time (a second or two
with a million entries, once in a quarter of a million evictions).
"""

from __future__ import annotations

from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import Millis
from phalanx.common.map_settings import MapPlan
from phalanx.grid.replication.expired import remove_ended
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.wire.messages import ReplicateRemove

KEYS_AT_ONCE = 200
"""Of one eviction."""
WITH_A_WRITE = 200
"""Entries that a write evicts besides those that it may have brought."""
IN_A_TURN = 1_000
"""Entries that are evicted in one turn, of all partitions."""
LOOKED_AT_IN_A_TURN = 2_000
"""Maps of which it is looked in one turn whether they are too large, in all partitions; each takes about a microsecond."""
PAUSE_MS: Millis = 5
"""Between two turns."""
SEALED_PAUSE_MS: Millis = 100
"""The same, where all that is left to evict is in sealed partitions."""


class _Due:
    """A partition that may hold too much."""

    __slots__ = ("looks_at_all", "names", "owned")

    def __init__(self, owned: OwnedPartition) -> None:
        self.owned = owned
        self.names: dict[str, None] = {}
        """Maps that may be too large, from the end on."""
        self.looks_at_all = False
        """Whether any of its maps may be."""


class Evictor:
    """What one member does about maps that are bounded, in the partitions that it owns."""

    def __init__(self, leader: Leader, plan: MapPlan) -> None:
        self._leader = leader
        self.is_on = plan.has_bounds
        """Whether some map may be bounded."""
        self._due: dict[int, _Due] = {}
        self._look_at: Millis | None = None

    def __repr__(self) -> str:
        return f"Evictor(is_on={self.is_on}, due={list(self._due)})"

    def on_plan(self, plan: MapPlan) -> None:
        """These settings hold from now on; the partitions are told of one by one."""
        self.is_on = plan.has_bounds

    def share(self, name: str) -> int:
        """Return how many entries of a map a partition may hold; 0: any number, as for hidden maps."""
        table = self._leader.table
        return 0 if is_hidden(name) else table.maps.of(name).share(table.partition_count)

    def after_write(self, owned: OwnedPartition, name: str, written: int, now: Millis) -> None:
        """So many keys of a map were written, and their backups told."""
        share = self.share(name)
        store = owned.replica.maps.get(name)
        if not share or store is None or len(store.entries) <= share:
            return
        self.trim(owned, name, share, written + WITH_A_WRITE, now)
        if len(store.entries) > share:
            self._note(owned, now).names[name] = None

    def look_at(self, owned: OwnedPartition, now: Millis) -> None:
        """The owner, its maps, or what they are to be like may be others than before."""
        if self.is_on and owned.replica.maps:
            self._note(owned, now).looks_at_all = True

    def let_go(self, partition: int) -> None:
        """It is not owned here any more."""
        self._due.pop(partition, None)

    def next_deadline(self) -> Millis | None:
        return self._look_at if self._due else None

    def on_time(self, now: Millis) -> None:
        if not self._due or (self._look_at is not None and now < self._look_at):
            return
        left, looks, sealed = IN_A_TURN, LOOKED_AT_IN_A_TURN, self._leader.sealed
        for due in list(self._due.values()):
            if due.owned.number in sealed:
                continue  # What it holds stays as its next owner has it; it may be this one again.
            if due.looks_at_all:
                due.names, due.looks_at_all = dict.fromkeys(reversed(due.owned.replica.maps)), False
            while due.names and left > 0 and looks > 0:
                name = next(reversed(due.names))
                left -= self._bring_down(due.owned, name, left, now)
                looks -= 1
                if left > 0:
                    del due.names[name]
            if due.names:
                break
            del self._due[due.owned.number]
        self._look_at = now + (SEALED_PAUSE_MS if self._due.keys() <= sealed.keys() else PAUSE_MS)

    def _note(self, owned: OwnedPartition, now: Millis) -> _Due:
        if not self._due:
            self._look_at = now + PAUSE_MS
        due = self._due.get(owned.number)
        if due is None:
            due = self._due[owned.number] = _Due(owned)
        return due

    def _bring_down(self, owned: OwnedPartition, name: str, limit: int, now: Millis) -> int:
        """Trim a map if it is too large, or go on to rank its entries: then that is all in this turn. How many are gone."""
        share, store = self.share(name), owned.replica.maps.get(name)
        if store is None or not 0 < share < len(store.entries):
            return 0
        gone = self.trim(owned, name, share, limit, now)
        store = owned.replica.maps.get(name)
        if store is not None and store.ranking is not None:
            store.rank_some()
            return limit
        return gone

    def trim(self, owned: OwnedPartition, name: str, share: int, limit: int, now: Millis) -> int:
        """Bring a map down to its share, or drop as many entries as the limit says; how many it was."""
        store = owned.replica.maps[name]
        over, left = len(store.entries) - share, limit
        while over > 0 and left > 0 and (ended := store.take_expired(now, min(left, KEYS_AT_ONCE))):
            remove_ended(self._leader, owned, name, ended, now)
            over, left = over - len(ended), left - len(ended)
        while over > 0 and left > 0:
            oldest = store.oldest(min(over, left, KEYS_AT_ONCE), self._leader.clock.read(now))
            if not oldest:
                break
            self._evict(owned, name, oldest, now)
            over, left = over - len(oldest), left - len(oldest)
        return limit - left

    def _evict(self, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        leader = self._leader
        evicted_at = leader.clock.stamp(now) if owned.replica.maps[name].journal is not None else 0
        removal = ReplicateRemove(*owned.next_head(), name, keys, [], None, evicted_at, evicted=True)
        leader.commit(owned, removal, None, now)
