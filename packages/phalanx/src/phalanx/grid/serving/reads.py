"""What reads change: what is recorded of them for eviction, and the idle times that begin anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.common.clock import COUNTER_BITS, GridClock
from phalanx.common.ids import Millis
from phalanx.grid.replica.access_statistics import AccessStatistics, recorded_for
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.journal_settings import read_journal
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.wire.messages import JournalReply, ReadJournal

EXPECTED_AT_ONCE = 4_096
"""Where a map has more entries in a partition when its reads begin to be recorded, these are recorded under copies of their keys."""


class Reads:
    """Records the reads of the entries that one member owns."""

    def __init__(self, ownership: Ownership, idle_maps: Mapping[str, None], clock: GridClock) -> None:
        """`idle_maps`: had entries here which expire when nobody uses them."""
        self._ownership = ownership
        self._idle_maps = idle_maps
        self._clock = clock
        self.now: Millis = -1
        """`now` of the last read that was recorded."""
        self.time: Millis = 0
        """What the grid's clock showed then: all reads of one millisecond share this number, and so its memory."""

    def note_read(self, store: MapStore, name: str, key: bytes, now: Millis) -> None:
        """Record a read of an entry, if the map's settings ask for it."""
        accesses = store.accesses
        if accesses is None:
            recorded = recorded_for(self._ownership.table.maps.of(name))
            if not recorded:
                return
            accesses = store.accesses = AccessStatistics(recorded)
            store.is_plain = False
            if len(store.entries) <= EXPECTED_AT_ONCE:
                accesses.expect(store.entries)
        if now != self.now:
            self.begin_reads(now)
        accesses.note(key, self.time)

    def begin_reads(self, now: Millis) -> None:
        """Look at the clock for the reads that are made at this time."""
        self.now, self.time = now, self._clock.read(now) >> COUNTER_BITS

    def follow_settings(self, replica: Replica) -> None:
        """Record of the reads of a replica's maps what their settings ask for."""
        for name, store in replica.maps.items():
            self.follow_recording(name, store)

    def follow_recording(self, name: str, store: MapStore) -> None:
        """Record of a map's reads what its settings ask for, and forget what they do not."""
        if store.accesses is None:
            return
        recorded = recorded_for(self._ownership.table.maps.of(name))
        if store.accesses.recorded & ~recorded:
            store.eviction_order = None  # Ranks rely on reads that are forgotten now; they must only grow.
        store.accesses.record(recorded)
        if not recorded:
            store.accesses = None
        store.look_again()

    def has_idle(self, name: str) -> bool:
        """Return whether a map has entries here that expire when nobody uses them."""
        return name in self._idle_maps

    def note_all(self, name: str, read: Iterable[tuple[bytes, OwnedPartition, bytes | None]], now: Millis) -> None:
        """Record reads of entries, and let their idle times begin anew. `read`: key, partition and value of each."""
        counts_reads, has_idle = self._ownership.rules.counts_reads, self.has_idle(name)
        for key, owned, value in read:
            if value is not None:
                store = owned.replica.maps[name]
                if has_idle:
                    store.touch(key, now)
                if counts_reads:
                    self.note_read(store, name, key, now)

    def read_journal(self, owned: OwnedPartition, request: ReadJournal) -> JournalReply:
        """Answer a reader of a journal."""
        return read_journal(owned, request)
