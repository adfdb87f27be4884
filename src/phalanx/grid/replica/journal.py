"""The journal of one map in one partition: the last so many things that happened to its entries, numbered.

An event is written where the entries change (`store`), by the owner and by each backup alike, from what was there and what
the write says: so it needs no message of its own, and is the same everywhere. A copy carries the journal behind the
entries (`copying`).

Two sides of a cut may both go on, and both number on from where they were parted. Then event 7 here and event 7 there
are different ones, and only one of them is in the cluster that goes on. So a number alone says nothing; it goes with a
lineage, the name of the rule under which it was written (an owner's, from one table to another). The journal knows where
each lineage began. A reader is at (lineage, number), behind the last event that it has read, and that is a position in
this journal if the lineage is one of its own and did not end before that number:

    lineages    a: 0 to 99    b: 100 to 119
    (a, 95)     in it, and so is (a, 100): nothing but what b wrote follows
    (a, 110)    not in it: what the reader has read from 100 on was written on another side, or was lost with its owner
    (c, 90)     not in it, nor if this journal began later than the reader's

What owners wrote before the lineage of a position is the same wherever that lineage is known: a rule begins with one
state of the partition.

The journal holds what was written last, up to a number of events and to a number of bytes, at least one event.
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
"""What an event counts besides its key and values."""
OLD_VALUE_WITHIN_BYTES = 16 * 1024 * 1024
"""An event with more than this, old value and all, goes without the old value: one event must fit a frame."""
ENDED_LINEAGES = 64
"""How many are remembered of which no event is left: so a reader that is far behind is told how far."""
SAMPLE_KEYS = 1_000
"""Of many keys, so many tell from where on the greatest are."""

Event = tuple[int, bytes, bytes | None, bytes | None, int]
"""Kind, key, stamped value (None: gone), stamped old value (None: there was none), stamp."""


def lineage_of(epoch: int, ruler: str, origin: int) -> int:
    """The name of a rule over a journal. Of 52 bits, so that every reader of JSON keeps it whole."""
    named = blake2b(f"{epoch}/{ruler}/{origin}".encode(), digest_size=8).digest()
    return (int.from_bytes(named, "big") >> 12) or 1


class MapJournal:
    """The events that are kept, and the numbers of the oldest (`first`) and of the one to come (`next`)."""

    __slots__ = ("_bytes", "_rule", "capacity", "events", "first", "lineages", "max_bytes", "next", "origin")

    def __init__(self, capacity: int, max_bytes: int, origin: int, epoch: int, ruler: str) -> None:
        self.capacity = capacity
        self.max_bytes = max_bytes
        self.origin = origin
        """The number of the write that began it: two journals of one map under one rule are not one."""
        self.events: deque[Event] = deque()
        self.first = 0
        self.next = 0
        self.lineages = [(lineage_of(epoch, ruler, origin), 0)]
        """Each with the number of its first event, in their order: all that events here belong to, and some before."""
        self._bytes = 0
        self._rule: tuple[int, str] | None = None
        """The rule that has begun since the last event was written."""

    def __repr__(self) -> str:
        return f"MapJournal({self.first} to {self.next}, capacity={self.capacity}, lineages={self.lineages})"

    def begin_rule(self, epoch: int, ruler: str) -> None:
        """Record that what is written from now on is written in this epoch."""
        self._rule = epoch, ruler

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, key: bytes, stored: bytes, old: bytes | None, *, merged: bool) -> None:
        """A value is stored where the old one was."""
        self._write(put_event(key, stored, old, MERGED if merged else ADDED if old is None else UPDATED))

    def gone(self, key: bytes, old: bytes, stamp: int, kind: int) -> None:
        """An entry is no more."""
        self._write((kind, key, None, old, stamp))

    def cleared(self, entries: dict[bytes, bytes], stamp: int) -> None:
        """All entries are gone: in the order of their keys, which is the same everywhere."""
        self.changed(entries, lambda key: (REMOVED, key, None, entries[key], stamp))

    def changed(self, keys: Collection[bytes], event_of: Callable[[bytes], Event]) -> None:
        """So many entries have changed at once: their events follow each other in the order of the keys.

        Those that would be dropped again within this call are counted and never made: nobody could read them, and a
        journal of a hundred events must not cost a member a second for half a million keys.
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
        """Return the last events that the journal has room for, at least one, and how many bytes they take."""
        most = min(len(keys), self.capacity)
        # How many events have room is known when they are made; one of them tells how many that may be.
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

    def _begin_lineage(self, epoch: int, ruler: str) -> None:
        """The next event is the first of this rule."""
        lineage = lineage_of(epoch, ruler, self.origin)
        if lineage != self.lineages[-1][0]:
            self.lineages.append((lineage, self.next))
        self._rule = None

    def limit(self, capacity: int, max_bytes: int) -> None:
        """Keep more, or less, from now on."""
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
        """Up to which number the lineage is known here; None: it is not."""
        for index, (name, _) in enumerate(self.lineages):
            if name == lineage:
                return self.lineages[index + 1][1] if index + 1 < len(self.lineages) else self.next
        return None

    def lineage_at(self, sequence: int) -> int:
        """The lineage of a position: that of the event before it."""
        found = self.lineages[0][0]
        for lineage, first in self.lineages:
            if first < sequence:
                found = lineage
        return found

    def read(self, start: int, stop: int) -> list[Event]:
        """Events by their numbers, those that are kept."""
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
        """Return the part for one chunk of a copy: the newest events before a number; and about how many bytes they take."""
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
    def of_part(cls, part: JournalPart, epoch: int, ruler: str) -> MapJournal:
        """The destination's journal, from the first part of a copy: what is written from now on it can write by itself."""
        journal = cls(part.capacity, part.max_bytes, part.origin, epoch, ruler)
        journal.lineages = list(part.lineages)
        journal.first = journal.next = part.end
        journal.begin_rule(epoch, ruler)
        return journal

    def fill(self, part: JournalPart) -> None:
        """Older events have come. None between is dropped here by now: then the owner has dropped these, too, and they
        were not sent.
        """
        invariant(part.end == self.first, "a journal has no gaps", journal=self, end=part.end)
        events = list(zip(part.kinds, part.keys, part.values, part.olds, part.stamps, strict=True))
        self.events.extendleft(reversed(events))
        self.first -= len(events)
        self._bytes += sum(map(_size, events))
        self._drop_old()


def put_event(key: bytes, stored: bytes, old: bytes | None, kind: int) -> Event:
    """The event of a value that is stored where the old one was; one that would not fit a frame goes without the old one."""
    if old is not None and len(key) + len(stored) + len(old) > OLD_VALUE_WITHIN_BYTES:
        old = None
    return kind, key, stored, old, stamp_of(stored)


def greatest(keys: Collection[bytes], count: int) -> list[bytes]:
    """The greatest so many of different keys, in ascending order.

    To sort half a million keys takes half a second. Where few are wanted, a sample tells from where on there are enough,
    and only those are sorted.
    """
    size = len(keys)
    if count >= size // 4 or size < 4 * SAMPLE_KEYS:
        return sorted(keys)[size - count :]
    sample = sorted(islice(keys, 0, None, size // SAMPLE_KEYS))
    # Half as many again as are wanted, and some: a sample is not exact. Where it misleads, all are sorted.
    above = 3 * count * len(sample) // (2 * size) + 20
    least = sample[max(len(sample) - above, 0)]
    candidates = sorted([key for key in keys if key >= least])
    if len(candidates) < count:
        candidates = sorted(keys)
    return candidates[len(candidates) - count :]


Columns = tuple[list[int], list[bytes], list[bytes | None], list[bytes | None], list[int]]


def columns(events: Sequence[Event]) -> Columns:
    """Events as they travel."""
    return (
        [event[0] for event in events],
        [event[1] for event in events],
        [event[2] for event in events],
        [event[3] for event in events],
        [event[4] for event in events],
    )


def values_of(stored: Iterable[bytes | None]) -> list[bytes | None]:
    """Stored values as callers see them."""
    return [each[STAMP_BYTES:] if each is not None else None for each in stored]


def _size(event: Event) -> int:
    _, key, stored, old, _ = event
    return EVENT_BYTES + len(key) + (len(stored) if stored is not None else 0) + (len(old) if old is not None else 0)
