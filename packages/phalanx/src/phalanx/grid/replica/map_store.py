"""What one replica holds of one map: entries, as serialised bytes, and what is known of entries that are gone.

A stored value is the stamp of its write (`common.clock`) followed by the serialised value: the same bytes on every
replica. `get` returns values without the stamp; `put` takes them with it.

Entries are in a plain dict of bytes to bytes, which costs the garbage collector nothing. Only entries that expire have
a second record. The owner decides expiry: a replica hides an entry that has expired by its own clock, and drops it when
the owner says so. The remaining time (`remaining_ms`), never a point in time, travels between members.

A removal leaves a tombstone: the key and the stamp of the removal. So a merge of two sides of a cut brings nothing back
that one side removed. A clear leaves one stamp for the whole map. Tombstones are kept for `tombstone_ms`; the greatest
stamp of the purged ones is remembered. If a key is missing here and the other side has it with stamp s, a merge
concludes:

    what is here                            what it means
    a removal or clear with a stamp above s the key was removed here after the other side wrote its value
    neither, and s is above `purged_to`     the key was never here, or the value is newer than its removal here
    neither, and s is not above it          the key may have been removed here, and its tombstone purged

An expired entry leaves no tombstone: each side finds the expiry by itself, and a later put without a TTL on the other
side is newer and stays. But an expired value may have replaced an older value that lives longer on the other side (1.
both sides have K without a TTL; 2. K is put here with a TTL of a second; 3. it expires here, and the other side still
has the old value), or a tombstone. Such a key is remembered (`covering`), and leaves a tombstone with the stamp of the
expired value.

An entry evicted from a bounded map (`eviction`) leaves no tombstone either: the tombstones of a map that is always full
would have no bound. The greatest evicted stamp stands for all of them (`evicted_to`): if a key is missing here, a merge
takes no value of it with a stamp up to that. It can be older than the value that was evicted; and where entries with
the least stamps are evicted first, it would have been evicted, too.

An entry can also expire because nobody has read or written it for so long (`idle`). `expires_at` has whichever end comes
first, so a reader of a living entry asks one dict. A read at the owner moves that end (`touch`), and no other member
hears of it. So a new owner lets all idle times begin anew: they count from `idle_since`, if that is later than the last
use, and the time in `expires_at` is the earliest at which an entry can expire (`end_of`). An entry that is in use never
expires early, and one that is not lives longer by at most its idle time for each change of the owner. Where nobody can
use the entries (`STILL`), idle times stand still.

Scan order is (hash of the key, key): the same on every replica, so a scan can go on at another replica. The order is
kept while a scan uses it (`scan_order`, `scanning`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from phalanx.codec.rows import add_rows, unpack_rows
from phalanx.common.clock import STAMP_BYTES, stamp_of
from phalanx.common.ids import Millis
from phalanx.common.map_settings import EvictionPolicy
from phalanx.grid.replica.access_statistics import AccessStatistics
from phalanx.grid.replica.eviction_order import RANKED_AT_ONCE, EvictionOrder
from phalanx.grid.replica.expiry_queue import ExpiryQueue
from phalanx.grid.replica.journal import EVICTED, EXPIRED, REMOVED
from phalanx.grid.replica.scan_order import RUN_KEYS, SPARE_KEYS, ScanOrder

STILL: Millis = 1 << 62
"""In the place of `idle_since`: no entry of the map expires because nobody uses it."""


class MapObserver(Protocol):
    """What is told of each change of a map's entries in one partition, on every replica, as it happens."""

    @property
    def is_full(self) -> bool:
        """Return whether it takes no more memory for a further change."""

    def put(self, key: bytes, stored: bytes, old: bytes | None, *, merged: bool) -> None:
        """Take note of a value that replaces the old one. `merged`: it comes from a merge."""

    def gone(self, key: bytes, old: bytes, stamp: int, kind: int) -> None:
        """Take note of an entry that was removed, has expired or was evicted (`kind`, as in `journal`)."""

    def cleared(self, entries: dict[bytes, bytes], stamp: int) -> None:
        """Take note that all entries are gone."""

    def replaced(self, old: dict[bytes, bytes], new: dict[bytes, bytes], stamp: int) -> None:
        """Take note that all entries are replaced by others."""


class MapStore:
    """The entries of one map in one partition."""

    __slots__ = (
        "accesses",
        "cleared_at",
        "covering",
        "entries",
        "evicted_to",
        "eviction_order",
        "expires_at",
        "expiry_queue",
        "held_bytes",
        "idle",
        "idle_since",
        "is_plain",
        "observers",
        "order",
        "purged_to",
        "tombstones",
    )  # fmt: skip

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        """Serialised key to stamped value."""
        self.expires_at: dict[bytes, Millis] = {}
        """Key of an entry that expires to the time of its expiry, by this member's clock; later where `idle_since` is
        (`end_of`)."""
        self.idle: dict[bytes, tuple[Millis, Millis]] = {}
        """Key of an entry that expires when it is idle to the time that it can be, and to the end of its time to live,
        by this member's clock (0: it lives for ever while it is used)."""
        self.idle_since: Millis = 0
        """From when on this member knows of all uses: all idle times count from then, or from a later use."""
        self.expiry_queue = ExpiryQueue()
        """Which entries expire next."""
        self.order: ScanOrder | None = None
        """All keys in scan order, while scans use it; it may not be sorted yet."""
        self.tombstones: dict[bytes, int] = {}
        """Removed key to the stamp of its removal, in the order of the removals."""
        self.cleared_at = 0
        """The stamp of the last clear; 0: none, or purged."""
        self.purged_to = 0
        """The greatest stamp of a removal, clear or eviction that was purged."""
        self.evicted_to = 0
        """The greatest stamp of an evicted entry; 0: none was evicted, or the stamp is purged."""
        self.eviction_order: EvictionOrder | None = None
        """Which entries to evict next, or the ranking that will tell; None: nobody has asked, or a merge has changed it."""
        self.held_bytes = 0
        """The size of all keys and values, without stamps."""
        self.covering: set[bytes] = set()
        """Keys of entries that expire, and leave a tombstone when they do."""
        self.observers: tuple[MapObserver, ...] = ()
        """What is told of each change of an entry, before it happens: the journal, where the map has one."""
        self.accesses: AccessStatistics | None = None
        """When and how often entries were read; None: nothing is known of it."""
        self.is_plain = True
        """Whether a put has nothing to do but to set an entry (`look_again`)."""

    def look_again(self) -> None:
        """Find out whether there is anything but entries, after a change of the rest."""
        self.is_plain = not (
            self.observers
            or self.expires_at
            or self.tombstones
            or self.order is not None
            or self.eviction_order is not None
            or self.accesses is not None
        )

    def watch(self, observers: tuple[MapObserver, ...]) -> None:
        """Tell these from now on of each change."""
        self.observers = observers
        self.look_again()

    def get(self, key: bytes, now: Millis) -> bytes | None:
        """Return the value without its stamp; None: there is none, or it has expired."""
        stored = self.entries.get(key)
        if stored is None or (self.expires_at and self.expires_at.get(key, now + 1) <= now and self.is_over(key, now)):
            return None
        return stored[STAMP_BYTES:]

    def end_of(self, key: bytes) -> Millis | None:
        """Return when a stored entry expires if nobody uses it until then; None: never."""
        at = self.expires_at.get(key)
        limit = self.idle.get(key) if self.idle else None
        return at if limit is None or at is None else max(at, _end_of(limit, self.idle_since))

    def is_over(self, key: bytes, now: Millis) -> bool:
        """Return whether a stored entry has expired."""
        at = self.end_of(key)
        return at is not None and at <= now

    def put(
        self, key: bytes, stored: bytes, ttl_ms: Millis, now: Millis, *, merged: bool = False, max_idle_ms: Millis = 0
    ) -> None:
        """Store a stamped value for `ttl_ms` milliseconds; 0: for ever. `merged`: the value comes from a merge.

        `max_idle_ms`: it expires before when nobody reads or writes it for so long; 0: it does not.
        """
        until = now + ttl_ms if ttl_ms else 0
        if max_idle_ms:
            ttl_ms = min(ttl_ms or max_idle_ms, max_idle_ms)
        entries = self.entries
        old = entries.get(key)
        for observer in self.observers:
            observer.put(key, stored, old, merged=merged)
        if merged and self.eviction_order is not None:
            self.eviction_order = None  # The value can rank before those that are here.
            self.look_again()
        if old is None:
            self._note_new_key(key)
            self.held_bytes += len(key) + len(stored) - STAMP_BYTES
        else:
            self.held_bytes += len(stored) - len(old)
        if ttl_ms:
            self._note_what_is_covered(key, now + ttl_ms)
        if self.idle:
            self.idle.pop(key, None)
        if max_idle_ms:
            self.idle[key] = max_idle_ms, until
        entries[key] = stored
        if self.tombstones and self.tombstones.pop(key, None) is not None and not self.tombstones:
            self.look_again()
        if ttl_ms:
            self.is_plain = False
            self.expires_at[key] = now + ttl_ms
            self.expiry_queue.add(key, now + ttl_ms)
            self.expiry_queue.drop_outdated(self.expires_at)
        elif self.expires_at and self.expires_at.pop(key, None) is not None:
            self.covering.discard(key)
            if not self.expires_at:
                self.look_again()

    def _note_new_key(self, key: bytes) -> None:
        if self.order is not None:
            self.order.add(key)
        if self.eviction_order is not None:
            self.eviction_order.on_new_key(key)
        if self.accesses is not None:
            self.accesses.expect((key,))

    def touch(self, key: bytes, now: Millis) -> None:
        """Begin the idle time of an entry anew, which is read and has not expired."""
        limit = self.idle.get(key)
        if limit is not None:
            self.expires_at[key] = _end_of(limit, now)

    def _note_what_is_covered(self, key: bytes, until: Millis) -> None:
        """Note the key if a value that expires at `until` is about to replace a tombstone, or a value that lives
        longer.

        A value that expires when it is idle lives as long as it is used, on another side of a cut, too.
        """
        if key in self.tombstones or (key in self.entries and self._lives_longest(key, until + 1) > until):
            self.covering.add(key)

    def _lives_longest(self, key: bytes, ever: Millis) -> Millis:
        """Return when a stored entry expires if it is used all the time; `ever`: never."""
        limit = self.idle.get(key) if self.idle else None
        return self.expires_at.get(key, ever) if limit is None else limit[1] or ever

    def put_many(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes],
        ttl_ms: Millis,
        now: Millis,
        *,
        merged: bool = False,
        max_idle_ms: Millis = 0,
    ) -> None:
        """Store several stamped values."""
        if ttl_ms or max_idle_ms or self.expires_at or self.observers:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value, ttl_ms, now, merged=merged, max_idle_ms=max_idle_ms)
        else:
            if merged and self.eviction_order is not None:
                self.eviction_order = None
                self.look_again()
            entries, written = self.entries, dict(zip(keys, values, strict=True))
            before = [old for old in map(entries.get, written) if old is not None]
            if len(before) < len(written):
                new = [key for key in written if key not in entries] if before else written
                self.held_bytes += sum(map(len, new)) - STAMP_BYTES * len(new)
                if not self.is_plain:
                    for key in new:
                        self._note_new_key(key)
            self.held_bytes += sum(map(len, written.values())) - sum(map(len, before))
            entries.update(written)
            if self.tombstones:
                for key in keys:
                    self.tombstones.pop(key, None)
                self.look_again()

    def put_rows(self, rows: bytes, now: Millis) -> None:
        """Store the stamped values of packed rows for ever."""
        if not self.is_plain:
            self.put_many(*unpack_rows(rows), 0, now)
        else:
            new, grown = add_rows(self.entries, rows)
            self.held_bytes += grown - STAMP_BYTES * new

    def expire(self, key: bytes, at: Millis, *, is_covering: bool, idle: tuple[Millis, Millis] | None = None) -> None:
        """Set the expiry time of a stored entry. `is_covering`: it leaves a tombstone then. `idle`: as in `MapStore.idle`;
        None: it does not expire because it is idle."""
        if idle is not None:
            self.idle[key] = idle
        self.is_plain = False
        self.expires_at[key] = at
        self.expiry_queue.add(key, at)
        if is_covering:
            self.covering.add(key)

    def copy(self) -> MapStore:
        """Return a store with the same entries, without tombstones; their idle times stand still there."""
        copied = MapStore()
        copied.entries, copied.expires_at = self.entries.copy(), self.expires_at.copy()
        copied.idle, copied.idle_since = self.idle.copy(), STILL
        copied.expiry_queue = self.expiry_queue.copy()
        copied.held_bytes = self.held_bytes
        copied.look_again()
        return copied

    def remove(self, key: bytes, stamp: int = 0, ended_at: int = 0, *, evicted: bool = False) -> None:
        """Drop an entry and leave a tombstone, also where the key is not here: a copy may not have brought it yet.

        `stamp`: that of the tombstone; 0: leave none. `ended_at`, of a map with observers: the stamp at which the owner
        found the entry expired; 0: a caller removes it. `evicted`: it is evicted from a bounded map, at `ended_at`.
        """
        old = self.entries.pop(key, None)
        if old is not None:
            for observer in self.observers:
                kind = EVICTED if evicted else EXPIRED if ended_at else REMOVED
                observer.gone(key, old, ended_at or stamp, kind)
            if evicted:
                self.evicted_to = max(self.evicted_to, stamp_of(old))
            if self.idle:
                self.idle.pop(key, None)
            self.expires_at.pop(key, None)
            self.covering.discard(key)
            if self.accesses is not None:
                self.accesses.forget(key)
            if self.eviction_order is not None:
                self.eviction_order.on_removed(key)
            self.held_bytes -= len(key) + len(old) - STAMP_BYTES
        if stamp:
            self.tombstones.pop(key, None)
            self.tombstones[key] = stamp
            self.is_plain = False
        elif not self.is_plain:
            self.look_again()

    def take_evicted(self, policy: str, entries: int, size: int, limit: int, stamp: int) -> list[bytes]:
        """Return the keys of the entries that are to be evicted next, in their order; the caller removes them.

        As many as have `entries` entries and `size` bytes together, at most `limit`, and never all. With many entries
        that are not ranked yet, begin a ranking, which `rank_some` continues, and return none until it is done; less
        than asked for can be returned in other cases, too. `stamp`: the present one.
        """
        limit = min(limit, len(self.entries) - 1)
        if policy == EvictionPolicy.SOONEST and self.expires_at:
            return self.expiry_queue.take_soonest(self, entries, size, limit)
        order = self.eviction_order
        if order is not None and order.policy == policy and not order.is_used_up:
            if not order.is_ready:
                return []
            found = order.take(self, entries, size, limit)
            if found or not order.is_used_up:
                return found
        # Also where all that was ranked has been used since.
        order = self.eviction_order = EvictionOrder(self, policy, stamp, order)
        self.is_plain = False
        if len(self.entries) > RANKED_AT_ONCE:
            return []
        order.rank_some(self)
        return order.take(self, entries, size, limit)

    @property
    def is_ranking(self) -> bool:
        """Whether a ranking for evictions is under way."""
        return self.eviction_order is not None and not self.eviction_order.is_ready

    def rank_some(self) -> None:
        """Continue the ranking, if one is under way."""
        if self.eviction_order is not None and not self.eviction_order.is_ready:
            self.eviction_order.rank_some(self)

    def count_bytes(self) -> int:
        """Count `held_bytes` anew, to check it."""
        entries = self.entries
        return sum(map(len, entries)) + sum(map(len, entries.values())) - STAMP_BYTES * len(entries)

    def take_accesses(self, keys: Sequence[bytes], hits: Sequence[int], accessed: Sequence[Millis]) -> None:
        """Store the statistics of entries that a copy or a merge brings; without `hits`: these were never read."""
        if self.accesses is None:
            if not hits:
                return
            self.accesses = AccessStatistics()
            self.is_plain = False
        if hits:
            self.accesses.take(keys, hits, accessed)
        else:
            for key in keys:
                self.accesses.forget(key)

    def ended(self, keys: Iterable[bytes], now: Millis) -> list[bytes]:
        """Return those of the keys whose entries have expired and are still stored."""
        expires_at = self.expires_at
        return [key for key in keys if key in expires_at and self.is_over(key, now)] if expires_at else []

    def state_of(self, key: bytes, now: Millis) -> tuple[int, bytes | None]:
        """Return the stamp of a key's last write and its stamped value; or the stamp of its removal and None; or 0 and
        None: nothing is known of it. An expired entry counts as dropped.
        """
        stored = self.entries.get(key)
        if stored is None:
            return max(self.tombstones.get(key, 0), self.cleared_at), None
        if self.expires_at and self.is_over(key, now):
            return stamp_of(stored) if key in self.covering else self.cleared_at, None
        return stamp_of(stored), stored

    def end_stamps(self, keys: Sequence[bytes]) -> list[int]:
        """Return the stamps of the tombstones that expired entries leave, one for each key (0: no tombstone); empty: none."""
        covering = self.covering
        if not covering or covering.isdisjoint(keys):
            return []
        return [stamp_of(self.entries[key]) if key in covering else 0 for key in keys]

    def purge(self, to: int, limit: int) -> int:
        """Drop tombstones with stamps up to `to`, the earliest first, at most `limit`. Return how many were dropped."""
        if 0 < self.cleared_at <= to:
            self.purged_to, self.cleared_at = max(self.purged_to, self.cleared_at), 0
        if 0 < self.evicted_to <= to:
            self.purged_to, self.evicted_to = max(self.purged_to, self.evicted_to), 0
        purged: list[bytes] = []
        for key, stamp in self.tombstones.items():
            if stamp > to or len(purged) == limit:
                break
            purged.append(key)
            self.purged_to = max(self.purged_to, stamp)
        for key in purged:
            del self.tombstones[key]
        if purged and not self.tombstones:
            self.tombstones = {}  # The old one keeps the memory of what was in it.
            self.look_again()
        return len(purged)

    def size(self, now: Millis) -> int:
        """Return the number of entries whose time is not over."""
        if not self.expires_at or self.expiry_queue.has_none_until(now):
            return len(self.entries)
        # For a tenth of a second at most: then what is over is dropped, or begins to be.
        if self.idle:
            return len(self.entries) - sum(1 for key in self.expires_at if self.is_over(key, now))
        return len(self.entries) - sum(1 for at in self.expires_at.values() if at <= now)

    def remaining_ms(self, key: bytes, now: Millis) -> Millis:
        """Return how much longer the entry lives (at least 1); 0: for ever."""
        at = self.end_of(key)
        return 0 if at is None else max(at - now, 1)

    def ttl_ms(self, key: bytes, now: Millis) -> Millis:
        """Return how much longer the entry lives if it is used all the time (at least 1); 0: for ever."""
        limit = self.idle.get(key) if self.idle else None
        if limit is None:
            return self.remaining_ms(key, now)
        return max(limit[1] - now, 1) if limit[1] else 0

    def max_idle_ms(self, key: bytes) -> Millis:
        """Return how long the entry lives while nobody uses it; 0: as long as otherwise."""
        return self.idle[key][0] if key in self.idle else 0

    def take_expired(self, now: Millis, limit: int | None = None) -> list[bytes]:
        """Return keys of expired entries, at most `limit` (None: all), each once; the entries are still stored."""
        return self.expiry_queue.take_due(self, now, limit)

    def ordered(self) -> ScanOrder | None:
        """Return the keys in scan order; None: they are many, and not sorted yet (`ScanOrder.sort_some`)."""
        order = self.order
        if order is None or order.size > 2 * len(self.entries) + SPARE_KEYS:
            order = self.order = ScanOrder(self.entries)
            self.is_plain = False
            if order.size <= RUN_KEYS:
                while not order.is_ready:
                    order.sort_some()
        return order if order.is_ready else None


def _end_of(limit: tuple[Millis, Millis], now: Millis) -> Millis:
    """Return when an entry with this limit (`MapStore.idle`) expires that is used now."""
    idle_ms, until = limit
    return min(now + idle_ms, until) if until else now + idle_ms
