"""Events about the event log itself. The driver that writes it records them, no machine does."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.wire.event import RecordedEvent


class EventsLost(RecordedEvent, frozen=True):
    """Before this line events are missing in the log: the member went on while they could not be written."""

    missing: int
    missing_ms: Millis
    """The first of them was recorded so long before this event, the last of them before it, too."""
    reason: str


LogEvent = EventsLost
