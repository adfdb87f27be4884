"""The variables of one member's membership. The rules, each in a file of its own, share the one object and change it."""

from __future__ import annotations

import msgspec

from phalanx.common.clock import GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.former_incarnation import Past
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.quorum import Carried
from phalanx.common.versions import this_release
from phalanx.common.view import MembersView
from phalanx.machine.facts import MembershipChanged
from phalanx.machine.outbox import Outbox
from phalanx.membership.departures import DepartureJudge
from phalanx.membership.detect.ring import Watching, plan_watching
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.quorum.exclusion import Exclusion
from phalanx.membership.quorum.lease import Lease
from phalanx.membership.quorum.quorum_state import QuorumState
from phalanx.membership.role import ROLE_CHANGES, Role, RoleTurn
from phalanx.membership.table_news import TableNews


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
    """View, master, role and suspicions of one incarnation."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        outbox: Outbox,
        clock: GridClock | None = None,
        carried: Carried | None = None,
        release_name: str = "",
    ) -> None:
        self.this = this
        self.release = this_release(release_name)
        """What this member's build speaks."""
        self.config = config
        self.out = outbox
        self.clock = clock
        """The grid's clock; None: this member has no clock, and neither tells nor learns times."""
        self.role = Role.JOINING
        self.master: MemberId | None = None
        """Whom this member follows: itself, the master of its view, or a claimer that it agreed with. `follow` alone changes it."""
        self.installed = Installed()
        self.lease = Lease(this, config.lease_ms, carried)
        self.founded_at = carried.founded_at if carried is not None else None
        """The latest time at which this member's cluster was founded, by this process's clock; None: it was in no cluster."""
        self.wants_to_leave = False
        self.lite_before: bool | None = None
        """Whether the incarnation before this one was a lite member; None: there was none."""
        self.wants_lite: bool | None = None
        """Whether an operator wants this member to be lite; None: nothing is to change."""
        self.suspicions = Suspicions(this, config, outbox)
        self.gone = GoneMembers(this, config)
        self.duties = MasterDuties(self.gone.departures)
        self.exclusion: Exclusion | None = None
        """Others went on without this member, and it is not known yet which side is larger. No claim meanwhile. None: no such case."""
        self.table_news = TableNews(config.partition_count)
        self.departure_judge = DepartureJudge(self.gone, self.duties, self.suspicions, self.table_news)
        self.quorum = QuorumState(this, carried, outbox, awaits_itself=config.lease_ms > 0)

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
        """The view of a member that has one."""
        invariant(self.view is not None, "this member has joined")
        return self.view  # type: ignore[return-value]  # held by the invariant

    # --- whom this member follows, and as what ---------------------------------------------------------------------

    def follow(self, master: MemberId | None, turn: RoleTurn | None = None) -> None:
        """Follow this master from now on, in another role if there is a turn. What another master has granted is void."""
        before = self.master, self.is_master
        if turn is not None:
            self.role = ROLE_CHANGES.next(self.role, turn)
        self.master = master
        self.lease.follow(master)
        if (self.master, self.is_master) != before:
            self.tell_change()

    def exclude(self, told_by: MemberId, view: MembersView, decide_at: Millis) -> None:
        """Note that a member went on without this one, in this view. `decide_at`: when to decide at the latest."""
        if self.exclusion is None:
            self.exclusion = Exclusion(self.this, decide_at)
        self.exclusion.told(told_by, view)

    def come_back(self, past: Past) -> None:
        """Take over what the incarnation before this one knew of the cluster."""
        self.installed = Installed(has_started=past.has_started)

    def install(self, view: MembersView, *, has_started: bool) -> None:
        """Install a view: of what others said before about going on without this member, nothing holds any more."""
        config, members = self.config, frozenset(view.members)
        watching = plan_watching(view, self.this, config.ring_above_members, config.ring_neighbours)
        has_started = has_started or len(view.members) >= config.initial_members
        self.installed = Installed(view, members, watching, has_started)
        self.exclusion = None

    def stay(self) -> None:
        """Go on without those that went on without this member."""
        self.exclusion = None

    def end(self) -> None:
        """End this incarnation: it has no view, and follows nobody."""
        self.installed = msgspec.structs.replace(self.installed, view=None, members=frozenset())
        self.exclusion = None
        self.follow(None, RoleTurn.ENDS)

    # --- what the other machines of this member work from ----------------------------------------------------------

    def tell_change(self) -> None:
        """Tell them how the membership is now, if this member has a view."""
        if self.view is not None:
            duties = self.duties
            leaving = tuple(sorted(duties.giving_away(self.view)))
            started, missing = self.has_started, duties.missing
            self.out.tell(
                MembershipChanged(self.view, self.master, self.is_master, leaving, duties.evacuation, started, missing)
            )

    # --- clocks ----------------------------------------------------------------------------------------------------

    def age_ms(self, now: Millis) -> Millis:
        """Return for how long this member's cluster has existed at least. Members differ in it by the delays of messages."""
        return max(now - self.founded_at, 0) if self.founded_at is not None else 0

    def read_clock(self, now: Millis) -> int:
        """Return what to tell others of this member's clock."""
        return self.clock.read(now) if self.clock is not None else 0

    def adopt_clock(self, told: int, now: Millis) -> None:
        """The master that has admitted this member has told what the cluster's clock shows."""
        if self.clock is not None:
            self.clock.adopt(told, now)

    def observe_clock(self, told: int, now: Millis) -> None:
        """A member of this cluster has told what its clock shows."""
        if self.clock is not None:
            self.clock.observe(told, now)
