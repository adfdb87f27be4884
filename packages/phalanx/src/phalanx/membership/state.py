"""The view that a member has installed, the master that it follows, and its role: each has one method that changes it."""

from __future__ import annotations

import msgspec

from phalanx.common.evacuation import Evacuation
from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.view import MembersView
from phalanx.machine.facts import MembershipChanged, StopWish
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.ring import Watching, plan_watching
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.quorum.exclusion import Exclusion
from phalanx.membership.quorum.lease import Lease
from phalanx.membership.role import ROLE_CHANGES, Role, RoleEvent


class Installed(msgspec.Struct, frozen=True):
    """The view that is installed, and what follows from it: replaced whole."""

    view: MembersView | None = None
    """None until this member has joined, and again when this incarnation is over."""
    members: frozenset[MemberId] = frozenset()
    """The members of the view."""
    watching: Watching = Watching((), (), 1)
    has_started: bool = False
    """Whether the cluster has once had its initial members."""


class MembershipState:
    """The installed view, the master and the role: what almost every rule depends on."""

    def __init__(self, local: LocalContext, lease: Lease, duties: MasterDuties, founded_at: Millis | None) -> None:
        """`founded_at`: the latest time at which this process's cluster was founded, by its clock; None: it was in no cluster."""
        self._local = local
        self._duties = duties
        self.lease = lease
        self.role = Role.JOINING
        self.master: MemberId | None = None
        """The master that this member follows: itself, the oldest of its view, or a claimer that it agreed with. Only
        `follow` changes it.
        """
        self.installed = Installed()
        self.exclusion: Exclusion | None = None
        """Others went on without this member, and it is not decided which side is larger. No claim meanwhile. None: no
        such case.
        """
        self.founded_at = founded_at
        self.last_view: MembersView | None = None
        """The view with which this incarnation ended; None: it has not, or had none."""
        self.left_to: MembersView | None = None
        """The view that goes on without this member, as far as it was told; None: this incarnation has not ended."""

    @property
    def view(self) -> MembersView | None:
        """Return the installed view; None until this member has joined, and again when this incarnation is over."""
        return self.installed.view

    @property
    def members(self) -> frozenset[MemberId]:
        """Return the members of the view."""
        return self.installed.members

    @property
    def watching(self) -> Watching:
        """Return this member's part in watching the members of the view."""
        return self.installed.watching

    @property
    def has_started(self) -> bool:
        """Whether the cluster has once had its initial members."""
        return self.installed.has_started

    @property
    def is_master(self) -> bool:
        """Whether this member administrates the cluster: its claim, if it needed one, is over."""
        return self.role is Role.MASTER

    def joined(self) -> MembersView:
        """Return the view of a member that has one."""
        invariant(self.view is not None, "this member has joined")
        return self.view  # type: ignore[return-value]  # held by the invariant

    # --- master and role -------------------------------------------------------------------------------------------

    def follow(self, master: MemberId | None, event: RoleEvent | None = None) -> None:
        """Follow this master from now on, in another role if there is an event. What another master has granted is void."""
        before = self.master, self.is_master
        if event is not None:
            self.role = ROLE_CHANGES.next(self.role, event)
        self.master = master
        self.lease.follow(master)
        if (self.master, self.is_master) != before:
            self.tell_change()

    def exclude(self, sender: MemberId, view: MembersView, decide_at: Millis) -> None:
        """Note that a member went on without this one, in this view. `decide_at`: when to decide at the latest."""
        if self.exclusion is None:
            self.exclusion = Exclusion(self._local.this, decide_at)
        self.exclusion.add_view(sender, view)

    def come_back(self, past: FormerIncarnation) -> None:
        """Take over what the incarnation before this one knew of the cluster."""
        self.installed = Installed(has_started=past.has_started)

    def install(self, view: MembersView, *, has_started: bool) -> None:
        """Install a view, and end an open exclusion."""
        config, members = self._local.config, frozenset(view.members)
        watching = plan_watching(view, self._local.this, config.ring_above_members, config.ring_neighbours)
        has_started = has_started or len(view.members) >= config.initial_members
        self.installed = Installed(view, members, watching, has_started)
        self.exclusion = None

    def stay(self) -> None:
        """Go on without those that went on without this member."""
        self.exclusion = None

    def end(self, successors: MembersView | None) -> None:
        """End this incarnation: it has no view and no master. `successors`: the view to which it leaves."""
        self.last_view, self.left_to = self.view, successors or self.view
        self.installed = msgspec.structs.replace(self.installed, view=None, members=frozenset())
        self.exclusion = None
        self.follow(None, RoleEvent.ENDS)

    # --- for the other machines of this member ---------------------------------------------------------------------

    def tell_change(self) -> None:
        """Tell the other machines how the membership is now, if this member has a view."""
        if self.view is not None:
            duties = self._duties
            leaving = tuple(sorted(duties.draining(self.view)))
            started, missing = self.has_started, duties.missing
            stops = StopWish(tuple(sorted(duties.stopping)), duties.most_stop(self.view), duties.stop_asked_at)
            self._local.out.tell(
                MembershipChanged(
                    self.view,
                    self.master,
                    self.is_master,
                    leaving,
                    duties.evacuation,
                    started,
                    missing,
                    stops,
                    duties.away,
                    frozenset(duties.without_disk),
                )
            )

    def evacuate(self, order: Evacuation | None) -> None:
        """Order, as the master, to move data before members are removed. None: the order is over."""
        if order is not self._duties.evacuation:
            self._duties.evacuation = order
            self.tell_change()

    # --- the cluster's age -----------------------------------------------------------------------------------------

    def found(self, age_ms: Millis, now: Millis) -> None:
        """Note that this member's cluster has existed for at least so long."""
        self.founded_at = now - age_ms

    def age_ms(self, now: Millis) -> Millis:
        """Return for how long this member's cluster has existed at least. Members differ in it by the delays of messages."""
        return max(now - self.founded_at, 0) if self.founded_at is not None else 0
