"""Views that went apart (docs/protocol/divergence.md): how a partial split becomes a full one, at once.

Explicit suspicion says: assume that I am dead, and go your own way. It is sent in five cases, and by a master as the
answer to a complaint; it names the receiver's view that it is about, so that one which is late splits nobody:

1. a master gets a confirmation from somebody who is not in its list (`administration`),
2. a master gets a heartbeat from such a one,
3. a member gets a list from a member that is not its master,
4. a member that has not joined gets the answer to a join request from somebody who is not the master of that list,
5. a member gets a newer list with members in another order of age than they have in its own.

A slave that gets a heartbeat from a stranger only complains to its master.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import known
from phalanx.common.view import MembersView
from phalanx.membership.incarnation_end import eject
from phalanx.membership.outgoing import tell_diverged
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire import events
from phalanx.wire.messages import (
    ClaimAnswer,
    Complaint,
    ExplicitSuspicion,
    Heartbeat,
    JoinResponse,
    LifeProbe,
)

SAID = "it said that our views have diverged"


class Divergence:
    """Send `ViewsDiverged` to members whose views went apart from this one's, and act on those that arrive."""

    def __init__(self, state: MembershipState) -> None:
        self._state = state
        self._out = state.out

    def next_deadline(self) -> Millis | None:
        return self._state.exclusion.decide_at if self._state.exclusion is not None else None

    # --- saying it -------------------------------------------------------------------------------------------------

    def on_stranger(self, sender: MemberId, message: Heartbeat | LifeProbe) -> None:
        """A heartbeat from somebody who is not in this member's list: the master answers it, a slave complains."""
        state = self._state
        if state.is_master:
            tell_diverged(state, sender, message.view_version, message.view_maker,
                                "told a member that is not in the list to go its own way", "CS-44")  # fmt: skip
        elif state.role is Role.SLAVE and state.master not in state.suspicions.suspected:
            view, master = state.joined(), known(state.master, "a slave has a master")
            self._out.record(events.ComplaintSent(sender, master, "CS-48"))
            complaint = Complaint(view.version, view.maker, sender, message.view_version, message.view_maker)
            self._out.send(master, complaint)

    def on_foreign_list(self, sender: MemberId, view: MembersView) -> None:
        """Case 3: a list from a member that is not this one's master, and cannot have become it."""
        tell_diverged(self._state, sender, view.version, view.maker, "told a member that is not our master so", "CS-45")

    def on_other_history(self, sender: MemberId, view: MembersView) -> None:
        """A newer list, by which other members are older than by this one's: it was made in another history of lists.

        1. Master A is paused; C and D have asked it and B to admit them. 2. B claims, and admits D, then C. 3. A wakes, and
        admits C, then D; its answers come first, so C and D are in its list, and in B's too. 4. A is lost. C suspects it, and
        B is the next master by C's list. 5. Had C taken B's list, D would be older than C there, and younger for others that
        are in A's list still: two members could each take the other for the one that has to claim first.
        """
        tell_diverged(self._state, sender, view.version, view.maker, "told a master of another history so", "PX-32")

    def is_admission(self, sender: MemberId, message: JoinResponse, *, is_expected: bool) -> bool:
        """Whether an answer to a join request lets this member join. Case 4: an invalid master is told."""
        state, view = self._state, message.view
        if state.this not in view:
            return False
        if state.role is Role.JOINING and sender != view.master:
            tell_diverged(state, sender, view.version, view.maker, "told an invalid master so", "CS-46")
        elif state.role is Role.JOINING and is_expected:
            return True
        elif state.view is not None and sender not in (state.master, state.view.maker):
            # Two clusters have admitted this member: it is in the one that answered first.
            self.on_foreign_list(sender, view)
        else:
            self._out.record(events.StaleMessageIgnored(sender, "answer to an earlier join request", "EL-12"))
        return False

    # --- being told ------------------------------------------------------------------------------------------------

    def on_explicit_suspicion(self, sender: MemberId, message: ExplicitSuspicion, now: Millis) -> list[MemberId]:
        """The sender wants to be suspected. Returns who is suspected because of it."""
        state = self._state
        view = state.view
        if view is None or sender not in state.members or state.role is Role.HANDING_OVER:
            return []
        if (message.about_version, message.about_maker) != (view.version, view.maker):
            self._out.record(events.StaleMessageIgnored(sender, "explicit suspicion about an earlier view", "A.6-21"))
            return []
        theirs = message.view
        if message.come_back and sender == state.master and theirs is not None and state.this not in theirs:
            eject(state, sender, theirs, "PD-24 removed because others cannot be reached from here")
            return []
        if theirs is not None and theirs.members and state.this not in theirs and theirs.master in state.members:
            return self.part(sender, theirs, now)
        return [sender] if state.suspicions.suspect(sender, SAID, "CS-40") else []

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> list[MemberId] | None:
        """A member that was asked to agree says that it went on without this one; None: it does not say that."""
        state = self._state
        if sender in state.members and message.view is not None and state.this not in message.view:
            return self.part(sender, message.view, now)
        return None

    def heard(self, member: MemberId) -> None:
        if self._state.exclusion is not None:
            self._state.exclusion.heard(member)

    def part(self, sender: MemberId, view: MembersView, now: Millis) -> list[MemberId]:
        """The sender went on without this member."""
        self._state.exclude(sender, view, now + 2 * self._state.config.heartbeat_interval_ms)
        return self.decide(now)

    def decide(self, now: Millis) -> list[MemberId]:
        """Rejoin the members that went on without this one if their side is larger; else suspect them. Return those suspected."""
        state = self._state
        parting = state.exclusion
        if parting is None:
            return []
        suspected = state.suspicions.suspected
        unsuspected = [m for m in state.joined().members if m not in suspected or m in parting.told_by]
        followed = parting.to_follow(unsuspected, now)
        if followed is not None:
            eject(state, *followed, "CS-42 others went on without this member")
        elif now >= parting.decide_at:
            state.stay()
            return [m for m in parting.told_by if state.suspicions.suspect(m, SAID, "CS-40")]
        return []
