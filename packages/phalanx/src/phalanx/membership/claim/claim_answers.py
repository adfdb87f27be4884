"""Decide which claim of the mastership this member agrees with, and whose list it can follow
(docs/protocol/mastership.md).

It agrees with an older claimer if it suspects every member that is older than the claimer; otherwise the claimer asks
again. Once it has agreed, it takes only the claimer's list, or the list of a member that can have come after the
claimer.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.claim.succession import Succession
from phalanx.membership.peer_watch import PeerWatch
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import ClaimAnswer, MastershipClaim
from phalanx.wire.suspicion_events import ClaimAnswered


class ClaimAnswers:
    """Answers to the claims of others."""

    def __init__(self, local: LocalContext, state: MembershipState, succession: Succession, watch: PeerWatch) -> None:
        self._local = local
        self._state = state
        self._succession = succession
        self._watch = watch

    def on_mastership_claim(self, sender: MemberId, message: MastershipClaim, now: Millis) -> None:
        """Answer a claim: agree if the claimer is older and every member older than it is suspected here."""
        state = self._state
        view = state.view
        if view is None:
            if state.role is Role.JOINING:
                self._local.out.send(sender, ClaimAnswer(message.claim_id, False, None, is_joining=True))
            return
        if sender not in state.members or sender not in view.older_than(self._local.this):
            if state.is_master:
                # The claimer took too long: others have gone on without it, under this member.
                self._local.out.send(sender, ClaimAnswer(message.claim_id, False, view))
            return
        self._watch.note_alive(sender, now, "CS-52 a claim is a sign of life")
        not_suspected = self._watch.trusted_older_than(sender)
        agrees = not not_suspected
        memory, bound_ms = None, 0
        if agrees:
            memory, bound_ms = self._succession.agree(sender, now)
            self._watch.expect_confirmations(now)
        else:
            self._watch.question(not_suspected, sender, now)
        self._local.out.record(ClaimAnswered(sender, agrees, not_suspected, "CS-57" if agrees else "CS-58"))
        answer = ClaimAnswer(message.claim_id, agrees, view if agrees else None, False, memory, bound_ms)
        self._local.out.send(sender, answer)

    def may_follow(self, sender: MemberId, update: MembersView) -> bool | None:
        """Return whether the list of another member is this one's next master's; None: perhaps, later."""
        state = self._state
        view = state.joined()
        if state.master is None or not may_succeed(sender, update, view, state.master, self._local.this):
            return False
        if self._watch.trusted_older_than(sender):
            # It repeats its list as long as this member's is older.
            return None
        return True


def may_succeed(sender: MemberId, update: MembersView, view: MembersView, master: MemberId, this: MemberId) -> bool:
    """Return whether the sender can be the new master, although this member has not heard of its succession.

    The mastership passes to younger members only. A new master's list contains this member only if this member agreed
    with its claim, or if the mastership was handed over to it: then the message about the hand-over is still on its
    way.
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
