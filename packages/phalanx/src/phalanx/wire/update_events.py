"""Events about updates of values, and conditions."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.wire.event import WARNING, Event, Notice


class UpdateWasSlow(Event, frozen=True):
    """A function of the program held this member up for longer than `update_warning_ms`, in one call. The driver that measures
    it records it, not a state machine."""

    notice = Notice(
        "was held up for {took_ms} ms by one call of function {function} (update_warning_ms: {warning_ms})[; {untold} more were slow since the last such line]",
        WARNING,
    )

    function: str
    took_ms: Millis
    """How long the call took."""
    warning_ms: Millis
    """The setting."""
    untold: int
    """How many further such calls of this function there were since the last event about it."""
    rule: str = "PX-16"


class EvaluationFailed(Event, frozen=True):
    """A function or a condition raised what nobody foresaw: the caller was told, and nothing was changed."""

    notice = Notice(
        "refused a request {request}, whose function or condition failed with {error}; nothing was changed[; {untold} more failed since the last such line]",
        WARNING,
    )

    request: str
    """The kind of the request."""
    error: str
    """The class of the exception."""
    untold: int
    """How many further such requests of this kind failed since the last event about it."""
    rule: str = "PX-48"
