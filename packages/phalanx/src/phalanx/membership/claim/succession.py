"""When to claim the mastership (docs/protocol/mastership.md).

A slave claims when it suspects every older member, and never while one is left that it does not suspect.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import MemberId, Millis
from phalanx.common.quorum import VoterHistory
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkRefused
from phalanx.machine.local_context import LocalContext
from phalanx.membership.claim.accession import Accession
from phalanx.membership.claim.mastership_claim import Claim
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.role import Role, RoleEvent
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import ClaimAnswer
from phalanx.wire.suspicion_events import ClaimEnded, ClaimStarted


class Succession:
    """The claims of this member."""

    def __init__(
        self, local: LocalContext, state: MembershipState, suspicions: Suspicions, accession: Accession
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._suspicions = suspicions
        self._accession = accession
        self.claim: Claim | None = None
        self._claims_made = 0
        self._claim_started = 0

    def __repr__(self) -> str:
        return f"Succession({self.claim})"

    def next_deadline(self) -> Millis | None:
        """Return when a member is asked again, or the claim ends. It never ends while an exclusion is undecided."""
        if self.claim is None:
            return None
        return self.claim.next_deadline() if self._state.exclusion is None else self.claim.next_question()

    def on_time(self, now: Millis) -> None:
        if self.claim is not None:
            self.claim.ask_again(now)
            self.end_if_over(now)

    def advance(self, now: Millis) -> None:
        """Begin or end a claim, if that is due: the view has changed, or an exclusion is decided."""
        self.claim_if_due(now)
        self.end_if_over(now)

    def claim_if_due(self, now: Millis) -> None:
        """Claim when every older member is suspected."""
        state = self._state
        if state.role is not Role.SLAVE or state.exclusion is not None:
            return
        view = state.joined()
        if all(older in self._suspicions.suspected for older in view.older_than(self._local.this)):
            self._start(view, now)

    def _start(self, view: MembersView, now: Millis) -> None:
        state = self._state
        self._claims_made += 1
        self._claim_started = now
        state.follow(self._local.this, RoleEvent.CLAIMS)
        timing = (now + self._local.config.claim_timeout_ms, self._local.config.retry_interval_ms)
        self.claim = Claim(self._local, self._claims_made, view, timing)
        suspected = tuple(self._suspicions.suspected)
        self._local.out.record(ClaimStarted(self._claims_made, view.version, suspected, "CS-53"))
        self.claim.ask_younger(view, suspected, now)
        self.end_if_over(now)

    def leave_out(self, suspects: Sequence[MemberId], now: Millis) -> None:
        """Stop waiting in the claim for these members, because they are suspected now."""
        if self.claim is not None:
            for suspect in suspects:
                self.claim.leave_out(suspect)
        self.advance(now)

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> None:
        if self.claim is not None:
            self.claim.on_answer(sender, message, self._suspicions.suspected, now)
            self.end_if_over(now)

    def on_refused(self, event: LinkRefused, now: Millis) -> None:
        """Note that a member outside this member's list cannot be reached; only the claim watches it."""
        if self.claim is not None:
            self.claim.on_refused(MemberId(event.peer), self._local.config.connection_grace_ms, now)
            self.end_if_over(now)

    def end_if_over(self, now: Millis) -> None:
        state, claim = self._state, self.claim
        if claim is None or state.exclusion is not None or not claim.is_over(now):
            return
        self.claim = None
        state.follow(self._local.this, RoleEvent.WINS)
        view = claim.final_view()
        took_ms = now - self._claim_started
        self._local.out.record(
            ClaimEnded(claim.claim_id, "this member is the master", claim.left_out(), took_ms, "CS-63 CS-65")
        )
        self._accession.win(claim, view, now)

    def agree(self, claimer: MemberId, now: Millis) -> tuple[VoterHistory | None, Millis]:
        """Follow an older claimer, and give up a claim. Return as `Accession.agree`."""
        self.claim = None
        return self._accession.agree(claimer, now)

    def end(self) -> None:
        self.claim = None
