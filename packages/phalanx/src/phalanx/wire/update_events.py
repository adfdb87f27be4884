"""Events about updates of values, and conditions."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.wire.event import RecordedEvent


class UpdateWasSlow(RecordedEvent, frozen=True):
    """A function of the program held this member up for longer than `update_warning_ms`, in one call. The driver that measures
    it records it, not a state machine."""

    function: str
    took_ms: Millis
    """How long the call took."""
    warning_ms: Millis
    """The setting."""
    untold: int
    """How many further such calls of this function there were since the last event about it."""
    rule: str = "PX-16"


class EvaluationFailed(RecordedEvent, frozen=True):
    """A function or a condition raised what nobody foresaw: the caller was told, and nothing was changed."""

    request: str
    """The kind of the request."""
    error: str
    """The class of the exception."""
    untold: int
    """How many further such requests of this kind failed since the last event about it."""
    rule: str = "PX-48"


UpdateEvent = UpdateWasSlow | EvaluationFailed
