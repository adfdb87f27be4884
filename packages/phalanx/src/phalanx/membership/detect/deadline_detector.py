"""The plain failure detector: a member is gone after a fixed time of silence (docs/protocol/failure-detection.md)."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.silence_limits import SilenceLimits, Silent


class DeadlineFailureDetector:
    """One limit for all."""

    def __init__(self, timeout_ms: Millis) -> None:
        self._timeout_ms = timeout_ms
        self.silence = SilenceLimits()

    def watch(self, member: MemberId, now: Millis) -> None:
        if member not in self.silence.heard:
            self.silence.note_heard(member, now, self._timeout_ms)

    def forget(self, member: MemberId) -> None:
        self.silence.forget(member)

    def heartbeat(self, member: MemberId, now: Millis) -> None:
        if member in self.silence.heard:
            self.silence.note_heard(member, now, self._timeout_ms)

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        for member, heard in list(self.silence.heard.items()):
            # Heartbeats that came meanwhile can have been handled first, with the present time.
            self.silence.note_heard(member, min(heard + missed_ms, now), self._timeout_ms)

    def silent(self, now: Millis) -> list[Silent]:
        found = [(member, now - self.silence.heard[member]) for member in self.silence.past(now)]
        limit = self._timeout_ms
        return [Silent(member, ms, f"no heartbeat for {ms} ms; the limit is {limit} ms") for member, ms in found]
