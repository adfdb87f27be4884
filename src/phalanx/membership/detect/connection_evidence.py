"""Connections that stay refused after one was lost: a process that nobody runs any more answers so at once.

A broken connection alone is evidence of nothing: it is reopened first. What follows is decided elsewhere.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis


class ConnectionEvidence:
    """Members whose lost connection could not be reopened because nobody accepts it."""

    def __init__(self, grace_ms: Millis, retry_ms: Millis) -> None:
        self._grace_ms = grace_ms
        self._retry_ms = retry_ms
        self._refused_since: dict[MemberId, Millis] = {}
        self._retry_at: dict[MemberId, Millis] = {}

    def refused(self, member: MemberId, now: Millis) -> None:
        """A connection was refused: try again soon."""
        self._refused_since.setdefault(member, now)
        self._retry_at[member] = now + self._retry_ms

    def reached(self, member: MemberId) -> None:
        """A connection is open, or a message came: the member lives."""
        self._refused_since.pop(member, None)
        self._retry_at.pop(member, None)

    def observer_was_away(self, missed_ms: Millis) -> None:
        for member in self._refused_since:
            self._refused_since[member] += missed_ms

    def is_refused(self, member: MemberId) -> bool:
        return member in self._refused_since

    def to_retry(self, now: Millis) -> list[MemberId]:
        """Members to which a connection should be tried again now."""
        due = [member for member, at in self._retry_at.items() if at <= now]
        for member in due:
            self._retry_at[member] = now + self._retry_ms
        return due

    def unreachable(self, now: Millis) -> list[tuple[MemberId, str]]:
        """Members that refused connections for the whole grace period, with the reason in words."""
        return [
            (member, f"connection lost, and refused for {now - since} ms; the limit is {self._grace_ms} ms")
            for member, since in self._refused_since.items()
            if now - since >= self._grace_ms
        ]

    def next_deadline(self) -> Millis | None:
        return min(self._retry_at.values()) if self._retry_at else None
