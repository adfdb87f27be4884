"""When members confirmed last that they follow their master (docs/protocol/failure-detection.md).

A master expects each slave to say repeatedly that it still follows: heartbeats alone do not say that. In large clusters
slaves expect the same of the master's answers, which come at the same pace.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.silence_limits import Silent


class MasterConfirmations:
    """When each expected member was last heard to confirm."""

    def __init__(self) -> None:
        self._timeout_ms: Millis = 0
        self._last: dict[MemberId, Millis] = {}
        self._nobody_before: Millis | None = None
        """No other member is late before this time. A confirmation does not change it; `missing` moves it."""

    def expect(self, members: Collection[MemberId], timeout_ms: Millis, now: Millis) -> None:
        """Expect exactly these members to confirm from now on; time counts from now for those that are new."""
        self._timeout_ms = timeout_ms
        self._last = {member: self._last.get(member, now) for member in members}
        self._nobody_before = min(self._last.values()) + timeout_ms if self._last else None

    def note(self, member: MemberId, now: Millis) -> None:
        if member in self._last:
            self._last[member] = now

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        """Do not count the time in which this member itself did not run: it heard nobody."""
        for member, last in self._last.items():
            self._last[member] = min(last + missed_ms, now)

    def next_deadline(self) -> Millis | None:
        """Return the next time at which a member can be late. Members found already do not count."""
        return self._nobody_before

    def missing(self, now: Millis) -> list[Silent]:
        """Return the members that have not confirmed in time."""
        if self._nobody_before is not None and now >= self._nobody_before:
            limits = (last + self._timeout_ms for last in self._last.values())
            self._nobody_before = min((limit for limit in limits if limit > now), default=None)
        return [
            Silent(
                member, now - last, f"no master confirmation for {now - last} ms; the limit is {self._timeout_ms} ms"
            )
            for member, last in self._last.items()
            if now - last >= self._timeout_ms
        ]
