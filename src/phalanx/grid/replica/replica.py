"""One replica of one partition: the stores of its maps, and all else that goes with it wherever it goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import MemberId, Millis
from phalanx.grid.replica.deduplication import Deduplication
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.staged import Staged


class Replica:
    """One replica of one partition: its maps, and the position that it has reached in the writes of an owner.

    `epoch` is the partition's version when its owner took over, `leader` is the owner, `seq` the sequence
    number of the last write applied. Two replicas with equal epoch, leader and seq hold the same entries and outcomes.
    The epoch alone does not suffice: a master may die when few members have its table, and the next master may give the
    same version to another owner.
    """

    __slots__ = (
        "deduplication",
        "ended",
        "epoch",
        "journals",
        "leader",
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
        """The owner whose writes were applied last (this member itself where it owned the partition); empty: none
        yet."""
        self.ordered_for = -1
        """The partition's version for which the master ordered this copy: the master may commit the copy until the
        table has a greater version. -1: not a copy."""
        self.ordered_by: MemberId | None = None
        """The master that ordered this copy: once it has a successor, the copy will not be committed."""
        self.ended = -1
        """The epoch that this replica gave up, because a new master's table did not know it. -1: none."""
        self.maps: dict[str, MapStore] = {}
        self.journals: dict[str, MapJournal] = {}
        """Map to its journal, also where the map is empty at present."""
        self.deduplication = Deduplication()
        """The outcomes of writes that callers may retry."""
        self.staged = Staged()
        """What became of jobs that stage writes."""
        self.purged_to = 0
        """`MapStore.purged_to` of the maps that have no store here any more."""

    def __repr__(self) -> str:
        return f"Replica(epoch={self.epoch}, seq={self.seq}, entries={self.entry_count()})"

    def begin_epoch(self, epoch: int, leader: str) -> None:
        """Begin an epoch: from now on the writes are those of this owner, which may be this member."""
        self.epoch, self.leader = epoch, leader
        for journal in self.journals.values():
            journal.begin_epoch(epoch, leader)

    def keep_journal(self, name: str, journal: MapJournal | None) -> None:
        """Give a map this journal; None: take its journal away."""
        if journal is None:
            self.journals.pop(name, None)
        else:
            self.journals[name] = journal
        if name in self.maps:
            self.maps[name].journal = journal

    def map(self, name: str) -> MapStore:
        """Return the store of a map, and make it if there is none."""
        store = self.maps.get(name)
        if store is None:
            store = self.maps[name] = MapStore()
            store.purged_to = self.purged_to
            if self.journals:
                store.journal = self.journals.get(name)
        return store

    def state_of(self, name: str, key: bytes, now: Millis) -> tuple[int, bytes | None]:
        """Return what is known of a key, like `MapStore.state_of`."""
        store = self.maps.get(name)
        return store.state_of(key, now) if store is not None else (0, None)

    def purged_to_of(self, name: str) -> int:
        """Return the stamp up to which removals from the map may have been purged."""
        store = self.maps.get(name)
        return store.purged_to if store is not None else self.purged_to

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
        """Drop all entries and tombstones of a map, and keep the stamp of the clear; 0: keep nothing.

        Returns the old store, which the caller frees in turns.
        """
        before = self.maps.pop(name, None)
        if before is not None and before.journal is not None:
            before.journal.cleared(before.entries, stamp)
        if stamp:
            store = self.map(name)
            store.cleared_at = stamp
            if before is not None:
                store.purged_to = before.purged_to
        return [before] if before is not None else []

    def purge(self, to: int, limit: int) -> int:
        """Drop tombstones with stamps up to `to`, at most `limit`. Return how many were dropped."""
        purged = 0
        for name, store in list(self.maps.items()):
            if store.tombstones or store.cleared_at or store.evicted_to:
                purged += store.purge(to, limit - purged)
                self.drop_if_empty(name, store)
                if purged >= limit:
                    break
        return purged

    def drop_if_empty(self, name: str, store: MapStore) -> None:
        """A map of which nothing is known costs nothing."""
        if store.is_empty:
            self.purged_to = max(self.purged_to, store.purged_to)
            del self.maps[name]

    def entry_count(self) -> int:
        """Of all maps; what is hidden is none of them."""
        return sum(len(store.entries) for name, store in self.maps.items() if not is_hidden(name))
