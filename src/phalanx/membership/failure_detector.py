"""Who seems to be gone: evidence only. What follows from it (suspicion, removal, a claim) is decided elsewhere.

Two sources, either of which is enough: silence (`DeadlineFailureDetector`) and connections that stay refused after one
was lost (`ConnectionEvidence`). A broken connection alone is evidence of nothing: it is reopened first.

A slow observer distrusts itself first: when this member's own clock tick came late, it was this member that was away,
so the time that it missed is nobody's silence.
"""

from __future__ import annotations

from typing import Protocol

from phalanx.common.ids import MemberId, Millis


class FailureDetector(Protocol):
    """Judges members by when their heartbeats arrived. Deterministic; reads no clock."""

    def watch(self, member: MemberId, now: Millis) -> None:
        """Begin to expect heartbeats, counting from now; nothing changes for a member that is watched already."""

    def forget(self, member: MemberId) -> None:
        """Expect nothing of the member any more."""

    def heartbeat(self, member: MemberId, now: Millis) -> None:
        """A heartbeat arrived."""

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        """This member itself did not run for so long; nobody could have been heard meanwhile."""

    def silent(self, now: Millis) -> list[tuple[MemberId, str]]:
        """The watched members that seem to be gone, each with the reason in words."""

    def next_deadline(self) -> Millis | None:
        """Before this time silence alone adds nobody to the answer of `silent`."""


class DeadlineFailureDetector:
    """Gone after a fixed time of silence (reference 003, its timeout based failure detector)."""

    def __init__(self, timeout_ms: Millis) -> None:
        self._timeout_ms = timeout_ms
        self._last_heard: dict[MemberId, Millis] = {}
        self._nobody_before: Millis | None = None
        """Before this nobody can be silent for too long; heartbeats move the true time on, a look moves this one."""

    def watch(self, member: MemberId, now: Millis) -> None:
        self._last_heard.setdefault(member, now)
        if self._nobody_before is None:
            self._nobody_before = now + self._timeout_ms

    def forget(self, member: MemberId) -> None:
        self._last_heard.pop(member, None)
        if not self._last_heard:
            self._nobody_before = None

    def heartbeat(self, member: MemberId, now: Millis) -> None:
        if member in self._last_heard:
            self._last_heard[member] = now

    def observer_was_away(self, missed_ms: Millis, now: Millis) -> None:
        for member, heard in self._last_heard.items():
            # What had come meanwhile may have been taken in first, with the time of now.
            self._last_heard[member] = min(heard + missed_ms, now)

    def silent(self, now: Millis) -> list[tuple[MemberId, str]]:
        if self._nobody_before is None or now < self._nobody_before:
            return []
        self._nobody_before = min(self._last_heard.values()) + self._timeout_ms
        return [
            (member, f"no heartbeat for {now - heard} ms; the limit is {self._timeout_ms} ms")
            for member, heard in self._last_heard.items()
            if now - heard >= self._timeout_ms
        ]

    def next_deadline(self) -> Millis | None:
        return self._nobody_before


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
