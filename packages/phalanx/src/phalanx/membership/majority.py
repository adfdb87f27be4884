"""Whether this member's side has the majority: which members have which view, and the leases that depend on it (`quorum`)."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.quorum import QuorumHandover, QuorumRecord, VoterHistory
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.quorum.quorum_state import QuorumState
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.view_change import ViewChange
from phalanx.wire.messages import Heartbeat, LeaseGrant, LeaseRequest, MasterConfirmation, ViewIsStable


class Majority:
    """The quorum state and the lease of one member, and the messages about them."""

    def __init__(
        self, local: LocalContext, state: MembershipState, suspicions: Suspicions, quorum: QuorumState
    ) -> None:  # fmt: skip
        self._this = local.this
        self._out = local.out
        self._has_folder = local.has_folder
        self._state = state
        self._suspicions = suspicions
        self.quorum = quorum
        self.lease = state.lease

    def __repr__(self) -> str:
        return f"Majority({self.quorum}, {self.lease})"

    # --- what others ask -------------------------------------------------------------------------------------------

    def may_acknowledge(self, now: Millis) -> bool:
        """Return whether an owner can acknowledge operations on maps that need the majority; asked for each of them."""
        return self.quorum.has_majority and (not self.lease.lease_ms or now < self.lease.until)

    def majority_words(self) -> str:
        """Say in words which majority is needed and how much of it is here, for a caller that is refused."""
        if self.quorum.has_majority:
            return f"it is there, but this member's lease of {self.lease.lease_ms} ms is over or has yet to be granted"
        return self.quorum.words()

    @property
    def holds_until(self) -> Millis:
        """On the master: until when replicas of members that are gone are not assigned to others. `NEVER`: until a
        member confirms the present view, or that is replaced.

        1. A, the master, removes C. B never hears of it, and claims with C: they are the majority, too. 2. C continues
        as the owner that it was, under the new master. 3. If A had made itself the owner meanwhile, its lease would
        rest on what B echoed before, and it would confirm writes that C never had.

        With folders, also where there are no leases: 1. A removes C, and makes itself the owner of what C owned. 2. It acknowledges
        writes, and the power fails before B's disk has that list. 3. By their folders B and C are the majority, and go on with what C had.
        """
        can_wait = self.lease.lease_ms or self._has_folder
        if can_wait and self.quorum.has_majority and not self.quorum.is_removal_committed:
            return NEVER
        return self.lease.holds_until

    @property
    def tells_stable(self) -> bool:
        """Whether this member is the master, and all voters of its view are known to have it."""
        return self._state.is_master and self.quorum.is_stable

    # --- views -----------------------------------------------------------------------------------------------------

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Compute the footing of a view that was installed, as its master, or take it from its master."""
        state, view = self._state, change.view
        if change.told is None:
            self.quorum.on_view_made(view)
        else:
            self.quorum.adopt(view, change.told.footing, is_master=state.is_master)
        if state.is_master:
            self.lease.keep_only(state.members)
            self.renew(now)

    def win(
        self, memories: Iterable[tuple[MemberId, VoterHistory | None]], promised_until: Millis, now: Millis
    ) -> None:
        """Take over the memories of the members that agreed with this one's claim, and wait for the end of their promises."""
        self.lease.become_master((), now, promised_until, inherits=False)
        self.quorum.on_master_lost()
        for member, memory in memories:
            self.quorum.learn_history(member, memory)
        if self.quorum.left:
            self.lease.await_grants(now)

    def succeed(self, view: MembersView, now: Millis) -> None:
        """Take over the mastership by the last view of a master that leaves."""
        self.lease.become_master(view.others(self._this), now, 0, inherits=True)

    def take_votes(self, footing: QuorumRecord, now: Millis) -> bool:
        """Take the votes that a master has left to this member, which has claimed. Return whether to publish a view
        with them.
        """
        if self._state.role is Role.CLAIMING:
            self.quorum.take_votes(footing)
            return False
        if self.quorum.is_stable or not self.quorum.take_votes(footing):
            return False
        self.lease.await_grants(now)
        return True

    def promise(self, claimer: MemberId, now: Millis) -> tuple[VoterHistory | None, Millis]:
        """Return what a claimer gets with this member's agreement: its memory, and for how long it is bound."""
        return self.quorum.memory(claimer), self.lease.bound_ms(now)

    def end(self) -> QuorumHandover:
        """End with this incarnation, and return what this process must remember."""
        memory, lease = self.quorum.memory(), self.lease
        self.quorum.end()
        return QuorumHandover(memory, lease.bound_to, lease.bound_until, self._state.founded_at, self.quorum.voter)

    # --- who has the view ------------------------------------------------------------------------------------------

    def note_view(self, member: MemberId, version: int, maker: str) -> None:
        """Note that a member has a view. With leases it votes only when it echoes, because it can be bound to another
        master.
        """
        if self.quorum.record_removal_ack(member, version, maker):
            # Partitions of removed members can get other owners now.
            self._state.tell_change()
        if not self.lease.lease_ms:
            self._note_voter(member, version, maker)

    def _note_voter(self, member: MemberId, version: int, maker: str) -> None:
        """Note that a voter has this view, and tell all members at once when all voters have it.

        1. The list of A, B and C becomes stable at A. 2. B and C are cut off from A before its next heartbeat. 3. They
        have the majority of that list, but can need that of the list before, too.
        """
        if self.quorum.record_view_ack(member, version, maker):
            view = self._state.joined()
            message = ViewIsStable(view.version, view.maker)
            for other in view.others(self._this):
                if other not in self._suspicions.suspected:
                    self._out.send(other, message)

    def on_synced(self, now: Millis) -> bool:
        """Count this member's own vote, on the master, if its disk has the present view (DU-05). Return whether that is news.

        1. M removes B from A, B and M. A confirms that, and C joins: all are told that the list of A and M is stable. 2. The power fails
        before M has synced that list. 3. By its folder, M and B are the majority.
        """
        if not self.quorum.awaits(self._this):
            return False
        self.renew(now)
        return not self.quorum.awaits(self._this)

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Note, on the master, which view a slave has."""
        self.note_view(sender, message.view_version, message.view_maker)

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Note whether this member's master repeats that all voters have the view."""
        if message.is_stable and not self._state.is_master and sender == self._state.master:
            self.quorum.on_stable(message.view_version, message.view_maker)

    def on_view_is_stable(self, sender: MemberId, message: ViewIsStable) -> None:
        """Note that this member's master says that all voters have the view."""
        if sender == self._state.master:
            self.quorum.on_stable(message.version, message.maker)

    # --- leases ----------------------------------------------------------------------------------------------------

    def renew(self, now: Millis) -> None:
        """Count the master's own vote. Renew its lease by the echoes, and grant leases to all that asked when it gets one."""
        view = self._state.view
        if view is None:
            return
        if self.quorum.has_synced(view.id) and not self.lease.is_bound(self._this, now):
            self._note_voter(self._this, view.version, view.maker)
        if self.lease.lease_ms and self.lease.renew(self.quorum.footing, self.quorum.left, now):
            for member in self.lease.requesters():
                self._grant(member, now)

    def _grant(self, member: MemberId, now: Millis) -> None:
        """Answer a member that has asked."""
        self._out.send(member, LeaseGrant(now, *self.lease.grant(member, now)))

    def ask(self, master: MemberId, now: Millis) -> None:
        """Ask the master, as a slave, for a lease."""
        if self.lease.lease_ms:
            view = self._state.joined()
            self._out.send(master, LeaseRequest(view.version, view.maker, now, self.lease.echo(master, now)))

    def on_lease_request(self, sender: MemberId, message: LeaseRequest, now: Millis) -> None:
        """Answer, as the master, a slave that asks for a lease, and can echo a stamp."""
        state = self._state
        if not state.is_master or sender not in state.members:
            return
        view, echo = state.joined(), message.echo
        if not self.quorum.is_removal_committed and (message.view_version, message.view_maker) != (
            view.version,
            view.maker,
        ):
            # It does not know yet which members were removed, and can count with them once its promise is over.
            echo = 0
        self.lease.on_request(sender, message.clock, echo)
        if echo:
            self._note_voter(sender, message.view_version, message.view_maker)
        self.renew(now)
        self._grant(sender, now)

    def on_lease_grant(self, sender: MemberId, message: LeaseGrant, now: Millis) -> None:
        """Take the master's answer; echo a first stamp of it at once."""
        if self._state.role is not Role.SLAVE or sender != self._state.master:
            return
        if self.lease.on_grant(sender, message.stamp, message.clock, message.granted_ms):
            self.ask(sender, now)
