"""Copy one partition to another member while writes go on: the sender and the receiver.

The sender lists the keys at the start, then sends chunk after chunk, with the values of that moment. A few chunks are
on the way at a time, and `CopyPacer` says when each is sent: so a copy needs little memory and leaves time for other
work, whatever the partition's size. Writes made meanwhile go to the destination on the same connection. So writes and
chunks arrive in the order in which the owner made them, and the destination applies both as they come. A broken
connection ends the copy, because its correctness depends on that order alone.

The destination keeps its old replica (of a backup that was out of sync) until the copy is complete.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import accumulate
from operator import add
from typing import NamedTuple

from phalanx.codec.rows import pack_rows, unpack_rows
from phalanx.common.hidden_maps import is_hidden
from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import Migration
from phalanx.common.view import ViewId
from phalanx.grid.replica.deduplication import Deduplication
from phalanx.grid.replica.journal import MapJournal
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replica.native import NATIVE
from phalanx.grid.replica.replica import Cleared, Replica
from phalanx.grid.replica.staged import Staged
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import CopyAck, CopyChunk, CopyStart, Forgotten, JournalPart

ENTRY_BYTES = 16
"""The size of an entry in a chunk without its key and value, as it is counted."""
MAX_ON_THE_WAY = 2
"""The most unacknowledged chunks of one copy: while the destination stores one, the next is on its way."""
SAMPLED = 16
"""The sizes of so many entries tell how many more are looked at for a chunk."""
CHUNK_BYTES = 1024
"""The size of a chunk without its entries, as it is counted: many small copies are not free either."""


def next_rows(
    entries: dict[bytes, bytes], left: list[bytes], most: int, max_bytes: int
) -> tuple[bytes, list[bytes], int, int]:
    """Return the entries of the last keys of `left`, packed, the last one first, as many as have `max_bytes`, but at
    least one; their keys; how many keys of `left` that takes, with those that are gone; and the bytes, as they are
    counted. At most `most` keys are looked at.

    In Python without a step of the interpreter for each entry: it is the most costly part of a copy.
    """
    if NATIVE is not None:
        return NATIVE.next_rows(entries, left, most, max_bytes, ENTRY_BYTES)
    listed = left[: -(most + 1) : -1]
    found = list(map(entries.get, listed))
    there, gathered = listed, found
    if None in found:  # some were removed since the keys were listed
        there = [key for key, value in zip(listed, found, strict=True) if value is not None]
        gathered = [value for value in found if value is not None]
    sizes = map(add, map(len, there), map(len, gathered))  # type: ignore[arg-type]  # none of them is None
    ends = list(accumulate(map(ENTRY_BYTES.__add__, sizes)))
    fitting = max(bisect_right(ends, max_bytes), 1)
    consumed = len(listed)
    if fitting < len(there):
        consumed = fitting if there is listed else listed.index(there[fitting])
    values: list[bytes] = gathered[:fitting]  # type: ignore[assignment]  # none of them is None
    return pack_rows(there[:fitting], values), there[:fitting], consumed, ends[fitting - 1] if ends else 0


class JournalSender:
    """Sends one journal, the newest events first, while both ends write new events."""

    __slots__ = ("_end", "journal", "name")

    def __init__(self, name: str, journal: MapJournal) -> None:
        self.name = name
        self.journal = journal
        self._end: int | None = None
        """Events with lower numbers are still to be sent; None: all are."""

    @property
    def is_complete(self) -> bool:
        return self._end is not None and self._end <= self.journal.first

    def next_part(self, max_bytes: int) -> tuple[JournalPart, int] | None:
        """Return the next part and about how many bytes it has; None: the journal has dropped the rest meanwhile."""
        if self.is_complete:
            return None
        is_first = self._end is None
        end = self.journal.next if self._end is None else self._end
        part, size = self.journal.part(self.name, end, max_bytes, is_first=is_first)
        self._end = end - len(part.keys)
        return part, size


class Destination(NamedTuple):
    """The member that becomes a replica, or moves to a hotter index, by a migration that the master has ordered."""

    base_version: int
    migration: Migration[MemberId]
    member: MemberId
    ordered_by: MemberId
    has_folder: bool = False
    """Whether the member can have read from its folder what is to be copied: it is asked first."""


class CopySender:
    """The owner's end of one copy. The last acknowledgement ends it, or the loss of the connection."""

    __slots__ = (
        "_chunk_bytes", "_is_heard", "_journals", "_keys", "_member", "_on_the_way", "_partition", "_removed", "_replica", "_sent",
        "_sent_last", "copy_id", "is_asked", "is_complete", "sent_bytes", "sent_entries",
    )  # fmt: skip

    def __init__(self, partition: int, member: MemberId, replica: Replica, flow: CopyFlow) -> None:
        self._partition = partition
        self._member = member
        self.copy_id = flow.next_id()
        self._replica = replica
        self._chunk_bytes = flow.chunk_bytes
        # Consumed from the end. Keys are not sorted: sorting half a million would stop the member for long.
        names = sorted(replica.maps, key=lambda name: (not is_hidden(name), name), reverse=True)
        self._keys = [(name, list(replica.maps[name].entries)) for name in names]
        """Maps with the keys still to be sent. Hidden maps are at the end, so they are sent first."""
        self._removed = [
            (name, list(replica.maps[name].tombstones))
            for name in sorted(replica.maps, reverse=True)
            if replica.maps[name].tombstones
        ]
        """Maps with the keys of tombstones still to be sent, after all entries."""
        self._journals: list[JournalSender] | None = None
        """Journals still to be sent, after entries and tombstones; None: they are not listed yet. From the first part
        of a journal on the destination writes events itself, because by then it holds what this member holds."""
        self._sent = 0
        self._sent_last = False
        self._on_the_way: deque[Millis] = deque()
        """The times at which the unacknowledged chunks were sent."""
        self.is_asked = False
        """Whether the destination has yet to say what it has."""
        self._is_heard = False
        self.is_complete = False
        self.sent_entries = 0
        self.sent_bytes = 0
        """The size of the keys and values of the entries that were sent."""

    def __repr__(self) -> str:
        return f"CopySender({self._partition} to {self._member}, chunks sent: {self._sent})"

    @property
    def is_owed(self) -> bool:
        """Whether a chunk is not acknowledged yet, or the question not answered."""
        return self.is_asked or bool(self._on_the_way)

    @property
    def is_heard(self) -> bool:
        """Whether the destination has answered the question, or acknowledged any chunk."""
        return self._is_heard or self._sent > len(self._on_the_way)

    @property
    def sent_chunks(self) -> int:
        """How many chunks were sent."""
        return self._sent

    @property
    def has_more(self) -> bool:
        """Whether another chunk can be sent now."""
        return not self._sent_last and not self.is_asked and len(self._on_the_way) < MAX_ON_THE_WAY

    def lacks(self, names: Iterable[str]) -> bool:
        """Return whether an entry or a tombstone of these maps is still to be sent."""
        unsent = {name for name, left in (*self._keys, *self._removed) if left}
        return any(name in unsent for name in names)

    def send_also(self, name: str) -> None:
        """Send also a map that a step has made here: the destination lacked a part of its source."""
        self._keys.insert(0, (name, list(self._replica.maps[name].entries)))

    def start(
        self, ordered: Destination | None, partition_count: int, view: ViewId, outbox: Outbox, log_begins: int = -1
    ) -> None:
        """Begin the copy. `log_begins`: who has the writes up to this one needs none, because the owner has all later ones at hand."""
        replica = self._replica
        outcomes = replica.deduplication.export()
        base_version, migration, _, ordered_by, self.is_asked = ordered or (0, None, None, None, False)
        start = CopyStart(
            self._partition, base_version, self.copy_id, replica.epoch, replica.seq, partition_count, migration, outcomes, view,
            ordered_by,
            replica.staged.export(), replica.lineage, self.is_asked, log_begins if self.is_asked else -1,
        )  # fmt: skip
        outbox.send(self._member, start)

    def takes_answer(self, message: CopyAck) -> bool:
        """Take note that the destination has answered what it has. Return whether that was asked."""
        if message.copy_id != self.copy_id or not self.is_asked:
            return False
        self.is_asked, self._is_heard = False, True
        return True

    def on_ack(self, message: CopyAck) -> Millis | None:
        """Return when the acknowledged chunk was sent; None: it is not the chunk whose acknowledgement is due next."""
        expected = self._sent - len(self._on_the_way)
        if message.copy_id != self.copy_id or message.index != expected or not self._on_the_way:
            return None
        sent_at = self._on_the_way.popleft()
        self.is_complete = self._sent_last and not self._on_the_way
        return sent_at

    def send_next(self, now: Millis, outbox: Outbox, max_bytes: int = 0) -> int:
        """Send one chunk. Return about how many bytes it has.

        `max_bytes`: about the most that it may have; 0: as many as this sender was made for.
        """
        max_bytes = max_bytes or self._chunk_bytes
        rows, keys = b"", list[bytes]()
        name, store, size = "", None, CHUNK_BYTES
        while self._keys and not keys:
            name, left = self._keys[-1]
            store = self._replica.maps.get(name)
            if store is not None:
                rows, keys, size = self._gather(store, left, max_bytes)
            if store is None or not left:
                self._keys.pop()
        removed: list[bytes] = []
        removed_at: list[int] = []
        while self._removed and not keys and not removed:
            name, left = self._removed[-1]
            store = self._replica.maps.get(name)
            if store is not None:
                rows, keys, size = self._gather_removed(store, left, (removed, removed_at), max_bytes)
            if store is None or not left:
                self._removed.pop()
        journal = None
        if not self._keys and not self._removed:
            if self._journals is None:
                held = self._replica.journals
                self._journals = [JournalSender(name, held[name]) for name in sorted(held, reverse=True)]
            if not keys and not removed:
                journal, size = self._next_journal_part(max_bytes)
        self._sent_last = not self._keys and not self._removed and not self._journals
        forgotten = _forgotten(self._replica) if self._sent_last else ()
        ttls = _ttls(store, keys, now) if store is not None and store.expires_at else []
        idles = _idles(store, keys) if store is not None and store.idle else ()
        chunk = CopyChunk(
            self._partition, self.copy_id, self._sent, name, rows, ttls, self._sent_last, tuple(removed),
            tuple(removed_at), *_accesses(store, keys), forgotten, journal, idles,
        )  # fmt: skip
        self._sent += 1
        self._on_the_way.append(now)
        outbox.send(self._member, chunk)
        return size

    def _next_journal_part(self, max_bytes: int) -> tuple[JournalPart | None, int]:
        """Return events for one chunk (None: there are no more), and about how many bytes the chunk has."""
        while self._journals:
            sender = self._journals[-1]
            # If a journal has ended or begun anew since, the destination has done the same by itself.
            is_there = self._replica.journals.get(sender.name) is sender.journal
            part = sender.next_part(max_bytes) if is_there else None
            if part is None or sender.is_complete:
                self._journals.pop()
            if part is not None:
                return part[0], CHUNK_BYTES + part[1]
        return None, CHUNK_BYTES

    def _gather(self, store: MapStore, left: list[bytes], limit: int) -> tuple[bytes, list[bytes], int]:
        """Pack entries of the keys in `left`, and remove these there, until a chunk is full. Return the rows, their keys,
        and about how many bytes the chunk has."""
        if not left:
            return b"", [], CHUNK_BYTES
        entries = store.entries
        sample = [len(key) + len(entries.get(key, b"")) + ENTRY_BYTES for key in left[-SAMPLED:]]
        rows, keys, consumed, size = next_rows(entries, left, limit * len(sample) // sum(sample) + 2, limit)
        del left[-consumed:]
        self.sent_entries += len(keys)
        self.sent_bytes += size - len(keys) * ENTRY_BYTES
        return rows if keys else b"", keys, CHUNK_BYTES + size

    def _gather_removed(
        self,
        store: MapStore,
        left: list[bytes],
        removed: tuple[list[bytes], list[int]],
        max_bytes: int,
    ) -> tuple[bytes, list[bytes], int]:
        """Gather tombstones, like `_gather`, which also tells what is returned. A key that was put since has reached the destination as a write.

        If it was put with a time to live, it is sent once more: the destination did not know that the value replaced a
        tombstone.
        """
        size = CHUNK_BYTES
        keys: list[bytes] = []
        while left and size < CHUNK_BYTES + max_bytes:
            key = left.pop()
            stamp = store.tombstones.get(key)
            if stamp is not None:
                size += len(key) + ENTRY_BYTES
                removed[0].append(key)
                removed[1].append(stamp)
            elif key in store.covering:
                size += len(key) + len(store.entries[key]) + ENTRY_BYTES
                keys.append(key)
        rows = pack_rows(keys, [store.entries[key] for key in keys]) if keys else b""
        return rows, keys, size


def _accesses(store: MapStore | None, keys: list[bytes]) -> tuple[tuple[int, ...], tuple[Millis, ...]]:
    """Return how often each entry was read, and when last; nothing if none of them was."""
    return store.accesses.columns(keys) if store is not None and store.accesses is not None else ((), ())


def _ttls(store: MapStore, keys: list[bytes], now: Millis) -> list[Millis]:
    """Return the remaining time of each entry, negative where its expiry leaves a tombstone; empty: no entry expires."""
    covering = store.covering
    ttls = [store.ttl_ms(key, now) * (-1 if key in covering else 1) for key in keys]
    return ttls if any(ttls) else []


def _idles(store: MapStore, keys: list[bytes]) -> tuple[Millis, ...]:
    """Return how long each entry can be idle, negative as in `_ttls`; empty: none expires for that."""
    covering = store.covering
    idles = tuple([store.max_idle_ms(key) * (-1 if key in covering else 1) for key in keys])
    return idles if any(idles) else ()


def _forgotten(replica: Replica) -> tuple[Forgotten, ...]:
    forgotten = [
        Forgotten(name, store.cleared_at, store.purged_to, store.evicted_to)
        for name, store in replica.maps.items()
        if store.cleared_at or store.purged_to or store.evicted_to
    ]
    forgotten += [Forgotten(name, *cleared) for name, cleared in replica.cleared.items()]
    return (*forgotten, Forgotten("", 0, replica.purged_to)) if replica.purged_to else tuple(forgotten)


class IncomingCopy:
    """The destination's end of one copy: a replica that grows beside the old one."""

    __slots__ = ("_copy_id", "_expected", "base_version", "ordered_by", "partition_count", "replica", "source")

    def __init__(self, source: MemberId, start: CopyStart) -> None:
        self.source = source
        self.partition_count = start.of
        self.base_version = start.base_version
        """The partition's version for which the migration was ordered; 0: this member is a backup in the table already."""
        self.ordered_by = start.ordered_by
        self.replica = Replica(start.epoch, start.seq, source)
        self.replica.deduplication = Deduplication(start.outcomes)
        self.replica.staged = Staged(start.staged)
        self.replica.lineage = start.lineage
        self._copy_id = start.copy_id
        self._expected = 0

    def __repr__(self) -> str:
        return f"IncomingCopy(from {self.source}, chunks: {self._expected}, {self.replica})"

    def accepts(self, sender: MemberId, chunk: CopyChunk) -> bool:
        return sender == self.source and chunk.copy_id == self._copy_id and chunk.index == self._expected

    def apply(self, chunk: CopyChunk, now: Millis) -> None:
        self._expected += 1
        if chunk.rows:
            self._take_entries(chunk, now)
        if chunk.removed:
            store = self.replica.map(chunk.map)
            store.tombstones.update(zip(chunk.removed, chunk.removed_at, strict=True))
            store.look_again()
        if chunk.journal is not None:
            self._take_journal(chunk.journal)
        # Last, because a store that is made later would inherit `purged_to` of the replica.
        for each in chunk.forgotten:
            if each.map and each.map not in self.replica.maps and not each.evicted_to:
                self.replica.cleared[each.map] = Cleared(each.cleared_at, each.purged_to)
            elif each.map:
                store = self.replica.map(each.map)
                store.cleared_at, store.purged_to, store.evicted_to = each.cleared_at, each.purged_to, each.evicted_to
            else:
                self.replica.purged_to = each.purged_to

    def _take_journal(self, part: JournalPart) -> None:
        replica = self.replica
        if part.lineages:
            # A journal that a write began here, while entries were still to come, differs from the owner's: replace it.
            replica.keep_journal(part.map, MapJournal.of_part(part, replica.epoch, replica.leader))
        if (journal := replica.journals.get(part.map)) is not None and journal.origin == part.origin:
            journal.fill(part)

    def _take_entries(self, chunk: CopyChunk, now: Millis) -> None:
        store = self.replica.map(chunk.map)
        if not chunk.ttls and not chunk.idles and not chunk.hits:
            store.put_rows(chunk.rows, now)
            return
        keys, values = unpack_rows(chunk.rows)
        if chunk.ttls or chunk.idles:
            nothing = [0] * len(keys)
            ends = zip(chunk.ttls or nothing, chunk.idles or nothing, strict=True)
            for key, value, (ttl_ms, idle_ms) in zip(keys, values, ends, strict=True):
                store.put(key, value, abs(ttl_ms), now, max_idle_ms=abs(idle_ms))
                if ttl_ms < 0 or idle_ms < 0:
                    store.covering.add(key)
        else:
            store.put_many(keys, values, 0, now)
        if chunk.hits:
            store.take_accesses(keys, chunk.hits, chunk.accessed)
