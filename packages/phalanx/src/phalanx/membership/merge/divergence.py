"""Views that diverged (docs/protocol/divergence.md): how a partial split becomes a full one, at once.

An explicit suspicion asks its receiver to assume that the sender is dead, and to continue without it. It is sent in
five cases, and by a master as the answer to a complaint. It names the receiver's view that it is about, so that a late
one splits nothing:

1. a master gets a confirmation from a member that is not in its list,
2. a master gets a heartbeat from such a member,
3. a member gets a list from a member that is not its master,
4. a joiner gets the answer to a join request from a member that is not the master of that list,
5. a member gets a newer list with members in another order of age than in its own.

A slave that gets a heartbeat from a stranger only complains to its master.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis, may_be_member
from phalanx.common.invariant import known
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.outgoing import ViewPublisher
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import (
    Complaint,
    Heartbeat,
    JoinResponse,
    LifeProbe,
    MasterConfirmation,
    MembersUpdate,
)
from phalanx.wire.suspicion_events import ComplaintJudged, ComplaintSent, StaleMessageIgnored


class Divergence:
    """Sends explicit suspicions to members whose views diverged from this one's."""

    def __init__(
        self, local: LocalContext, state: MembershipState, suspicions: Suspicions, publisher: ViewPublisher
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._suspicions = suspicions
        self._publisher = publisher

    def on_stranger(self, sender: MemberId, message: Heartbeat | LifeProbe) -> None:
        """Answer, as the master, a heartbeat of a member that is not in this one's list; complain as a slave."""
        state = self._state
        if state.is_master:
            self._publisher.send_explicit_suspicion(sender, message.view_version, message.view_maker,
                                "told a member that is not in the list to go its own way", "CS-44")  # fmt: skip
        elif state.role is Role.SLAVE and state.master not in self._suspicions.suspected:
            view, master = state.joined(), known(state.master, "a slave has a master")
            self._local.out.record(ComplaintSent(sender, master, "CS-48"))
            complaint = Complaint(view.version, view.maker, sender, message.view_version, message.view_maker)
            self._local.out.send(master, complaint)

    def on_stranger_confirmation(self, sender: MemberId, message: MasterConfirmation) -> None:
        """Send a slave of this master that is not in its list an explicit suspicion (CS-42; case 1)."""
        what = "told a member that is not in the list to go its own way"
        self._publisher.send_explicit_suspicion(sender, message.view_version, message.view_maker, what, "CS-43")

    def on_complaint(self, sender: MemberId, message: Complaint) -> None:
        """Send an explicit suspicion to each of the two that is not in this member's list (CS-49)."""
        state = self._state
        if not state.is_master or not may_be_member(message.complainee):
            return
        receivers: list[MemberId] = []
        if sender not in state.members:
            receivers.append(sender)
            self._tell(sender, message.view_version, message.view_maker)
        if message.complainee not in state.members:
            receivers.append(message.complainee)
            self._tell(message.complainee, message.complainee_version, message.complainee_maker)
        self._local.out.record(ComplaintJudged(sender, message.complainee, tuple(receivers), "CS-49"))
        if not receivers:
            # Both are members: the complainer has an old list.
            self._local.out.send(sender, self._publisher.members_update())

    def _tell(self, peer: MemberId, version: int, maker: MemberId) -> None:
        self._publisher.send_explicit_suspicion(peer, version, maker, "answered a complaint", "CS-49")

    def on_foreign_list(self, sender: MemberId, message: MembersUpdate | JoinResponse, now: Millis) -> None:
        """Tell a member that sent a list that it is not this one's master, and cannot have become it (case 3)."""
        view = message.view
        self._publisher.send_explicit_suspicion(
            sender, view.version, view.maker, "told a member that is not our master so", "CS-45"
        )

    def on_other_history(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """Answer a newer list with another order of age than this member's: it was made in another history of lists.

        1. Master A is paused; C and D have asked it and B to admit them. 2. B claims, and admits D, then C. 3. A wakes,
        and admits C, then D; its answers come first, so C and D are in its list, and in B's too. 4. A is lost. C
        suspects it, and B is the next master by C's list. 5. If C took B's list, D would be older than C there, and
        younger for others that are still in A's list: two members could each expect the other to claim first.
        """
        view = message.view
        self._publisher.send_explicit_suspicion(
            sender, view.version, view.maker, "told a master of another history so", "PX-32"
        )

    def check_admission(self, sender: MemberId, message: JoinResponse, now: Millis, *, is_expected: bool) -> bool:
        """Check the answer to a join request, and tell an invalid master (case 4). Return whether this member joins by it."""
        state, view = self._state, message.view
        if self._local.this not in view:
            return False
        if state.role is Role.JOINING and sender != view.master:
            self._publisher.send_explicit_suspicion(
                sender, view.version, view.maker, "told an invalid master so", "CS-46"
            )
        elif state.role is Role.JOINING and is_expected:
            return True
        elif state.view is not None and sender not in (state.master, state.view.maker):
            # Two clusters have admitted this member: it is in the one that answered first.
            self.on_foreign_list(sender, message, now)
        else:
            self._local.out.record(StaleMessageIgnored(sender, "answer to an earlier join request", "EL-12"))
        return False
