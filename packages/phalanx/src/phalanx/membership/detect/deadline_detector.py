"""The plain failure detector: a member is gone after a fixed time of silence (docs/protocol/failure-detection.md)."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.silence_limits import SilenceLimits, Silent


class DeadlineFailureDetector:
    """One limit for all, in proportion to the interval at which a member's heartbeats come."""

    def __init__(self, timeout_ms: Millis, interval_ms: Millis = 1_000) -> None:
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._limits: dict[MemberId, Millis] = {}
        self.silence = SilenceLimits()

    def watch(self, member: MemberId, now: Millis, interval_ms: Millis = 0) -> None:
        watched = member in self._limits
        if watched and not interval_ms:
            return
        limit = self._timeout_ms * (interval_ms or self._interval_ms) // self._interval_ms
        if limit != self._limits.get(member):
            self._limits[member] = limit
            self.silence.note_heard(member, self.silence.heard.get(member, now), limit)

    def forget(self, member: MemberId) -> None:
        self._limits.pop(member, None)
        self.silence.forget(member)

    def heartbeat(self, member: MemberId, now: Millis) -> None:
        if member in self._limits:
            self.silence.note_heard(member, now, self._limits[member])

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        for member, limit in self._limits.items():
            # Heartbeats that came meanwhile can have been handled first, with the present time.
            self.silence.note_heard(member, min(self.silence.heard[member] + missed_ms, now), limit)

    def silent(self, now: Millis) -> list[Silent]:
        found = [(member, now - self.silence.heard[member]) for member in self.silence.past(now)]
        limits = self._limits
        return [Silent(m, ms, f"no heartbeat for {ms} ms; the limit is {limits[m]} ms") for m, ms in found]
