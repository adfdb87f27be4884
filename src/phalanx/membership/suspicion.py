"""Whom this member suspects, and why. Local: suspicions are not shared (reference 001, "Member Suspicion & Removal").

Combines the failure detector with the evidence of refused connections, and remembers verdicts until they are taken
back: a heartbeat, a member list from the master, or the return of a connection that was lost, ends a suspicion. What a
suspicion leads to is decided by the `MembershipService`: removal on the master, possibly a mastership claim elsewhere.

Two slaves that suspect each other send each other no heartbeats. So that a short failure of their connection does not
keep them apart for ever, each tries to open the connection again, without a heartbeat, and believes it when it opens.
"""

from __future__ import annotations

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.membership.failure_detector import ConnectionEvidence, DeadlineFailureDetector, FailureDetector
from phalanx.wire.effects import Outbox
from phalanx.wire.events import MemberSuspected, SuspicionRemoved


class Suspicions:
    """The suspected members of the present view."""

    def __init__(self, config: NodeConfig, outbox: Outbox) -> None:
        self._out = outbox
        self._interval_ms = config.heartbeat_interval_ms
        self._detector: FailureDetector = DeadlineFailureDetector(config.heartbeat_timeout_ms)
        self._evidence = ConnectionEvidence(config.connection_grace_ms, config.retry_interval_ms)
        self._watched: tuple[MemberId, ...] = ()
        self._due = 0
        """When the driver was last told to come back; coming much later means that this member was away."""
        self.suspected: dict[MemberId, str] = {}
        """Member to reason."""
        self._cut_off: dict[MemberId, Millis] = {}
        """Suspected members without a connection, and when to try to open it again."""

    def watch(self, view: MembersView, this: MemberId, now: Millis) -> None:
        """Watch exactly the other members of this view."""
        others = view.others(this)
        for gone in set(self._watched).difference(others):
            self._detector.forget(gone)
            self._evidence.reached(gone)
            self.suspected.pop(gone, None)
            self._cut_off.pop(gone, None)
        for member in others:
            self._detector.watch(member, now)
        self._watched = others

    def heard(self, member: MemberId, now: Millis, rule: str) -> None:
        """The member is alive by its own word: a heartbeat, or a list from the master."""
        self._detector.heartbeat(member, now)
        self._evidence.reached(member)
        self._cut_off.pop(member, None)
        if self.suspected.pop(member, None) is not None:
            self._out.record(SuspicionRemoved(member, rule))

    def connection_lost(self, member: MemberId, now: Millis) -> None:
        """A connection broke. That says nothing of a member that is not suspected; of another one, how to reach it."""
        if member in self.suspected:
            self._cut_off.setdefault(member, now + self._interval_ms)

    def connection_refused(self, member: MemberId, now: Millis) -> None:
        if member in self.suspected:
            self._cut_off.setdefault(member, now + self._interval_ms)
        elif member in self._watched:
            self._evidence.refused(member, now)

    def connection_open(self, member: MemberId, now: Millis) -> None:
        self._evidence.reached(member)
        if member in self._cut_off:
            self.heard(member, now, "CS-33 the connection is back")

    def suspect(self, member: MemberId, reason: str, rule: str) -> bool:
        """Suspect a member of the view; True if that is new."""
        if member not in self._watched or member in self.suspected:
            return False
        self.suspected[member] = reason
        self._out.record(MemberSuspected(member, reason, rule))
        return True

    def review(self, now: Millis) -> list[MemberId]:
        """Members that became suspected by now, in the order in which they were found."""
        if self._due and now - self._due > self._interval_ms:
            missed_ms = now - self._due
            self._detector.observer_was_away(missed_ms, now)
            self._evidence.observer_was_away(missed_ms)
        self._due = 0
        found = [(member, reason, "CS-33 silence") for member, reason in self._detector.silent(now)]
        found += [(member, reason, "CS-33 connection") for member, reason in self._evidence.unreachable(now)]
        suspects = [member for member, reason, rule in found if self.suspect(member, reason, rule)]
        for member in suspects:
            if self._evidence.is_refused(member):
                self._cut_off[member] = now + self._interval_ms
        return suspects

    def to_reconnect(self, now: Millis) -> list[MemberId]:
        """Members whose refused connection should be tried again now."""
        due = [member for member, at in self._cut_off.items() if at <= now]
        for member in due:
            self._cut_off[member] = now + self._interval_ms
        return due + [member for member in self._evidence.to_retry(now) if member not in self.suspected]

    def next_deadline(self, next_tick: Millis) -> Millis:
        """The earliest time at which this object must be asked again, given the member's next regular tick."""
        due, retry = next_tick, self._evidence.next_deadline()
        if retry is not None and retry < due:
            due = retry
        if not self.suspected:
            # A suspected member stays silent; its deadline is long past and says nothing new. The tick finds others.
            silence = self._detector.next_deadline()
            if silence is not None and silence < due:
                due = silence
        self._due = due
        return due
