"""Evict entries of bounded maps, at the owner.

A bound is of a whole map (`MapSettings.max_entries` and `max_bytes`); each partition has its share of it, and evicts when
it has more. The policy of the map says which entries (`replica.eviction_order`). Stamps of writes are the same on every
replica, so by `oldest` and `soonest-to-expire` a new owner continues where the one before it stopped. Reads are known to
the owner alone, and to who has got a copy since: by `lru` and `lfu` a new owner goes by what its copy brought, and by the
writes. Expired entries are dropped first; no partition evicts below its share, nor its last entry.

An eviction is a write of its own, after the write that exceeded the share, and no caller waits for it. The owner names
the keys; its backups compute nothing. A write evicts as many entries as it may have added, and some more. The rest,
after a bound was lowered or a step has written many rows, is evicted in turns.

Any number of maps can be bounded, and a partition can hold thousands of maps: after a change of bounds or of the owner,
all maps are checked in turns, too. A write checks only its own map.

The entries to evict are found by ranking all entries of a map in the partition now and then, a few thousand in a turn.
During the ranking of many entries nothing is evicted, so the partition exceeds its share by the writes of that time (a
second or two with a million entries, once in a quarter of a million evictions).
"""

from __future__ import annotations

from collections import Counter

from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import Millis
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import Share
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.machine.alarms import Alarm
from phalanx.wire.messages import ReplicateRemove

KEYS_AT_ONCE = 200
"""The most keys of one eviction."""
WITH_A_WRITE = 200
"""Entries that a write evicts besides as many as it may have added."""
IN_A_TURN = 600
"""Entries evicted in one turn, in all partitions together."""
LOOKED_AT_IN_A_TURN = 2_000
"""Maps whose size is checked in one turn, in all partitions together; each takes about a microsecond."""
PAUSE_MS: Millis = 5
"""Between two turns."""
SEALED_PAUSE_MS: Millis = 100
"""Between two turns, while only sealed partitions have something to evict."""

UNBOUNDED = Share(0, 0)


class _Due:
    """A partition in which maps can exceed their shares."""

    __slots__ = ("looks_at_all", "names", "owned")

    def __init__(self, owned: OwnedPartition) -> None:
        self.owned = owned
        self.names: dict[str, None] = {}
        """Maps that can exceed their shares, to be checked from the end on."""
        self.looks_at_all = False
        """Whether all its maps are to be checked."""


class Evictor:
    """Evicts entries of bounded maps in the partitions that this member owns."""

    def __init__(self, leader: Leader, ownership: Ownership) -> None:
        self._leader = leader
        self._ownership = ownership
        self.is_on = ownership.table.maps.has_bounds
        """Whether any map can be bounded."""
        self._due: dict[int, _Due] = {}
        self._look_at: Millis | None = None
        self.alarm = Alarm(self)
        self.evicted: Counter[str] = Counter()
        """Map to how many of its entries this member evicted."""

    def __repr__(self) -> str:
        return f"Evictor(is_on={self.is_on}, due={list(self._due)})"

    def on_plan(self, plan: MapPlan) -> None:
        """Take new settings; `look_at` is then called for each partition."""
        self.is_on = plan.has_bounds

    def share(self, name: str) -> Share:
        """Return what a partition can hold of a map; any number of hidden maps."""
        table = self._ownership.table
        return UNBOUNDED if is_hidden(name) else table.maps.of(name).share(table.partition_count)

    def after_write(self, owned: OwnedPartition, name: str, written: int, now: Millis) -> None:
        """Evict what a write of `written` keys has brought a map above its share; note the map if some is left."""
        share = self.share(name)
        store = owned.replica.maps.get(name)
        if not share.is_on or store is None or not _exceeds(store, share):
            return
        self.trim(owned, name, share, written + WITH_A_WRITE, now)
        if _exceeds(store, share):
            self._note(owned, now).names[name] = None

    def look_at(self, owned: OwnedPartition, now: Millis) -> None:
        """Check all maps of a partition later: it has a new owner, or other settings."""
        if self.is_on and owned.replica.maps:
            self._note(owned, now).looks_at_all = True

    def release_partition(self, partition: int) -> None:
        """Forget a partition that is not owned here any more."""
        if self._due.pop(partition, None) is not None:
            self.alarm.follow()

    def next_deadline(self) -> Millis | None:
        return self._look_at if self._due else None

    def on_time(self, now: Millis) -> None:
        if not self._due or (self._look_at is not None and now < self._look_at):
            return
        left, looks, sealed = IN_A_TURN, LOOKED_AT_IN_A_TURN, self._ownership.sealed
        for due in list(self._due.values()):
            if due.owned.number in sealed:
                continue  # Its content must stay equal to its next owner's. That can be this member again.
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
            self.alarm.follow()
        return due

    def _bring_down(self, owned: OwnedPartition, name: str, limit: int, now: Millis) -> int:
        """Trim a map that exceeds its share, or continue the ranking of its entries.

        Returns how many entries were dropped; `limit` if more is to do, for which the rest of the turn counts as taken.
        """
        share, store = self.share(name), owned.replica.maps.get(name)
        if store is None or not _exceeds(store, share):
            return 0
        gone = self.trim(owned, name, share, limit, now)
        if not gone:
            store.rank_some()
        return limit if _exceeds(store, share) else gone

    def trim(self, owned: OwnedPartition, name: str, share: Share, limit: int, now: Millis) -> int:
        """Drop entries until a map is down to its share, at most `limit`. Return how many were dropped."""
        store, policy = owned.replica.maps[name], self._ownership.table.maps.of(name).eviction
        left = limit
        while left > 0 and _exceeds(store, share) and (ended := store.take_expired(now, min(left, KEYS_AT_ONCE))):
            self._leader.remove_ended(owned, name, ended, now)
            left -= len(ended)
        while left > 0 and _exceeds(store, share):
            entries, size = share.excess(len(store.entries), store.held_bytes)
            stamp = self._leader.clock.read(now)
            keys = store.take_evicted(policy, entries, size, min(left, KEYS_AT_ONCE), stamp)
            if not keys:
                break
            self._evict(owned, name, keys, now)
            left -= len(keys)
        return limit - left

    def _evict(self, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        leader = self._leader
        evicted_at = leader.clock.stamp(now) if owned.replica.maps[name].observers else 0
        self.evicted[name] += len(keys)
        leader.commit(owned, ReplicateRemove, None, now, name, keys, [], None, evicted_at, evicted=True)


def _exceeds(store: MapStore, share: Share) -> bool:
    """Return whether a map exceeds its share; like `Share.excess`, for each write."""
    count = len(store.entries)
    return count > share.entries > 0 or (store.held_bytes > share.bytes > 0 and count > 1)
