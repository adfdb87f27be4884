"""What this member did recently, as its driver counts it: kept for requests."""

from __future__ import annotations

from phalanx.common.ids import Millis, Target
from phalanx.machine.inputs import ActivityMeasured
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route
from phalanx.wire.messages import ActivityReply, GetActivity


class RecentActivity:
    """Answers with the last measurement. A member in no cluster answers, too."""

    def __init__(self, outbox: Outbox) -> None:
        self._out = outbox
        self._last, self._measured_at = ActivityMeasured(0, (), False, 0, ()), 0

    def routes(self) -> Routes:
        return (route(GetActivity, self.on_inquiry),)

    def on_measured(self, measured: ActivityMeasured, now: Millis) -> None:
        self._last, self._measured_at = measured, now

    def on_inquiry(self, caller: Target, request: GetActivity, now: Millis) -> None:
        last, age_ms = self._last, now - self._measured_at
        points = last.points[-request.most :] if request.most > 0 else ()
        reply = ActivityReply(request.id, last.recorded, age_ms, points, last.counts_calls, last.over_ms, last.maps)
        self._out.send(caller, reply)
