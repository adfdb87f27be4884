"""Connections that are refused after one was lost: the evidence by which a killed process is found.

A broken connection alone proves nothing: it is reopened first. If that is refused, the grace period depends on who
refused. The whole grace is for a network that answers for a while that there is no route. It is shorter if the peer's
machine answers that no process listens there: a member listens as long as it lives, and a process that starts again at
the address is another incarnation. There is no grace if that machine is this one, because nothing lies between. A
refusal leads to a suspicion, never to a verdict; what follows is decided elsewhere.
"""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.detect.silence_limits import Silent

DESERTED_GRACE_MS: Millis = 100
"""The longest grace if another machine answers that no process listens: a router may have answered in its place."""
TRIES = 4
"""The fewest tries in a grace period: a member that can be reached again meanwhile is not suspected."""


class _Refusal(msgspec.Struct, frozen=True):
    """A member that refuses connections."""

    since: Millis
    """When it was first refused."""
    grace_ms: Millis
    retry_ms: Millis
    """The time between two tries."""
    words: str
    """Why the member seems to be gone, for people."""

    def reason(self, now: Millis) -> str:
        """Return the reason in words; where a single refusal is enough, without times."""
        if not self.grace_ms:
            return f"connection lost, and {self.words or 'refused'}"
        lasted = f"refused for {now - self.since} ms; the limit is {self.grace_ms} ms"
        return f"connection lost, and {self.words}{': ' if self.words else ''}{lasted}"


class ConnectionEvidence:
    """Members whose lost connection could not be reopened because it is refused."""

    def __init__(self, grace_ms: Millis, retry_ms: Millis) -> None:
        self._grace_ms = grace_ms
        self._retry_ms = retry_ms
        self._refusals: dict[MemberId, _Refusal] = {}
        self._retry_at: dict[MemberId, Millis] = {}

    def note_refused(
        self, member: MemberId, now: Millis, *, is_deserted: bool = False, is_same_host: bool = False
    ) -> None:  # fmt: skip
        """Note that a connection was refused, and try again soon. The last refusal decides about the grace period.

        `is_deserted`: the member's machine says that no process listens; `is_same_host`: that machine is this one.
        """
        grace_ms, words = self._grace_ms, ""
        if is_deserted:
            words = f"no process listens there{' on this machine' if is_same_host else ''}"
            grace_ms = 0 if is_same_host else min(grace_ms, DESERTED_GRACE_MS)
        # 1. The grace is no longer than the usual time between two tries. 2. A cut of a moment breaks connections. 3. None
        # is tried again before the grace ends, and both sides suspect each other over a network that is whole.
        retry_ms = min(self._retry_ms, max(grace_ms // TRIES, 1))
        before = self._refusals.get(member)
        self._refusals[member] = _Refusal(before.since if before is not None else now, grace_ms, retry_ms, words)
        self._retry_at[member] = now + retry_ms

    def note_reached(self, member: MemberId) -> None:
        """Note that a connection is open, or a message came: the member lives."""
        self._refusals.pop(member, None)
        self._retry_at.pop(member, None)

    def observer_was_away(self, missed_ms: Millis) -> None:
        """Do not count the time in which this member itself did not run."""
        for member, refusal in self._refusals.items():
            self._refusals[member] = msgspec.structs.replace(refusal, since=refusal.since + missed_ms)

    def to_retry(self, now: Millis) -> list[MemberId]:
        """Return the members to which a connection should be tried again now."""
        due = [member for member, at in self._retry_at.items() if at <= now]
        for member in due:
            self._retry_at[member] = now + self._refusals[member].retry_ms
        return due

    def unreachable(self, now: Millis) -> list[Silent]:
        """Return the members that refused connections for their whole grace period."""
        return [
            Silent(member, now - each.since, each.reason(now))
            for member, each in self._refusals.items()
            if now - each.since >= each.grace_ms
        ]

    def next_deadline(self) -> Millis | None:
        """Return when a connection is to be tried again, or a grace period ends; None: neither is open."""
        if not self._retry_at:
            return None
        return min([*self._retry_at.values(), *(each.since + each.grace_ms for each in self._refusals.values())])
