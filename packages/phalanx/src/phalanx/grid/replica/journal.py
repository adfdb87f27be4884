"""The journal of one map in one partition: the latest events of its entries, numbered.

The owner and each backup write an event where an entry changes (`map_store`), from the old entry and the write. So events
need no messages of their own, and are the same on all replicas. A copy sends the journal after the entries (`copying`).

Two sides of a cut can both go on, and both continue the numbers from the cut. Then event 7 here and event 7 there
differ, and only one of them is in the cluster that goes on. So a position is a number with a lineage: the name of the
epoch in which the event was written (an epoch is the time of one owner, from one table to another). The journal knows
where each lineage began. A reader's position is (lineage, number), after the last event that it has read. The position
is valid in this journal if the journal has that lineage, and the lineage did not end before that number:

    lineages    a: 0 to 99    b: 100 to 119
    (a, 95)     valid, and so is (a, 100): only events of b follow
    (a, 110)    not valid: the events from 100 on that the reader has read are of another side, or were lost with their
    owner
    (c, 90)     not valid: c is unknown, perhaps because this journal began later than the reader's

The events before a lineage are the same in all journals that know the lineage, because an epoch begins with one state of
the partition.

The journal keeps the latest events, up to a number of events and of bytes, but at least one event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from itertools import islice

from phalanx.common.clock import STAMP_BYTES, stamp_of
from phalanx.common.invariant import invariant
from phalanx.wire.replication_messages import JournalPart

ADDED, UPDATED, REMOVED, EXPIRED, EVICTED, MERGED = range(1, 7)
"""Kinds of events, as they travel."""
EVENT_BYTES = 128
"""The size of an event without its key and values, as it is counted."""
OLD_VALUE_WITHIN_BYTES = 16 * 1024 * 1024
"""An event whose key, value and old value have more bytes drops the old value: an event must fit a frame."""
ENDED_LINEAGES = 64
"""Lineages that are kept without any event left, so that a reader that is far behind is told how far."""
SAMPLE_KEYS = 1_000
"""The size of the sample that tells where the greatest of many keys begin."""

Event = tuple[int, bytes, bytes | None, bytes | None, int]
"""Kind, key, stamped value (None: removed), stamped old value (None: there was none), stamp."""


def lineage_of(epoch: int, leader: str, origin: int) -> int:
    """Return the lineage of an epoch: a hash of 52 bits, which every JSON reader keeps exactly."""
    named = blake2b(f"{epoch}/{leader}/{origin}".encode(), digest_size=8).digest()
    return (int.from_bytes(named, "big") >> 12) or 1


class MapJournal:
    """The events that are kept, the number of the oldest (`first`) and of the next one to come (`next`)."""

    __slots__ = ("_bytes", "_rule", "capacity", "events", "first", "lineages", "max_bytes", "next", "origin")

    def __init__(self, capacity: int, max_bytes: int, origin: int, epoch: int, leader: str) -> None:
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.origin = origin
        """The sequence number of the write that began this journal: it tells two journals of one map and one epoch apart."""
        self.events: deque[Event] = deque()
        self.first = 0
        self.next = 0
        self.lineages = [(lineage_of(epoch, leader, origin), 0)]
        """Lineages with the numbers of their first events, oldest first: those of the events here, and some before them."""
        self._bytes = 0
        self._rule: tuple[int, str] | None = None
        """Epoch and owner that have begun since the last event; None: none has."""

    def __repr__(self) -> str:
        return f"MapJournal({self.first} to {self.next}, capacity={self.capacity}, lineages={self.lineages})"

    @property
    def size(self) -> int:
        """Return the size of the events that are kept, as `max_bytes` counts it."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Return whether a further event drops an old one."""
        return len(self.events) >= self.capacity or self._bytes >= self.max_bytes

    def begin_epoch(self, epoch: int, leader: str) -> None:
        """Record that the next events are written in this epoch."""
        self._rule = epoch, leader

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, key: bytes, stored: bytes, old: bytes | None, *, merged: bool) -> None:
        """Write the event of a value that replaces the old one."""
        self._write(put_event(key, stored, old, MERGED if merged else ADDED if old is None else UPDATED))

    def gone(self, key: bytes, old: bytes, stamp: int, kind: int) -> None:
        """Write the event of an entry that was removed, has expired or was evicted (`kind`)."""
        self._write((kind, key, None, old, stamp))

    def cleared(self, entries: dict[bytes, bytes], stamp: int) -> None:
        """Write the events of a clear, in the order of the keys, which is the same on all replicas."""
        self.changed(entries, lambda key: (REMOVED, key, None, entries[key], stamp))

    def replaced(self, old: dict[bytes, bytes], new: dict[bytes, bytes], stamp: int) -> None:
        """Write the events of a replacement of all entries, in the order of keys."""

        def event_of(key: bytes) -> Event:
            was = old.get(key)
            if (stored := new.get(key)) is not None:
                return put_event(key, stored, was, ADDED if was is None else UPDATED)
            return REMOVED, key, None, was, stamp

        self.changed(old.keys() | new.keys(), event_of)

    def changed(self, keys: Collection[bytes], event_of: Callable[[bytes], Event]) -> None:
        """Write the events of entries that changed at once, in the order of their keys.

        Events that this same call would drop again get numbers, but are not made: nobody could read them, and a journal
        of a hundred events must not cost a member a second for half a million keys.
        """
        kept, size = self._last_events(keys, event_of)
        passed = len(keys) - len(kept)
        if kept and self._rule is not None:
            self._begin_lineage(*self._rule)
        if passed:
            self.events.clear()
            self._bytes = 0
            self.next += passed
            self.first = self.next
            self._forget_lineages()
        self.events.extend(kept)
        self._bytes += size
        self.next += len(kept)
        self._drop_old()

    def _last_events(self, keys: Collection[bytes], event_of: Callable[[bytes], Event]) -> tuple[list[Event], int]:
        """Return the last events that fit into the journal, at least one if there are keys, and their bytes."""
        most = min(len(keys), self.capacity)
        # Only made events tell how many fit. The size of one of them gives a first estimate.
        tried = most and self.max_bytes // _size(event_of(next(iter(keys)))) + SAMPLE_KEYS
        while True:
            last = greatest(keys, min(tried, most))
            events: list[Event] = []
            size = 0
            for key in reversed(last):
                event = event_of(key)
                more = _size(event)
                if events and size + more > self.max_bytes:
                    break
                events.append(event)
                size += more
            if len(events) < len(last) or len(last) == most:
                events.reverse()
                return events, size
            tried *= 4

    def _write(self, event: Event) -> None:
        if self._rule is not None:
            self._begin_lineage(*self._rule)
        self.events.append(event)
        self._bytes += _size(event)
        self.next += 1
        self._drop_old()

    def _begin_lineage(self, epoch: int, leader: str) -> None:
        """Begin a lineage with the next event."""
        lineage = lineage_of(epoch, leader, self.origin)
        if lineage != self.lineages[-1][0]:
            self.lineages.append((lineage, self.next))
        self._rule = None

    def limit(self, capacity: int, max_bytes: int) -> None:
        """Change how much the journal keeps."""
        self.capacity, self.max_bytes = capacity, max_bytes
        self._drop_old()

    def _drop_old(self) -> None:
        events = self.events
        while len(events) > self.capacity or (self._bytes > self.max_bytes and len(events) > 1):
            self._bytes -= _size(events.popleft())
            self.first += 1
            if len(self.lineages) > ENDED_LINEAGES:
                self._forget_lineages()

    def _forget_lineages(self) -> None:
        """Forget lineages of which no event is left, except the last one."""
        lineages = self.lineages
        while len(lineages) > ENDED_LINEAGES and lineages[1][1] < self.first:
            del lineages[0]

    # --- reading ---------------------------------------------------------------------------------------------------

    def end_of(self, lineage: int) -> int | None:
        """Return the number at which a lineage ends here; None: the lineage is unknown."""
        for index, (name, _) in enumerate(self.lineages):
            if name == lineage:
                return self.lineages[index + 1][1] if index + 1 < len(self.lineages) else self.next
        return None

    def lineage_at(self, sequence: int) -> int:
        """Return the lineage of a position: that of the event before it."""
        found = self.lineages[0][0]
        for lineage, first in self.lineages:
            if first < sequence:
                found = lineage
        return found

    def read(self, start: int, stop: int) -> list[Event]:
        """Return the events from `start` to `stop` (exclusive) that are still kept."""
        low, high = max(start, self.first) - self.first, min(stop, self.next) - self.first
        if low >= high:
            return []
        if low <= len(self.events) // 2:
            return list(islice(self.events, low, high))
        size = len(self.events)
        found = list(islice(reversed(self.events), size - high, size - low))
        found.reverse()
        return found

    # --- copying ---------------------------------------------------------------------------------------------------

    def part(self, name: str, end: int, max_bytes: int, *, is_first: bool) -> tuple[JournalPart, int]:
        """Return the newest events before `end` as the part for one chunk of a copy, and about how many bytes they have."""
        events: list[Event] = []
        size = 0
        for event in reversed(self.read(max(self.first, end - max_bytes // EVENT_BYTES - 1), end)):
            size += _size(event)
            if events and size > max_bytes:
                break
            events.append(event)
        events.reverse()
        kinds, keys, values, olds, stamps = columns(events)
        lineages = tuple(self.lineages) if is_first else ()
        limits = (self.capacity, self.max_bytes, self.origin)
        return JournalPart(name, *limits, lineages, end, kinds, keys, values, olds, stamps), size

    @classmethod
    def of_part(cls, part: JournalPart, epoch: int, leader: str) -> MapJournal:
        """Make the destination's journal from the first part of a copy. From now on it writes new events by itself."""
        journal = cls(part.capacity, part.max_bytes, part.origin, epoch, leader)
        journal.lineages = list(part.lineages)
        journal.first = journal.next = part.end
        journal.begin_epoch(epoch, leader)
        return journal

    def fill(self, part: JournalPart) -> None:
        """Insert older events from a copy, before those that are here.

        There is no gap between them: if this journal had dropped events since, the owner would have dropped these older
        ones, too, and not sent them.
        """
        invariant(part.end == self.first, "a journal has no gaps", journal=self, end=part.end)
        events = list(zip(part.kinds, part.keys, part.values, part.olds, part.stamps, strict=True))
        self.events.extendleft(reversed(events))
        self.first -= len(events)
        self._bytes += sum(map(_size, events))
        self._drop_old()


def put_event(key: bytes, stored: bytes, old: bytes | None, kind: int) -> Event:
    """Return the event of a value that replaces the old one; an event that would not fit a frame has no old value."""
    if old is not None and len(key) + len(stored) + len(old) > OLD_VALUE_WITHIN_BYTES:
        old = None
    return kind, key, stored, old, stamp_of(stored)


def greatest(keys: Collection[bytes], count: int) -> list[bytes]:
    """Return the `count` greatest of the keys, which are all different, in ascending order.

    Sorting half a million keys takes half a second. If few are wanted, a sample gives a lower bound, and only the keys
    above it are sorted.
    """
    size = len(keys)
    if count >= size // 4 or size < 4 * SAMPLE_KEYS:
        return sorted(keys)[size - count :]
    sample = sorted(islice(keys, 0, None, size // SAMPLE_KEYS))
    # The bound allows for one and a half times as many and some more, because a sample is not exact. If it fails, all
    # keys are sorted.
    above = 3 * count * len(sample) // (2 * size) + 20
    least = sample[max(len(sample) - above, 0)]
    candidates = sorted([key for key in keys if key >= least])
    if len(candidates) < count:
        candidates = sorted(keys)
    return candidates[len(candidates) - count :]


Columns = tuple[list[int], list[bytes], list[bytes | None], list[bytes | None], list[int]]


def columns(events: Sequence[Event]) -> Columns:
    """Return events as columns, as they travel."""
    return (
        [event[0] for event in events],
        [event[1] for event in events],
        [event[2] for event in events],
        [event[3] for event in events],
        [event[4] for event in events],
    )


def values_of(stored: Iterable[bytes | None]) -> list[bytes | None]:
    """Return stored values without their stamps, as callers see them."""
    return [each[STAMP_BYTES:] if each is not None else None for each in stored]


def _size(event: Event) -> int:
    _, key, stored, old, _ = event
    return EVENT_BYTES + len(key) + (len(stored) if stored is not None else 0) + (len(old) if old is not None else 0)
