"""Copying one partition to another member, while writes go on: the sending and the receiving process.

The sender notes the keys that exist at the start, then sends chunk after chunk, with the values as they are at that
moment. A few are on the way at a time, and each goes when `CopyPacer` lets it: so a copy needs little memory and leaves
time for others, whatever the partition's size. Writes made meanwhile go to the destination on the same connection.
Whatever order writes and chunks of one key take there, it is the order in which the owner made them, so the destination
simply applies both as they come. A connection that breaks ends the copy: order is its only guard.

The destination keeps what it had before (a backup that had fallen out of step) until the copy is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import Migration
from phalanx.common.view import ViewId
from phalanx.grid.replica.deduplication import Deduplication
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replica.store import MapStore, Replica
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import CopyAck, CopyChunk, CopyStart, Forgotten, JournalPart

ENTRY_BYTES = 16
"""What an entry counts in a chunk besides its key and value."""
MAX_ON_THE_WAY = 2
"""Chunks of one copy that are not acknowledged: while the destination stores one, the next is being sent."""
CHUNK_BYTES = 1024
"""What a chunk costs besides its entries: many small copies are not free either."""


class JournalSender:
    """How far one journal is sent: the newest events first, while new ones are written at both ends."""

    __slots__ = ("_end", "journal", "name")

    def __init__(self, name: str, journal: MapJournal) -> None:
        self.name = name
        self.journal = journal
        self._end: int | None = None
        """The events below this number are still to be sent; None: all."""

    @property
    def is_complete(self) -> bool:
        return self._end is not None and self._end <= self.journal.first

    def next_part(self, max_bytes: int) -> tuple[JournalPart, int] | None:
        """The next part and about how many bytes it has; None: what was left has been dropped meanwhile."""
        if self.is_complete:
            return None
        is_first = self._end is None
        end = self.journal.next if self._end is None else self._end
        part, size = self.journal.part(self.name, end, max_bytes, is_first=is_first)
        self._end = end - len(part.keys)
        return part, size


class Destination(NamedTuple):
    """Whom a migration that the master has ordered makes a replica, or moves to a hotter index."""

    base_version: int
    migration: Migration[MemberId]
    member: MemberId
    ordered_by: MemberId


class CopySender:
    """The owner's end of one copy. Ended by the last acknowledgement, or by the connection."""

    __slots__ = (
        "_chunk_bytes", "_copy_id", "_journals", "_keys", "_member", "_on_the_way", "_partition", "_removed", "_replica", "_sent",
        "_sent_last", "is_complete",
    )  # fmt: skip

    def __init__(self, partition: int, member: MemberId, copy_id: int, replica: Replica, chunk_bytes: int) -> None:
        self._partition = partition
        self._member = member
        self._copy_id = copy_id
        self._replica = replica
        self._chunk_bytes = chunk_bytes
        # Taken from their ends. In no order: to sort half a million keys would stop the member for long.
        names = sorted(replica.maps, key=lambda name: (not is_hidden(name), name), reverse=True)
        self._keys = [(name, list(replica.maps[name].entries)) for name in names]
        """Maps and their keys that are still to be sent; hidden ones first, at the end."""
        self._removed = [
            (name, list(replica.maps[name].tombstones))
            for name in sorted(replica.maps, reverse=True)
            if replica.maps[name].tombstones
        ]
        """The same of their tombstones, behind the entries."""
        self._journals: list[JournalSender] | None = None
        """Journals that are still to be sent, behind all of that; None: they are not listed yet. The destination writes
        events of its own from a journal's first part on: then what it holds is what this member holds."""
        self._sent = 0
        self._sent_last = False
        self._on_the_way: deque[Millis] = deque()
        """When the chunks were sent that are not acknowledged."""
        self.is_complete = False

    def __repr__(self) -> str:
        return f"CopySender({self._partition} to {self._member}, chunks sent: {self._sent})"

    @property
    def is_owed(self) -> bool:
        """Whether the destination has something to acknowledge."""
        return bool(self._on_the_way)

    @property
    def is_heard(self) -> bool:
        """Whether the destination has acknowledged anything."""
        return self._sent > len(self._on_the_way)

    @property
    def has_more(self) -> bool:
        """Whether another chunk may be on the way."""
        return not self._sent_last and len(self._on_the_way) < MAX_ON_THE_WAY

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether any entry of these maps is still to be sent, or what tells of a removal."""
        unsent = {name for name, left in (*self._keys, *self._removed) if left}
        return any(name in unsent for name in names)

    def send_also(self, name: str) -> None:
        """A map has been made of what is here: the destination cannot have made it of what it has by now."""
        self._keys.insert(0, (name, list(self._replica.maps[name].entries)))

    def start(self, ordered: Destination | None, of: int, view: ViewId, outbox: Outbox) -> None:
        replica = self._replica
        outcomes = replica.deduplication.export()
        base_version, migration, _, ordered_by = ordered if ordered is not None else (0, None, None, None)
        start = CopyStart(
            self._partition, base_version, self._copy_id, replica.epoch, replica.seq, of, migration, outcomes, view,
            ordered_by,
            replica.staged.export(),
        )  # fmt: skip
        outbox.send(self._member, start)

    def on_ack(self, message: CopyAck) -> Millis | None:
        """Return when the chunk was sent; None: it is not the chunk whose acknowledgement is next."""
        expected = self._sent - len(self._on_the_way)
        if message.copy_id != self._copy_id or message.index != expected or not self._on_the_way:
            return None
        sent_at = self._on_the_way.popleft()
        self.is_complete = self._sent_last and not self._on_the_way
        return sent_at

    def send_next(self, now: Millis, outbox: Outbox) -> int:
        """Send one chunk; about how many bytes it has."""
        keys: list[bytes] = []
        values: list[bytes] = []
        name, store, size = "", None, CHUNK_BYTES
        while self._keys and not keys:
            name, left = self._keys[-1]
            store = self._replica.maps.get(name)
            if store is not None:
                size = self._gather(store, left, keys, values)
            if store is None or not left:
                self._keys.pop()
        removed: list[bytes] = []
        removed_at: list[int] = []
        while self._removed and not keys and not removed:
            name, left = self._removed[-1]
            store = self._replica.maps.get(name)
            if store is not None:
                size = self._gather_removed(store, left, (removed, removed_at), (keys, values))
            if store is None or not left:
                self._removed.pop()
        journal = None
        if not self._keys and not self._removed:
            if self._journals is None:
                held = self._replica.journals
                self._journals = [JournalSender(name, held[name]) for name in sorted(held, reverse=True)]
            if not keys and not removed:
                journal, size = self._next_journal_part()
        self._sent_last = not self._keys and not self._removed and not self._journals
        forgotten = _forgotten(self._replica) if self._sent_last else ()
        ttls = _ttls(store, keys, now) if store is not None and store.expires_at else []
        chunk = CopyChunk(
            self._partition, self._copy_id, self._sent, name, keys, values, ttls, self._sent_last, tuple(removed),
            tuple(removed_at), *self._replica.readings.columns(name, keys), forgotten, journal,
        )  # fmt: skip
        self._sent += 1
        self._on_the_way.append(now)
        outbox.send(self._member, chunk)
        return size

    def _next_journal_part(self) -> tuple[JournalPart | None, int]:
        """Events for one chunk, and about how many bytes it has."""
        while self._journals:
            sender = self._journals[-1]
            # One that has ended since, or began anew, the destination has ended or begun by itself.
            is_there = self._replica.journals.get(sender.name) is sender.journal
            part = sender.next_part(self._chunk_bytes) if is_there else None
            if part is None or sender.is_complete:
                self._journals.pop()
            if part is not None:
                return part[0], CHUNK_BYTES + part[1]
        return None, CHUNK_BYTES

    def _gather(self, store: MapStore, left: list[bytes], keys: list[bytes], values: list[bytes]) -> int:
        """Take keys until a chunk is full; about how many bytes it has."""
        entries, size, limit = store.entries, CHUNK_BYTES, CHUNK_BYTES + self._chunk_bytes
        while left and size < limit:
            key = left[-1]
            value = entries.get(key)
            if value is not None:
                size += len(key) + len(value) + ENTRY_BYTES
                if size > limit and keys:
                    break
                keys.append(key)
                values.append(value)
            left.pop()
        return size

    def _gather_removed(
        self,
        store: MapStore,
        left: list[bytes],
        removed: tuple[list[bytes], list[int]],
        entries: tuple[list[bytes], list[bytes]],
    ) -> int:
        """Gather tombstones, like `_gather`. What was put since then has gone along with the writes.

        What was put for a time goes once more: the destination did not know that it stands over a tombstone.
        """
        size = CHUNK_BYTES
        while left and size < CHUNK_BYTES + self._chunk_bytes:
            key = left.pop()
            stamp = store.tombstones.get(key)
            if stamp is not None:
                size += len(key) + ENTRY_BYTES
                removed[0].append(key)
                removed[1].append(stamp)
            elif key in store.covering:
                size += len(key) + len(store.entries[key]) + ENTRY_BYTES
                entries[0].append(key)
                entries[1].append(store.entries[key])
        return size


def _ttls(store: MapStore, keys: list[bytes], now: Millis) -> list[Millis]:
    """Return how much longer each entry lives, in the form of a chunk."""
    covering = store.covering
    ttls = [store.remaining_ms(key, now) * (-1 if key in covering else 1) for key in keys]
    return ttls if any(ttls) else []


def _forgotten(replica: Replica) -> tuple[Forgotten, ...]:
    told = [
        Forgotten(name, store.cleared_at, store.purged_to, store.evicted_to)
        for name, store in replica.maps.items()
        if store.cleared_at or store.purged_to or store.evicted_to
    ]
    return (*told, Forgotten("", 0, replica.purged_to)) if replica.purged_to else tuple(told)


class IncomingCopy:
    """The destination's end of one copy: a replica that grows beside what was there."""

    __slots__ = ("_copy_id", "_expected", "base_version", "of", "ordered_by", "replica", "source")

    def __init__(self, source: MemberId, start: CopyStart) -> None:
        self.source = source
        self.of = start.of
        self.base_version = start.base_version
        """The partition's version for which the migration was ordered; 0: for a backup that the table lists already."""
        self.ordered_by = start.ordered_by
        self.replica = Replica(start.epoch, start.seq, source)
        self.replica.deduplication = Deduplication(start.outcomes)
        self.replica.staged = Staged(start.staged)
        self._copy_id = start.copy_id
        self._expected = 0

    def __repr__(self) -> str:
        return f"IncomingCopy(from {self.source}, chunks: {self._expected}, {self.replica})"

    def accepts(self, sender: MemberId, chunk: CopyChunk) -> bool:
        return sender == self.source and chunk.copy_id == self._copy_id and chunk.index == self._expected

    def apply(self, chunk: CopyChunk, now: Millis) -> None:
        self._expected += 1
        if chunk.keys:
            self._take_entries(chunk, now)
        if chunk.removed:
            self.replica.map(chunk.map).tombstones.update(zip(chunk.removed, chunk.removed_at, strict=True))
        if chunk.journal is not None:
            self._take_journal(chunk.journal)
        # Behind the rest: what one map has purged must not pass to another one that is made for its first entry.
        for each in chunk.forgotten:
            if each.map:
                store = self.replica.map(each.map)
                store.cleared_at, store.purged_to, store.evicted_to = each.cleared_at, each.purged_to, each.evicted_to
            else:
                self.replica.purged_to = each.purged_to

    def _take_journal(self, part: JournalPart) -> None:
        replica = self.replica
        if part.lineages:
            # One that began here by a write, beside entries that had yet to come, is not the owner's.
            replica.keep_journal(part.map, MapJournal.of_part(part, replica.epoch, replica.ruler))
        if (journal := replica.journals.get(part.map)) is not None and journal.origin == part.origin:
            journal.fill(part)

    def _take_entries(self, chunk: CopyChunk, now: Millis) -> None:
        store = self.replica.map(chunk.map)
        if chunk.ttls:
            for key, value, ttl_ms in zip(chunk.keys, chunk.values, chunk.ttls, strict=True):
                store.put(key, value, abs(ttl_ms), now)
                if ttl_ms < 0:
                    store.covering.add(key)
        else:
            store.put_many(chunk.keys, chunk.values, 0, now)
        if chunk.hits:
            self.replica.readings.take(chunk.map, chunk.keys, chunk.hits, chunk.accessed)
