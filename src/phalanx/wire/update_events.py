"""Events about updates of values. The driver that measures them records them, not a state machine."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.wire.event import RecordedEvent


class UpdateWasSlow(RecordedEvent, frozen=True):
    """A function of the program held this member up for longer than `update_warning_ms`, in one call."""

    function: str
    took_ms: Millis
    """How long the call took."""
    warning_ms: Millis
    """The setting."""
    untold: int
    """How many further such calls of this function there were since the last event about it."""
    rule: str = "PX-16"


UpdateEvent = UpdateWasSlow
