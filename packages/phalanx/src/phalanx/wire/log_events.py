"""Events about the event log itself. The driver that writes the log records them, not a state machine."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.wire.event import TROUBLE, WARNING, Event, Notice


class EventsLost(Event, frozen=True):
    """The log lacks events before this line: they could not be written, and the member went on."""

    notice = Notice(
        "has a gap in its event log: {missing:event is/events are} missing, the first of {missing_ms:s} ago",
        WARNING,
        TROUBLE,
    )

    missing: int
    """How many events are missing."""
    missing_ms: Millis
    """The time from the first missing event to this one. All missing events were recorded in it."""
    reason: str
    """Why the first missing event could not be written."""
