"""Members that have been silent for too long, each by a limit of its own: the bookkeeping of every detector.

A look costs nothing until the earliest limit can have passed, and then one pass over the members.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis


class Silent(NamedTuple):
    """A member that seems to be gone."""

    member: MemberId
    silent_ms: Millis
    """How long it has shown no sign of life."""
    reason: str
    """Why it seems to be gone, in words."""


class SilenceLimits:
    """When each member was heard last, and when its silence will be too long."""

    def __init__(self) -> None:
        self.heard: dict[MemberId, Millis] = {}
        self._due: dict[MemberId, Millis] = {}
        """Member to the time at which its silence is too long."""
        self._past: list[MemberId] = []
        """Members whose limit had passed at the last look and that were not heard since, in the order of watching."""
        self._nobody_before: Millis | None = None
        """No other limit passes before this time. A heartbeat seldom changes it; `past` moves it."""

    def note_heard(self, member: MemberId, heard: Millis, limit_ms: Millis) -> None:
        """Note when the member was heard, and for how long it can be silent from then on."""
        self.heard[member] = heard
        due = self._due[member] = heard + limit_ms
        if member in self._past:
            self._past.remove(member)
        if self._nobody_before is None or due < self._nobody_before:
            self._nobody_before = due

    def forget(self, member: MemberId) -> None:
        self.heard.pop(member, None)
        self._due.pop(member, None)
        if member in self._past:
            self._past.remove(member)
        if len(self._past) == len(self._due):
            self._nobody_before = None

    def past(self, now: Millis) -> list[MemberId]:
        """Return the members that have been silent for too long, in the order of watching."""
        if self._nobody_before is not None and now >= self._nobody_before:
            self._past = [member for member, due in self._due.items() if due <= now]
            self._nobody_before = min((due for due in self._due.values() if due > now), default=None)
        return list(self._past)

    def is_late(self, than_ms: Millis, now: Millis) -> bool:
        """Return whether a member was not heard for longer than that, and yet not for too long."""
        return any(now - heard > than_ms and self._due[member] > now for member, heard in self.heard.items())

    def was_heard(self, member: MemberId, within_ms: Millis, now: Millis) -> bool:
        """Return whether a watched member was heard lately, or has only just begun to be watched."""
        return now - self.heard.get(member, now) <= within_ms

    def next_deadline(self) -> Millis | None:
        """Return the next time at which a member can be silent for too long. Members found already do not count."""
        return self._nobody_before

    def longest_ms(self, now: Millis) -> Millis:
        """Return for how long the member that was heard least lately has been silent; for people."""
        return max((now - heard for heard in self.heard.values()), default=0)

    def highest_ratio(self, now: Millis) -> float:
        """Return the highest share of its limit that the silence of a member has used; for people."""
        shares = ((now - heard) / max(self._due[member] - heard, 1) for member, heard in self.heard.items())
        return max(shares, default=0.0)
