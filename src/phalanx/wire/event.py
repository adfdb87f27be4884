"""What every event has in common."""

from __future__ import annotations

import msgspec

EVENT_SCHEMA_VERSION = 1


class RecordedEvent(msgspec.Struct, frozen=True, tag_field="event", tag=True):
    """A fact that a member records: its class's name is the event's."""
