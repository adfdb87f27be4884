"""Which members this member suspects, and why (docs/protocol/failure-detection.md).

Each member decides this for itself. Others are told of it (the master in heartbeats and reports, and in large clusters any member
by a report), but what another member suspects is no verdict here: at most a reason to ask the suspected one if it lives.

It combines the failure detector with the evidence of refused connections, of missing confirmations and of questions
without an answer. It remembers verdicts until they are taken back: a heartbeat, a member list from the master, or the
answer to a probe ends a suspicion. What a suspicion leads to is decided elsewhere: removal on the master, possibly a
mastership claim on a slave.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis
from phalanx.common.transitions import TransitionTable
from phalanx.machine.inputs import LinkRefused
from phalanx.machine.outbox import Outbox
from phalanx.membership.detect.connection_evidence import ConnectionEvidence
from phalanx.membership.detect.failure_detector import FailureDetector, make_failure_detector
from phalanx.membership.detect.master_confirmations import MasterConfirmations
from phalanx.wire.suspicion_events import MemberSuspected, SuspicionRemoved


class Trust(enum.StrEnum):
    """What one member thinks of another member of its view."""

    TRUSTED = "trusted"
    QUESTIONED = "questioned"
    """Another member suspects it, and this one, which does not watch it, has asked whether it lives."""
    SUSPECTED = "suspected"
    GONE = "not in the view"


class TrustEvent(enum.StrEnum):
    """What changes the trust."""

    IN_VIEW = "a view with it is installed"
    SILENCE = "silence, a refused connection, missing confirmations, no answer, or its own word"
    REPORT = "another member suspects it, and this one does not watch it"
    LIFE = "a heartbeat, a list or a claim of it, or its answer to a probe"
    OUT_OF_VIEW = "a view without it is installed"


TRUST_CHANGES = TransitionTable[Trust, TrustEvent](
    "what a member thinks of another",
    {
        (Trust.GONE, TrustEvent.IN_VIEW): Trust.TRUSTED,
        (Trust.TRUSTED, TrustEvent.SILENCE): Trust.SUSPECTED,
        (Trust.TRUSTED, TrustEvent.REPORT): Trust.QUESTIONED,
        (Trust.QUESTIONED, TrustEvent.LIFE): Trust.TRUSTED,
        (Trust.QUESTIONED, TrustEvent.SILENCE): Trust.SUSPECTED,
        (Trust.SUSPECTED, TrustEvent.LIFE): Trust.TRUSTED,
        (Trust.SUSPECTED, TrustEvent.OUT_OF_VIEW): Trust.GONE,
        (Trust.TRUSTED, TrustEvent.OUT_OF_VIEW): Trust.GONE,
        (Trust.QUESTIONED, TrustEvent.OUT_OF_VIEW): Trust.GONE,
    },
)
"""A suspected member stays suspected whatever else is said against it."""


class Suspicions:
    """The suspected members of the present view."""

    def __init__(self, this: MemberId, config: NodeConfig, outbox: Outbox) -> None:
        self._this = this
        self._out = outbox
        self._config = config
        self._interval_ms = config.heartbeat_interval_ms
        self._detector: FailureDetector = make_failure_detector(config)
        self._evidence = ConnectionEvidence(config.connection_grace_ms, config.retry_interval_ms)
        self._confirmations = MasterConfirmations()
        self._trust: dict[MemberId, Trust] = {}
        """Other member of the view to the trust in it. Only `_transition` changes it."""
        self._watched: frozenset[MemberId] = frozenset()
        """Members whose heartbeats are expected."""
        self._questioned: dict[MemberId, tuple[Millis, Millis]] = {}
        """QUESTIONED member to the end of its time to answer, and the length of that time."""
        self._answered: dict[MemberId, Millis] = {}
        """Member that has answered such a question to the time of its last answer."""
        self._together_at: Millis | None = None
        """When the master acts on silence at the latest, although other members are late too."""
        self._due = 0
        """When the driver was asked to come back; if it comes much later, this member was away."""
        self.suspected: dict[MemberId, str] = {}
        """SUSPECTED member to the reason."""
        self.deserted: set[MemberId] = set()
        """Members whose machine said last that no process listens there."""

    def trust_in(self, member: MemberId) -> Trust:
        """Return what this member thinks of another one now."""
        return self._trust.get(member, Trust.GONE)

    # --- for people ------------------------------------------------------------------------------------------------

    def count_trust(self) -> Counter[Trust]:
        """Return how many other members of the view there are of each trust."""
        return Counter(self._trust.values())

    def longest_silence_ms(self, now: Millis) -> Millis:
        """Return for how long the watched member that was heard least lately has been silent."""
        return self._detector.silence.longest_ms(now)

    def highest_silence_ratio(self, now: Millis) -> float:
        """Return the highest share of the allowed silence that a watched member has used."""
        return self._detector.silence.highest_ratio(now)

    def _transition(self, member: MemberId, event: TrustEvent) -> None:
        """Change the trust in a member as the table says, and drop what is known only of the state that ends."""
        trust = TRUST_CHANGES.next(self.trust_in(member), event, member=member)
        if trust is Trust.GONE:
            del self._trust[member]
        else:
            self._trust[member] = trust
        if trust is not Trust.QUESTIONED:
            self._questioned.pop(member, None)
        if trust is not Trust.SUSPECTED:
            self.suspected.pop(member, None)

    # --- whom ------------------------------------------------------------------------------------------------------

    def watch(self, members: Collection[MemberId], watched: Collection[MemberId], now: Millis) -> None:
        """Judge the other members of this view; expect heartbeats of exactly the watched ones."""
        others = frozenset(members) - {self._this}
        for gone in sorted(self._trust.keys() - others):
            self._transition(gone, TrustEvent.OUT_OF_VIEW)
            self._evidence.note_reached(gone)
            self._answered.pop(gone, None)
            self.deserted.discard(gone)
        for new in sorted(others - self._trust.keys()):
            self._transition(new, TrustEvent.IN_VIEW)
        for gone in sorted(self._watched - frozenset(watched)):
            self._detector.forget(gone)
        for member in watched:
            self._detector.watch(member, now)
        self._watched = frozenset(watched)

    def expect_confirmations(self, members: Collection[MemberId], timeout_ms: Millis, now: Millis) -> None:
        """Expect these members to confirm this master; on a slave of a large cluster: expect the master to answer."""
        self._confirmations.expect(members, timeout_ms, now)

    def question(self, member: MemberId, now: Millis) -> bool:
        """Return whether to ask a member if it lives: it is not suspected, not watched here, and not being asked already."""
        if self.trust_in(member) is not Trust.TRUSTED or member in self._watched:
            return False
        # A member that has just proved its accuser wrong can pause like any other: 1. nothing of E reaches its watcher H, which
        # reports it for ever; 2. the master asks, and E answers; 3. E pauses for three seconds.
        timeout_ms = self._config.heartbeat_timeout_ms
        answered = self._answered.get(member)
        is_accused_wrongly = answered is not None and now - answered < 2 * timeout_ms
        patience_ms = max(timeout_ms if is_accused_wrongly else 0, 2 * self._interval_ms)
        self._transition(member, TrustEvent.REPORT)
        self._questioned[member] = now + patience_ms, patience_ms
        return True

    def _take_answer(self, member: MemberId, now: Millis) -> None:
        if self.trust_in(member) is Trust.QUESTIONED:
            self._transition(member, TrustEvent.LIFE)
            self._answered[member] = now

    def is_questioned(self, member: MemberId) -> bool:
        """Return whether the member has been asked if it lives, and can still answer."""
        return self.trust_in(member) is Trust.QUESTIONED

    def is_in_doubt(self, member: MemberId, now: Millis) -> bool:
        """Return whether the member can be dead, and it will soon be known: it has to answer, or should have been heard
        since.
        """
        if self.trust_in(member) in (Trust.SUSPECTED, Trust.QUESTIONED):
            return True
        return member in self._watched and not self._detector.silence.was_heard(member, 2 * self._interval_ms, now)

    # --- signs of life ---------------------------------------------------------------------------------------------

    def note_alive(self, member: MemberId, now: Millis, rule: str) -> None:
        """Note that the member is alive by its own word: a heartbeat, or a list from the master."""
        self._detector.heartbeat(member, now)
        self._evidence.note_reached(member)
        self.deserted.discard(member)
        self._take_answer(member, now)
        if self.trust_in(member) is Trust.SUSPECTED:
            self._transition(member, TrustEvent.LIFE)
            self._out.record(SuspicionRemoved(member, rule))

    def note_confirmation(self, member: MemberId, now: Millis) -> None:
        """Note that the member has confirmed this master."""
        self._confirmations.note(member, now)
        self._take_answer(member, now)

    # --- connections -----------------------------------------------------------------------------------------------

    def connection_refused(self, member: MemberId, refusal: LinkRefused, now: Millis) -> None:
        if self.trust_in(member) in (Trust.TRUSTED, Trust.QUESTIONED):
            self._evidence.note_refused(member, now, is_deserted=refusal.is_deserted, is_same_host=refusal.is_same_host)
            (self.deserted.add if refusal.is_deserted else self.deserted.discard)(member)

    def connection_open(self, member: MemberId) -> None:
        self._evidence.note_reached(member)
        self.deserted.discard(member)

    def to_reconnect(self, now: Millis) -> list[MemberId]:
        """Return the members whose refused connection should be tried again now."""
        return [member for member in self._evidence.to_retry(now) if member not in self.suspected]

    # --- verdicts --------------------------------------------------------------------------------------------------

    def suspect(self, member: MemberId, reason: str, rule: str, silent_ms: Millis | None = None) -> bool:
        """Suspect a member of the view. Return whether that is new. `silent_ms`: how long it gave no sign of life, if known."""
        if self.trust_in(member) not in (Trust.TRUSTED, Trust.QUESTIONED):
            return False
        self._transition(member, TrustEvent.SILENCE)
        self._evidence.note_reached(member)
        self.suspected[member] = reason
        self._out.record(MemberSuspected(member, reason, rule, silent_ms))
        return True

    def review(self, now: Millis, *, is_master: bool = False) -> list[MemberId]:
        """Suspect the members that are due. Return them in the order in which they were found."""
        if self._due and now - self._due > self._interval_ms:
            self._was_away(now - self._due, now)
        self._due = 0
        silent = self._detector.silent(now)
        if is_master and silent and self._waits_for_others(now):
            silent = []
        found: list[tuple[MemberId, str, str, Millis | None]] = []
        found += [(member, reason, "CS-33 silence", ms) for member, ms, reason in silent]
        found += [(member, reason, "CS-33 connection", ms) for member, ms, reason in self._evidence.unreachable(now)]
        found += [(member, reason, "CS-29", ms) for member, ms, reason in self._confirmations.missing(now)]
        if self._questioned:
            asked = [(member, patience) for member, (until, patience) in self._questioned.items() if until <= now]
            waited = "another member suspects it, and it did not answer within {} ms"
            found += [(member, waited.format(patience), "EL-45", None) for member, patience in asked]
        return [member for member, reason, rule, ms in found if self.suspect(member, reason, rule, ms)]

    def _waits_for_others(self, now: Millis) -> bool:
        """Return whether a master is to wait, for one interval at most, for the verdicts on others that are late as
        well.

        1. Nothing reaches the master A any more. 2. It misses B, C and D within one interval. 3. If it removed and
        published one after another, B would have the list [A,B], C [A,B,C] and D [A,B,C,D], and each would continue
        alone; if it removes them together, none of them hears of it, and B, C and D continue together.
        """
        if self._together_at is None:
            self._together_at = now + self._interval_ms
        if now < self._together_at and self._detector.silence.is_late(2 * self._interval_ms, now):
            return True
        self._together_at = None
        return False

    def _was_away(self, missed_ms: Millis, now: Millis) -> None:
        """Shift all times by the time in which this member itself did not run: it distrusts itself first."""
        self._detector.observer_was_away(missed_ms, now)
        self._evidence.observer_was_away(missed_ms)
        self._confirmations.observer_was_away(missed_ms, now)
        for member, (until, patience_ms) in self._questioned.items():
            self._questioned[member] = until + missed_ms, patience_ms

    def note_deadline(self, due: Millis) -> None:
        """Note that the driver is asked now to come back at `due`, for the next `review`."""
        self._due = due

    def next_deadline(self, next_tick: Millis) -> Millis:
        """Return when it is time for a `review` at the latest, given the member's next regular tick."""
        due = next_tick
        silence, confirmations = self._detector.silence, self._confirmations
        parts = (self._evidence.next_deadline(), silence.next_deadline(), confirmations.next_deadline())
        for deadline in parts:
            if deadline is not None and deadline < due:
                due = deadline
        for until, _ in self._questioned.values():
            due = min(due, until)
        if self._together_at is not None:
            due = min(due, self._together_at)
        return due
