"""Positions and pages of map journals, and the errors that readers get: shared by all kinds of clients."""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.errors import JournalLineageChanged, JournalNotEnabled, JournalOverrun
from phalanx.common.map_plan import MapPlan
from phalanx.wire.messages import JournalReply

KINDS = ("", "added", "updated", "removed", "expired", "evicted", "merged")
"""Kinds of events, by their number on the wire. `merged`: another side's value replaced it after a split brain."""
PAGE_EVENTS = 10_000
PAGE_BYTES = 1024 * 1024
PAUSE_S = 0.02
MOST_NAMES = 20
"""Most names of maps in an error message."""
DOUBT_S = 3.0
"""For how many seconds requests are repeated before a reader gets the error that its events were lost."""


class Position(NamedTuple):
    """A position in the journal of one partition: after the events that were read."""

    lineage: int
    """The name of the history to which the number belongs; a journal that begins again has another lineage."""
    sequence: int
    """The number of the next event."""


class Bounds(NamedTuple):
    """The range of committed events in the journal of one partition."""

    lineage: int
    """The lineage of the newest committed event."""
    oldest: int
    """The number of the oldest event that is kept; if there is none, that of the next event."""
    end: int
    """The number after that of the newest committed event."""
    known_to: int = -1
    """The number up to which the requested lineage is valid in this journal; -1: the lineage is unknown here."""

    @property
    def begin_position(self) -> Position:
        """Return the position from which to read all events that are kept."""
        return Position(self.lineage, self.oldest)

    @property
    def end_position(self) -> Position:
        """Return the position from which to read only future events."""
        return Position(self.lineage, self.end)


class JournalEvent(NamedTuple):
    """One change of an entry; key and values are serialised (`phalanx.codec.values`)."""

    kind: str
    """`added`, `updated`, `removed`, `expired`, `evicted` or `merged`."""
    key: bytes
    """The serialised key."""
    value: bytes | None
    """The new value of the entry; None: the entry is gone."""
    old_value: bytes | None
    """The value before; None: there was none, or it is not kept."""
    stamp_ms: int
    """When it was written, by the grid's clock, in milliseconds since 1970; for `merged`: when on its former side."""
    sequence: int
    """The number of the event in its partition."""


class JournalPage(NamedTuple):
    """Events in order, and the position from which to continue."""

    events: list[JournalEvent]
    """The events, oldest first; empty: there are no more yet."""
    next: Position
    """The position after these events."""


def page_of(map_name: str, partition: int, at: Position, reply: JournalReply) -> JournalPage:
    """Return the page in a reply to a reader at a position. Raises the reader's error if there is one."""
    where = f"partition {partition} of map {map_name!r}"
    mend = "read the map as it is now, and the journal from the position that it has now (bounds)"
    if at.lineage and reply.known_to < 0:
        text = f"the position before event {at.sequence} of {where} belongs to another journal: this one began again, or another"
        raise JournalLineageChanged(partition, None, f"{text} side of a cut wrote it; {mend}")
    if at.sequence > reply.known_to:
        void = at.sequence - reply.known_to
        text = (
            f"{void} events before event {at.sequence} of {where} were read, and are lost: their side of a cut, or all"
        )
        raise JournalLineageChanged(partition, void, f"{text} members that held them, are gone; {mend}")
    if at.sequence < reply.oldest:
        missed = reply.oldest - at.sequence
        text = f"{missed} events of {where} from event {at.sequence} on are no longer kept: the reader is too late"
        raise JournalOverrun(partition, missed, f"{text}; {mend}, and give the journal a greater capacity")
    events = [
        JournalEvent(KINDS[kind], key, value, old, stamp, reply.sequence + index)
        for index, (kind, key, value, old, stamp) in enumerate(
            zip(reply.kinds, reply.keys, reply.values, reply.olds, reply.stamps, strict=True)
        )
    ]
    return JournalPage(events, Position(reply.lineage, events[-1].sequence + 1) if events else at)


def may_be_behind(reply: JournalReply, at: Position, *, in_doubt: bool) -> bool:
    """Return whether the answering owner can be stale: without the map's new journal, or not the owner any more.

    1. O hangs, and is removed. 2. Its backup becomes the owner, begins its own lineage, and is read. 3. O runs again,
    and is asked: it does not know that lineage. So the request is repeated for a while (`in_doubt`, at most `DOUBT_S`),
    to the owner in the newest table.
    """
    return not reply.lineage or (in_doubt and bool(at.lineage) and reply.known_to < at.sequence)


def not_enabled(map_name: str, plan: MapPlan) -> JournalNotEnabled:
    """Return the error for a reader of a map without a journal. It names maps with one: the name is perhaps misspelt."""
    how = f"phalanx map journal {map_name} --capacity 10000 --at HOST:PORT"
    named = list(map(repr, plan.journals))
    more = f" and {len(named) - MOST_NAMES} more" if len(named) > MOST_NAMES else ""
    have = f"maps with a journal are: {', '.join(named[:MOST_NAMES])}{more}" if named else "no map has one"
    return JournalNotEnabled(
        f"map {map_name!r} has no journal ({have}): check the name, or begin one with '{how}'; it holds what happens from "
        "then on"
    )
