"""How the mastership passes on: when to claim it, with whose claim to agree, and whose list to take (docs/protocol/mastership.md).

A slave claims when it suspects every older member, and never while one is left that it does not suspect. It agrees with
an older claimer under the same condition; else the claimer asks again. Once it has agreed it takes no list but the
claimer's, or one of a member that may have come after the claimer.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.inputs import LinkRefused
from phalanx.membership.claim.mastership_claim import Claim
from phalanx.membership.outgoing import question, send_view
from phalanx.membership.role import Role, RoleTurn
from phalanx.membership.state import MembershipState
from phalanx.membership.view_installation import expect_confirmations, install_view
from phalanx.wire import events
from phalanx.wire.messages import ClaimAnswer, MastershipClaim, MembersUpdate


class Succession:
    """The claims of this member, and its answers to those of others."""

    def __init__(self, state: MembershipState) -> None:
        self._state = state
        self._out = state.out
        self.claim: Claim | None = None
        self._claims_made = 0
        self._claim_started = 0

    def __repr__(self) -> str:
        return f"Succession({self.claim})"

    def next_deadline(self) -> Millis | None:
        """Return when somebody is asked again, or the claim ends: never while it is open who are the many."""
        if self.claim is None:
            return None
        return self.claim.next_deadline() if self._state.exclusion is None else self.claim.next_question()

    def on_time(self, now: Millis) -> None:
        if self.claim is not None:
            self.claim.ask_again(now)
            self.end_if_over(now)

    def go_on(self, now: Millis) -> None:
        """Claim, or end the claim, if that is due: there is another view, or it is clear who are the many."""
        self.claim_if_due(now)
        self.end_if_over(now)

    # --- this member's claim ---------------------------------------------------------------------------------------

    def claim_if_due(self, now: Millis) -> None:
        """Claim when every older member is suspected."""
        state = self._state
        if state.role is not Role.SLAVE or state.exclusion is not None:
            return
        view = state.joined()
        if all(older in state.suspicions.suspected for older in view.older_than(state.this)):
            self._start(view, now)

    def _start(self, view: MembersView, now: Millis) -> None:
        state = self._state
        self._claims_made += 1
        self._claim_started = now
        state.follow(state.this, RoleTurn.CLAIMS)
        timing = (now + state.config.claim_timeout_ms, state.config.retry_interval_ms)
        self.claim = Claim(state.this, self._claims_made, view, timing, self._out)
        suspected = tuple(state.suspicions.suspected)
        self._out.record(events.ClaimStarted(self._claims_made, view.version, suspected, "CS-53"))
        self.claim.ask_younger(view, suspected, now)
        self.end_if_over(now)

    def leave_out(self, suspects: Sequence[MemberId], now: Millis) -> None:
        """These are suspected now: the claim waits for them no more."""
        if self.claim is not None:
            for suspect in suspects:
                self.claim.leave_out(suspect)
        self.go_on(now)

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> None:
        if self.claim is not None:
            self.claim.on_answer(sender, message, self._state.suspicions.suspected, now)
            self.end_if_over(now)

    def on_refused(self, event: LinkRefused, now: Millis) -> None:
        """Note that a member outside this member's list cannot be reached; only the claim watches it."""
        if self.claim is not None:
            self.claim.on_refused(MemberId(event.peer), self._state.config.connection_grace_ms, now)
            self.end_if_over(now)

    def end_if_over(self, now: Millis) -> None:
        state, claim = self._state, self.claim
        if claim is None or state.exclusion is not None or not claim.is_over(now):
            return
        self.claim = None
        state.follow(state.this, RoleTurn.WINS)
        view = claim.final_view()
        took_ms = now - self._claim_started
        self._out.record(
            events.ClaimEnded(claim.claim_id, "this member is the master", claim.left_out(), took_ms, "CS-63 CS-65")
        )
        state.gone.leave_out(claim.seen(), view, state.members, now)
        state.lease.reign((), now, claim.promised_until(view.members), inherits=False)
        state.quorum.goes_on_alone()
        for member, memory in claim.memories(view.members):
            state.quorum.told(member, memory)
        if state.quorum.left:
            state.lease.await_grants(now)
        install_view(state, view, "CS-66 mastership claimed", now)
        send_view(state, view)

    # --- claims of others ------------------------------------------------------------------------------------------

    def on_mastership_claim(self, sender: MemberId, message: MastershipClaim, now: Millis) -> None:
        state = self._state
        view = state.view
        if view is None:
            if state.role is Role.JOINING:
                self._out.send(sender, ClaimAnswer(message.claim_id, False, None, is_joining=True))
            return
        if sender not in state.members or sender not in view.older_than(state.this):
            if state.is_master:
                # The claimer took too long: others have gone on without it, under this member.
                self._out.send(sender, ClaimAnswer(message.claim_id, False, view))
            return
        suspicions = state.suspicions
        suspicions.heard(sender, now, "CS-52 a claim is a sign of life")
        not_suspected = tuple(member for member in view.older_than(sender) if member not in suspicions.suspected)
        agrees = not not_suspected
        if agrees:
            self.claim = None
            state.follow(sender, RoleTurn.AGREES)
            expect_confirmations(state, now)
        else:
            question(state, not_suspected, sender, now)
        self._out.record(events.ClaimAnswered(sender, agrees, not_suspected, "CS-57" if agrees else "CS-58"))
        memory, bound_ms = (state.quorum.memory(sender), state.lease.bound_ms(now)) if agrees else (None, 0)
        self._out.send(sender, ClaimAnswer(message.claim_id, agrees, view if agrees else None, False, memory, bound_ms))

    # --- lists of others -------------------------------------------------------------------------------------------

    def may_follow(self, sender: MemberId, update: MembersView) -> bool | None:
        """Whether the list of a member that is not this one's master is its next master's; None: perhaps, later."""
        state = self._state
        view = state.joined()
        if state.master is None or not may_succeed(sender, update, view, state.master, state.this):
            return False
        if any(older not in state.suspicions.suspected for older in view.older_than(sender)):
            # It repeats its list as long as this member's is older.
            return None
        return True

    def take_over(self, sender: MemberId, message: MembersUpdate, now: Millis) -> bool:
        """Whether a list is the last one of a master that leaves, which hands the mastership over to this member.

        This member has claimed it meanwhile, because it suspects that master. The claim goes on, or its list stays, with the
        votes that the master has left it.
        """
        state = self._state
        view, footing = message.view, message.footing
        if state.role not in (Role.CLAIMING, Role.MASTER) or footing is None or not footing.left:
            return False
        if view.maker != sender or view.master != state.this:
            return False
        if state.role is Role.CLAIMING:
            state.quorum.take_votes(footing)
        elif not state.quorum.is_stable and state.quorum.take_votes(footing):
            # Who has the present list was told that it lacks the majority, and may count with others by now.
            state.lease.await_grants(now)
            new = state.joined().with_change(state.this, frozenset(), ())
            install_view(state, new, "EL-63 votes of those that left", now)
            send_view(state, new)
        return True

    def end(self) -> None:
        self.claim = None


def may_succeed(sender: MemberId, update: MembersView, view: MembersView, master: MemberId, this: MemberId) -> bool:
    """Return whether the sender may be the new master, although this member has not heard of its succession.

    The mastership passes to younger members only. A new master's list contains this member only if this member agreed with
    its claim, or if the mastership was handed over to it: then the message about the hand-over is still on its way.
    """
    order = view.members
    return (
        this in update
        and update.version > view.version
        and update.master == sender
        and sender in order
        and master in order
        and order.index(master) < order.index(sender) < order.index(this)
    )
