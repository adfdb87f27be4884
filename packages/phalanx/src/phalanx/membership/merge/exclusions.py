"""Others went on without this member: it comes back to them, or goes on without them (docs/protocol/divergence.md)."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.incarnation import Incarnation
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import ClaimAnswer, ExplicitSuspicion, Heartbeat, MergeOrder
from phalanx.wire.suspicion_events import StaleMessageIgnored

DIVERGED = "it said that our views have diverged"


class Exclusions:
    """Acts on messages of members that went on without this one, or ask to be suspected."""

    def __init__(
        self, local: LocalContext, state: MembershipState, suspicions: Suspicions, incarnation: Incarnation
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._suspicions = suspicions
        self._incarnation = incarnation

    def next_deadline(self) -> Millis | None:
        return self._state.exclusion.decide_at if self._state.exclusion is not None else None

    def on_explicit_suspicion(self, sender: MemberId, message: ExplicitSuspicion, now: Millis) -> list[MemberId]:
        """Suspect the sender, as it asks, or follow it. Return the members that are suspected because of it."""
        state = self._state
        view = state.view
        if view is None or sender not in state.members or state.role is Role.HANDING_OVER:
            return []
        if (message.about_version, message.about_maker) != (view.version, view.maker):
            self._local.out.record(StaleMessageIgnored(sender, "explicit suspicion about an earlier view", "A.6-21"))
            return []
        theirs = message.view
        if message.come_back and sender == state.master and theirs is not None and self._local.this not in theirs:
            self._incarnation.eject(sender, theirs, "PD-24 removed because others cannot be reached from here")
            return []
        if theirs is not None and theirs.members and self._local.this not in theirs and theirs.master in state.members:
            return self.on_excluded(sender, theirs, now)
        return [sender] if self._suspicions.suspect(sender, DIVERGED, "CS-40") else []

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> list[MemberId] | None:
        """Note that a member that was asked to agree went on without this one. Return as `decide`; None: it did not."""
        state = self._state
        if sender in state.members and message.view is not None and self._local.this not in message.view:
            return self.on_excluded(sender, message.view, now)
        return None

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Note that a member speaks to this one as to a member of its view."""
        if self._state.exclusion is not None:
            self._state.exclusion.add_speaker(sender)

    def on_excluded(self, sender: MemberId, view: MembersView, now: Millis) -> list[MemberId]:
        """Note that the sender went on without this member, and decide."""
        self._state.exclude(sender, view, now + 2 * self._local.config.heartbeat_interval_ms)
        return self.decide(now)

    def decide(self, now: Millis) -> list[MemberId]:
        """Rejoin the members that went on without this one if their side is larger, else suspect them. Return those
        suspected.
        """
        state = self._state
        exclusion = state.exclusion
        if exclusion is None:
            return []
        suspected = self._suspicions.suspected
        unsuspected = [m for m in state.joined().members if m not in suspected or m in exclusion.senders]
        followed = exclusion.to_follow(unsuspected, now)
        if followed is not None:
            self._incarnation.eject(*followed, "CS-42 others went on without this member")
        elif now >= exclusion.decide_at:
            state.stay()
            return [m for m in exclusion.senders if self._suspicions.suspect(m, DIVERGED, "CS-40")]
        return []

    def on_merge_order(self, sender: MemberId, message: MergeOrder, now: Millis) -> None:
        """Come back to another side, because this member's master has decided that its side joins it."""
        state = self._state
        if state.view is None or sender != state.master or self._local.this in message.into:
            return
        self._incarnation.eject(sender, message.into, "EL-60 this side joins another one")
