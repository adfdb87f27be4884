"""What passes on with the mastership: the view, the votes, the leases, and which master a member follows."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.quorum import VoterHistory
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.claim.mastership_claim import Claim
from phalanx.membership.majority import Majority
from phalanx.membership.role import RoleEvent
from phalanx.membership.state import MembershipState
from phalanx.membership.view_installation import ViewInstallation
from phalanx.wire.messages import JoinResponse, MembersUpdate


class Accession:
    """Follows another master, or becomes the master."""

    def __init__(
        self, local: LocalContext, state: MembershipState, majority: Majority, installation: ViewInstallation
    ) -> None:  # fmt: skip
        self._this = local.this
        self._state = state
        self._majority = majority
        self._installation = installation

    def enter(self, message: JoinResponse, now: Millis) -> None:
        """Follow the master that has admitted this member."""
        self._state.follow(message.view.master, RoleEvent.ADMITTED)
        self._state.found(message.age_ms, now)
        self._installation.install(message.view, "EL-13 admitted", now, told=message)

    def found(self, view: MembersView, rule: str, now: Millis) -> None:
        """Become the master of a new cluster, or of one that begins anew."""
        self._state.follow(self._this, RoleEvent.FORMS)
        self._majority.lease.become_master((), now, 0, inherits=False)
        if self._state.founded_at is None:
            self._state.found(0, now)
        self._installation.install(view, rule, now)

    def win(self, claim: Claim, view: MembersView, now: Millis) -> None:
        """Become the master, with this final list of a claim."""
        self._majority.win(claim.memories(view.members), claim.promised_until(view.members), now)
        self._installation.publish(view, "CS-66 mastership claimed", now, claim.seen())

    def agree(self, claimer: MemberId, now: Millis) -> tuple[VoterHistory | None, Millis]:
        """Follow a claimer. Return this member's memory, and for how long it is bound to another master."""
        self._state.follow(claimer, RoleEvent.AGREES)
        return self._majority.promise(claimer, now)

    def take(self, message: MembersUpdate, now: Millis) -> None:
        """Follow the master of a newer list, which can be this member itself, and install the list."""
        view = message.view
        if view.maker != view.master:
            self._majority.lease.inherit(view.maker, view.master)
        succeeds = view.master == self._this
        self._state.follow(view.master, RoleEvent.SUCCEEDS if succeeds else None)
        if succeeds:
            self._majority.succeed(view, now)
        self._installation.install(view, "CS-14 newer list of the master", now, told=message)

    def take_votes(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """Take the votes that a master has left to this member, which has claimed the mastership meanwhile (`hands_over`).

        The claim goes on, or its list stays, with these votes.
        """
        if message.footing is not None and self._majority.take_votes(message.footing, now):
            # Members were told that the present list lacks the majority, and can count with others by now.
            new = self._state.joined().with_change(self._this, frozenset(), ())
            self._installation.publish(new, "EL-63 votes of those that left", now)


def hands_over(sender: MemberId, message: MembersUpdate, this: MemberId) -> bool:
    """Return whether a list is the last one of a master that leaves, which hands the mastership over to this member."""
    view, footing = message.view, message.footing
    return footing is not None and bool(footing.left) and view.maker == sender and view.master == this
