"""Positions in the journals of maps, what is told of them, and what must be said to a reader: for every kind of client."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.errors import JournalLineageChanged, JournalNotEnabled, JournalOverrun
from phalanx.common.map_settings import MapPlan
from phalanx.wire.messages import JournalReply

KINDS = ("", "added", "updated", "removed", "expired", "evicted", "merged")
"""Of events, by their number on the wire. `merged`: another side's value was taken when a cut was healed."""
PAGE_EVENTS = 10_000
PAGE_BYTES = 1024 * 1024
PAUSE_S = 0.02
MOST_NAMES = 20
"""Of maps, in a message."""
DOUBT_S = 3.0
"""How long others are asked before a reader is told that its events did not last."""


class Position(NamedTuple):
    """A place in the journal of one partition: behind what was read."""

    lineage: int
    """The name of the history to which the number belongs; a journal that begins anew has another one."""
    sequence: int
    """The number of the next event."""


class Bounds(NamedTuple):
    """What the journal of one partition holds."""

    lineage: int
    """The lineage of the newest event that may be read."""
    oldest: int
    """The number of the oldest event that is kept; of the next one, where none is."""
    end: int
    """The number behind the newest event that may be read."""
    known_to: int = -1
    """Up to which number it has the same events as the lineage that was asked about; -1: it does not know that one."""

    @property
    def begin_position(self) -> Position:
        """Where to read from for all that is kept."""
        return Position(self.lineage, self.oldest)

    @property
    def end_position(self) -> Position:
        """Where to read from for what comes next."""
        return Position(self.lineage, self.end)


class JournalEvent(NamedTuple):
    """One thing that happened to an entry; key and values are serialised (`phalanx.codec.values`)."""

    kind: str
    """`added`, `updated`, `removed`, `expired`, `evicted` or `merged`."""
    key: bytes
    """The serialised key."""
    value: bytes | None
    """What the entry holds from then on; None: it is gone."""
    old_value: bytes | None
    """What it held before."""
    stamp_ms: int
    """When it was written, by the grid's clock, in milliseconds since 1970; of one that was merged: on its former side."""
    sequence: int
    """The number of the event in its partition."""


class JournalPage(NamedTuple):
    """Events in their order, and where to go on."""

    events: list[JournalEvent]
    """The events, oldest first; empty where there are no more yet."""
    next: Position
    """The place to read on from."""


def page_of(map_name: str, partition: int, at: Position, reply: JournalReply) -> JournalPage:
    """What a reply says to a reader at a position. Raises what must be said of it."""
    where = f"partition {partition} of map {map_name!r}"
    mend = "read the map as it is now, and the journal from the position that it has now (bounds)"
    if at.lineage and reply.known_to < 0:
        text = f"the journal of {where} is not the one of which event {at.sequence} was the next: it began anew, or another"
        raise JournalLineageChanged(partition, None, f"{text} side of a cut wrote it; {mend}")
    if at.sequence > reply.known_to:
        void = at.sequence - reply.known_to
        text = f"{void} events before event {at.sequence} of {where} were read and did not last: their side of a cut, or all"
        raise JournalLineageChanged(partition, void, f"{text} who held them, are gone; {mend}")
    if at.sequence < reply.oldest:
        missed = reply.oldest - at.sequence
        text = f"{missed} events of {where} from event {at.sequence} on are not kept any more: the reader is too late"
        raise JournalOverrun(partition, missed, f"{text}; {mend}, and give the journal a greater capacity")
    events = [
        JournalEvent(KINDS[kind], key, value, old, stamp, reply.sequence + index)
        for index, (kind, key, value, old, stamp) in enumerate(
            zip(reply.kinds, reply.keys, reply.values, reply.olds, reply.stamps, strict=True)
        )
    ]
    return JournalPage(events, Position(reply.lineage, events[-1].sequence + 1) if events else at)


def may_be_behind(reply: JournalReply, at: Position, *, in_doubt: bool) -> bool:
    """Whether the owner may have yet to hear that the map has a journal, or that it owns the partition no more.

    1. O hangs, and is removed. 2. Its backup goes on, under a lineage of its own, and is read. 3. O goes on, and is asked: it
    knows nothing of that lineage. So it is asked again for a while (`in_doubt`, at most `DOUBT_S`), by the newest table.
    """
    return not reply.lineage or (in_doubt and bool(at.lineage) and reply.known_to < at.sequence)


def not_enabled(map_name: str, plan: MapPlan) -> JournalNotEnabled:
    """What to tell who reads the journal of a map that has none: also which maps have one, as the name may be misspelt."""
    how = f"phalanx map journal {map_name} --capacity 10000 --at HOST:PORT"
    named = list(map(repr, plan.journals))
    more = f" and {len(named) - MOST_NAMES} more" if len(named) > MOST_NAMES else ""
    have = f"maps with a journal are: {', '.join(named[:MOST_NAMES])}{more}" if named else "no map has one"
    return JournalNotEnabled(
        f"map {map_name!r} has no journal ({have}): check the name, or begin one with '{how}'; it holds what happens from "
        "then on"
    )
