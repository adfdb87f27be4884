"""What follows from suspicions: removal on the master, elsewhere a claim or a report. A claim waits for an exclusion."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.claim.succession import Succession
from phalanx.membership.merge.exclusions import Exclusions
from phalanx.membership.outgoing import Heartbeats
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.views.removals import Removals
from phalanx.membership.views.stopping import Stopping
from phalanx.wire.messages import ClaimAnswer, ExplicitSuspicion


class SuspicionHandling:
    """Acts on the suspects that failure detectors and messages named."""

    def __init__(
        self,
        state: MembershipState,
        removals: Removals,
        stopping: Stopping,
        succession: Succession,
        heartbeats: Heartbeats,
    ) -> None:
        self._state = state
        self._removals = removals
        self._stopping = stopping
        self._succession = succession
        self._heartbeats = heartbeats

    def act_on(self, suspects: list[MemberId], now: Millis) -> None:
        """Act on new suspicions: the master removes; a slave claims where it suspects every older member, and reports."""
        state = self._state
        if not suspects or state.view is None:
            return
        if state.is_master:
            if not self._stopping.ends_instead(suspects):
                self._removals.remove(suspects, "CS-35", now)
        elif state.role in (Role.SLAVE, Role.CLAIMING):
            self._succession.leave_out(suspects, now)
            self._heartbeats.report_suspects()


class ExclusionHandling:
    """Acts on what is decided of members that went on without this one."""

    def __init__(
        self, state: MembershipState, exclusions: Exclusions, succession: Succession, suspicions: SuspicionHandling
    ) -> None:
        self._state = state
        self._exclusions = exclusions
        self._succession = succession
        self._suspicions = suspicions

    def decide(self, now: Millis) -> None:
        """Follow those that went on without this member, if there are any, or go on without them; a claim waits for that."""
        if self._state.exclusion is None:
            return
        self._suspicions.act_on(self._exclusions.decide(now), now)
        if self._state.exclusion is None and self._state.view is not None:
            self._succession.advance(now)

    def on_explicit_suspicion(self, sender: MemberId, message: ExplicitSuspicion, now: Millis) -> None:
        self._follow_word(self._exclusions.on_explicit_suspicion(sender, message, now), now)

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> None:
        """Take the answer to this member's claim, unless the sender went on without it."""
        if self._state.role is not Role.CLAIMING:
            return
        suspects = self._exclusions.on_claim_answer(sender, message, now)
        if suspects is None:
            self._succession.on_claim_answer(sender, message, now)
        else:
            self._follow_word(suspects, now)

    def _follow_word(self, suspects: list[MemberId], now: Millis) -> None:
        """Act on suspects that a message named: that can also have decided an exclusion."""
        self._suspicions.act_on(suspects, now)
        if self._state.view is not None:
            self._succession.advance(now)
