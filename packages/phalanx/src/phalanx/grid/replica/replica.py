"""One replica of one partition: the stores of its maps, and all else that goes with it wherever it goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from phalanx.common.hidden_maps import has_locks, is_hidden
from phalanx.common.ids import MemberId, Millis
from phalanx.common.lineage import Lineage, followed
from phalanx.grid.replica.deduplication import Deduplication
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.lock_state import FENCE_STAMPS
from phalanx.grid.replica.map_store import MapObserver, MapStore
from phalanx.grid.replica.staged import Staged


class Cleared(NamedTuple):
    """What is remembered of a map that was cleared, while it has no store: as of `MapStore`."""

    cleared_at: int
    purged_to: int


class Replica:
    """One replica of one partition: its maps, and the position that it has reached in the writes of an owner.

    `epoch` is the partition's version when its owner took over, `leader` is the owner, `seq` the sequence
    number of the last write applied. Two replicas with equal epoch, leader and seq hold the same entries and outcomes.
    The epoch alone does not suffice: a master can die when few members have its table, and the next master can give the
    same version to another owner.
    """

    __slots__ = (
        "cleared",
        "deduplication",
        "ended",
        "epoch",
        "journals",
        "leader",
        "lineage",
        "maps",
        "ordered_by",
        "ordered_for",
        "purged_to",
        "seq",
        "staged",
    )  # fmt: skip

    def __init__(self, epoch: int = 0, seq: int = 0, leader: str = "") -> None:
        self.epoch = epoch
        self.seq = seq
        self.leader = leader
        """The owner whose writes were applied last (this member itself where it owned the partition); empty: none yet."""
        self.lineage: Lineage = ()
        """Under which owners its writes were made."""
        self.ordered_for = -1
        """The partition's version for which the master ordered this copy: the master can commit the copy until the
        table has a greater version. -1: not a copy."""
        self.ordered_by: MemberId | None = None
        """The master that ordered this copy: once it has a successor, the copy will not be committed."""
        self.ended = -1
        """The epoch that this replica gave up, because a new master's table did not know it. -1: none."""
        self.maps: dict[str, MapStore] = {}
        self.cleared: dict[str, Cleared] = {}
        """Maps of which nothing is known but that they were cleared. A store would cost each of them 700 bytes, and a place
        among the maps that a member may have."""
        self.journals: dict[str, MapJournal] = {}
        """Map to its journal, also where the map is empty at present."""
        self.deduplication = Deduplication()
        """The outcomes of writes that callers can retry."""
        self.staged = Staged()
        """What became of jobs that stage writes."""
        self.purged_to = 0
        """`MapStore.purged_to` of the maps that have no store here any more."""

    def __repr__(self) -> str:
        return f"Replica(epoch={self.epoch}, seq={self.seq}, entries={self.entry_count()})"

    def begin_epoch(self, epoch: int, leader: str) -> None:
        """Begin an epoch: from now on the writes are those of this owner, which can be this member."""
        self.epoch, self.leader = epoch, leader
        self.lineage = followed(self.lineage, epoch, leader, self.seq)
        for journal in self.journals.values():
            journal.begin_epoch(epoch, leader)

    def keep_journal(self, name: str, journal: MapJournal | None) -> None:
        """Give a map this journal; None: take its journal away."""
        if journal is None:
            self.journals.pop(name, None)
        else:
            self.journals[name] = journal
        if name in self.maps:
            self.maps[name].watch(self.observers_of(name))

    def is_observed(self, name: str) -> bool:
        """Return whether anything is told of changes of a map's entries."""
        store = self.maps.get(name)
        return bool(store.observers if store is not None else self.observers_of(name))

    def observers_of(self, name: str) -> tuple[MapObserver, ...]:
        """Return what is told of each change of a map's entries."""
        journal = self.journals.get(name)
        return (journal,) if journal is not None else ()

    def map(self, name: str) -> MapStore:
        """Return the store of a map, and make it if there is none."""
        store = self.maps.get(name)
        if store is None:
            store = self.maps[name] = MapStore()
            store.cleared_at, store.purged_to = self.cleared.pop(name, (0, self.purged_to))
            if self.journals:
                store.watch(self.observers_of(name))
        return store

    def state_of(self, name: str, key: bytes, now: Millis) -> tuple[int, bytes | None]:
        """Return what is known of a key, like `MapStore.state_of`."""
        store = self.maps.get(name)
        return store.state_of(key, now) if store is not None else (self._cleared_of(name).cleared_at, None)

    def _cleared_of(self, name: str) -> Cleared:
        return self.cleared.get(name) or Cleared(0, self.purged_to)

    def purged_to_of(self, name: str) -> int:
        """Return the stamp up to which removals from the map may have been purged."""
        store = self.maps.get(name)
        return store.purged_to if store is not None else self._cleared_of(name).purged_to

    def evicted_to_of(self, name: str) -> int:
        """Return the greatest stamp of an entry evicted from the map; 0: none."""
        store = self.maps.get(name)
        return store.evicted_to if store is not None else 0

    def remove(
        self,
        name: str,
        keys: Sequence[bytes],
        stamps: Sequence[int] = (),
        ended_at: int = 0,
        *,
        evicted: bool = False,
    ) -> None:
        """Drop entries. `stamps`: those of the tombstones, one for each key (0: none) or one for all; empty: leave
        none.

        `ended_at` and `evicted`: as in `MapStore.remove`.
        """
        store = self.maps.get(name)
        if store is None:
            if not any(stamps):
                return
            store = self.map(name)
        if not stamps:
            for key in keys:
                store.remove(key, 0, ended_at, evicted=evicted)
        else:
            for key, stamp in zip(keys, stamps if len(stamps) > 1 else repeat(stamps[0], len(keys)), strict=True):
                store.remove(key, stamp, ended_at)
        self.drop_if_empty(name, store)

    def clear(self, name: str, stamp: int = 0) -> list[MapStore]:
        """Drop all entries and tombstones of a map, and keep the stamp of the clear; 0: keep nothing. Return the old
        store, to be freed.
        """
        before, purged_to = self.maps.pop(name, None), self._cleared_of(name).purged_to
        if before is not None:
            purged_to = before.purged_to
            for observer in before.observers:
                observer.cleared(before.entries, stamp)
        self.cleared.pop(name, None)  # The map that was cleared last is the last one.
        if stamp:
            self.cleared[name] = Cleared(stamp, purged_to)
        return [before] if before is not None else []

    def purge(self, to: int, limit: int) -> int:
        """Drop tombstones with stamps up to `to`, at most `limit`. Return how many were dropped."""
        purged = self._purge_cleared(to, limit)
        for name, store in list(self.maps.items()):
            if store.tombstones or store.cleared_at or store.evicted_to:
                # What was forgotten of locks is needed for as long as their tokens are remembered.
                purged += store.purge(to - FENCE_STAMPS if has_locks(name) else to, limit - purged)
                self.drop_if_empty(name, store)
                if purged >= limit:
                    break
        return purged

    def _purge_cleared(self, to: int, limit: int) -> int:
        """Forget maps that were cleared up to a stamp, the earliest first, at most `limit`. Return how many."""
        purged: list[str] = []
        for name, cleared in self.cleared.items():
            if cleared.cleared_at > to or len(purged) == limit:
                break
            purged.append(name)
            self.purged_to = max(self.purged_to, *cleared)
        for name in purged:
            del self.cleared[name]
        return len(purged)

    def drop_if_empty(self, name: str, store: MapStore) -> None:
        """Drop the store of a map without entries: a map of which nothing is known costs nothing, a cleared one no store."""
        if store.entries or store.tombstones or store.evicted_to:
            return
        del self.maps[name]
        if store.cleared_at:
            self.cleared[name] = Cleared(store.cleared_at, store.purged_to)
        else:
            self.purged_to = max(self.purged_to, store.purged_to)

    @property
    def has_data(self) -> bool:
        """Whether there is anything that can be merged."""
        return bool(self.maps or self.cleared)

    def entry_count(self) -> int:
        """Return the number of entries of all maps but hidden ones."""
        return sum(len(store.entries) for name, store in self.maps.items() if not is_hidden(name))
