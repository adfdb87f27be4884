"""The base class of all events."""

from __future__ import annotations

import msgspec

EVENT_SCHEMA_VERSION = 1


class RecordedEvent(msgspec.Struct, frozen=True, tag_field="event", tag=True):
    """A fact that a member records. The name of its class is the name of the event."""
