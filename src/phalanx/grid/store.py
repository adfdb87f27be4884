"""What one replica of one partition holds: for each map its entries, as serialised bytes.

A stored value is the stamp of the grid's clock that its write got (`common.clock`), and the serialised value: the same
bytes on every replica. Whoever asks for a value gets it without the stamp; what is given to a store comes with it.

Entries stand in a plain dict of bytes to bytes, which costs the cycle collector nothing. Only entries that expire have
a second record. Expiry is decided by the owner: a replica hides what its own clock says is over, and drops it when the
owner tells so; `remaining_ms`, never a point in time, travels between members.

Scan order is (hash of the key, key): the same on every replica, so a scan goes on at another one. The sorted keys are
kept until the set of keys changes.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence

from phalanx.common.clock import STAMP_BYTES, value_of
from phalanx.common.ids import Millis
from phalanx.grid.outcomes import Outcomes
from phalanx.partition.hashing import scan_position

Position = tuple[int, bytes]


class MapStore:
    """The entries of one map in one partition."""

    __slots__ = ("_due", "entries", "expires_at", "sorted_positions")

    def __init__(self) -> None:
        self.entries: dict[bytes, bytes] = {}
        """Serialised key to stamped value."""
        self.expires_at: dict[bytes, Millis] = {}
        """Of the keys that expire: when, by this member's clock."""
        self._due: list[tuple[Millis, bytes]] = []
        """Heap of expiries; may hold ones that were superseded."""
        self.sorted_positions: list[Position] | None = None
        """All keys in scan order, while the set of keys stays the same; None until a scan needs them."""

    def get(self, key: bytes, now: Millis) -> bytes | None:
        """The value, unless there is none or its time is over."""
        stored = self.entries.get(key)
        if stored is None or (self.expires_at and self.expires_at.get(key, now + 1) <= now):
            return None
        return stored[STAMP_BYTES:]

    def put(self, key: bytes, stored: bytes, ttl_ms: Millis, now: Millis) -> None:
        """Store a stamped value, for `ttl_ms` milliseconds or (0) for ever."""
        entries = self.entries
        if self.sorted_positions is not None and key not in entries:
            self.sorted_positions = None
        entries[key] = stored
        if ttl_ms:
            self.expires_at[key] = now + ttl_ms
            heapq.heappush(self._due, (now + ttl_ms, key))
            if len(self._due) > 2 * len(self.expires_at) + 64:
                # Backups never take what has expired, and overwritten expiries stay behind: keep what still counts.
                self._due = [(at, key) for key, at in self.expires_at.items()]
                heapq.heapify(self._due)
        elif self.expires_at:
            self.expires_at.pop(key, None)

    def put_many(self, keys: Sequence[bytes], values: Sequence[bytes], ttl_ms: Millis, now: Millis) -> None:
        """Store several stamped values."""
        if ttl_ms or self.expires_at:
            for key, value in zip(keys, values, strict=True):
                self.put(key, value, ttl_ms, now)
        else:
            self.sorted_positions = None
            self.entries.update(zip(keys, values, strict=True))

    def take(self, key: bytes, of: MapStore) -> None:
        """Hold an entry that another store holds, as long as that would."""
        self.entries[key] = of.entries[key]
        if of.expires_at and (at := of.expires_at.get(key)) is not None:
            self.expires_at[key] = at
            heapq.heappush(self._due, (at, key))

    def remove(self, key: bytes) -> None:
        if self.entries.pop(key, None) is not None:
            self.sorted_positions = None
            self.expires_at.pop(key, None)

    def size(self, now: Millis) -> int:
        """How many entries there are whose time is not over."""
        over = sum(1 for at in self.expires_at.values() if at <= now) if self.expires_at else 0
        return len(self.entries) - over

    def remaining_ms(self, key: bytes, now: Millis) -> Millis:
        """How much longer the entry lives (at least 1); 0: for ever."""
        at = self.expires_at.get(key)
        return 0 if at is None else max(at - now, 1)

    def take_expired(self, now: Millis, limit: int) -> list[bytes]:
        """Keys whose time is over, at most `limit` of them; they are still stored."""
        expired: dict[bytes, None] = {}
        while self._due and self._due[0][0] <= now and len(expired) < limit:
            at, key = heapq.heappop(self._due)
            if self.expires_at.get(key) == at:
                expired[key] = None
        return list(expired)

    def positions(self) -> list[Position]:
        """All keys in scan order."""
        if self.sorted_positions is None:
            self.sorted_positions = sorted([(scan_position(key), key) for key in self.entries])
        return self.sorted_positions

    def forget_order(self, limit: int) -> None:
        """Of entries that nobody will look at again: give back some of what tells their order and their expiry."""
        for kept in (self._due, self.sorted_positions):
            if kept:
                del kept[-limit:]

    def page(self, after_key: bytes, max_bytes: int, now: Millis) -> tuple[list[bytes], list[bytes], bool]:
        """Entries behind a key in scan order, up to about `max_bytes` (at least one), and whether there are more.

        When one page holds all entries, nobody asks for what is behind it, and they come in any order.
        """
        if not after_key and not self.expires_at:
            entries = self.entries
            size = sum(map(len, entries)) + sum(map(len, entries.values())) - STAMP_BYTES * len(entries)
            if size <= max_bytes:
                return list(entries), list(map(value_of, entries.values())), False
        positions = self.positions()
        start = bisect_right(positions, (scan_position(after_key), after_key)) if after_key else 0
        keys: list[bytes] = []
        values: list[bytes] = []
        size = 0
        for index in range(start, len(positions)):
            key = positions[index][1]
            value = self.get(key, now)
            if value is None:
                continue
            size += len(key) + len(value)
            if size > max_bytes and keys:
                return keys, values, True
            keys.append(key)
            values.append(value)
        # The scan is over: the sorted keys would cost as much memory as the entries.
        self.sorted_positions = None
        return keys, values, False


class Replica:
    """One replica of one partition: its maps, and how far it has followed the writes of which owner.

    `epoch` is the partition's version when the owner's rule began, `ruler` that owner, `seq` the number of the last
    write applied. Two replicas with equal epoch, ruler and seq hold the same entries and outcomes. The epoch alone says
    less: a master may die after few have heard of its table, and the next master use the same version for another owner.
    """

    __slots__ = ("ended", "epoch", "maps", "ordered_for", "outcomes", "ruler", "seq")

    def __init__(self, epoch: int = 0, seq: int = 0, ruler: str = "") -> None:
        self.epoch = epoch
        self.seq = seq
        self.ruler = ruler
        """The owner that was followed last (this member itself where it owned the partition); empty: none yet."""
        self.ordered_for = -1
        """The partition's version for which the master ordered this copy: until the table passes it, the copy may yet
        be committed. -1: not a copy."""
        self.ended = -1
        """The epoch of a rule that was followed until a new master's table did not know it. -1: none."""
        self.maps: dict[str, MapStore] = {}
        self.outcomes = Outcomes()
        """What became of writes that may be asked for again."""

    def __repr__(self) -> str:
        return f"Replica(epoch={self.epoch}, seq={self.seq}, entries={self.entry_count()})"

    def map(self, name: str) -> MapStore:
        """The store of a map; made when it is first written."""
        store = self.maps.get(name)
        if store is None:
            store = self.maps[name] = MapStore()
        return store

    def remove(self, name: str, keys: Sequence[bytes]) -> None:
        """Drop entries; a map without entries costs nothing."""
        store = self.maps.get(name)
        if store is None:
            return
        for key in keys:
            store.remove(key)
        if not store.entries:
            del self.maps[name]

    def clear(self, name: str) -> None:
        """Drop all entries of a map."""
        self.maps.pop(name, None)

    def entry_count(self) -> int:
        return sum(len(store.entries) for store in self.maps.values())

    def byte_count(self) -> int:
        """Bytes of all serialised keys and values; stamps are none of them."""
        return sum(
            len(key) + len(stored) - STAMP_BYTES for store in self.maps.values() for key, stored in store.entries.items()
        )  # fmt: skip
