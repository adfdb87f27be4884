"""Membership of one member: the door to its rules. It routes, and holds no rule of its own.

The variables stand in `state`; each rule has its own object: how to get in (`entry`, `joining`), which lists are taken
(`view_acceptance`), what signs of life say (`liveness`), what follows from suspicions (`suspicion_handling`), what the master does
(`administration`), how the mastership passes on (`succession`), what happens when views went apart (`divergence`), how two
sides become one (`merging`), what is sent by the clock (`ticker`). Here inputs find their rule:

* Only the master admits, removes and publishes. A member installs a view only if its master made or sent it, only if
  it is newer, and only if it contains the member itself.
* The master removes a member that it suspects at once; elsewhere a suspicion stays local until every older member is
  suspected, and then the member claims the mastership.
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.clock import GridClock
from phalanx.common.config import NodeConfig
from phalanx.common.evacuation import Evacuation
from phalanx.common.former_incarnation import Past
from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.quorum import Carried
from phalanx.common.view import MembersView
from phalanx.machine.facts import (
    EvacuationOver,
    IncarnationOver,
    KeptHandedIn,
    MembershipChanged,
    ReplicasHandedOver,
    TableConfirmed,
)
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp, SeedsFound
from phalanx.machine.interests import Interest, interest
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route, route_untimed
from phalanx.membership.claim.succession import Succession
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.entry import Entry
from phalanx.membership.heartbeats.liveness import LivenessDispatch
from phalanx.membership.heartbeats.ticker import Ticker
from phalanx.membership.incarnation_end import end_incarnation
from phalanx.membership.lease_exchange import renew_lease
from phalanx.membership.merge.divergence import Divergence
from phalanx.membership.merge.merging import Merging
from phalanx.membership.outgoing import question, send_heartbeat, send_view
from phalanx.membership.partial.resolution import Resolution
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.suspicion_handling import SuspicionHandling
from phalanx.membership.view_acceptance import ViewAcceptance
from phalanx.membership.views.administration import Administration
from phalanx.membership.views.cluster_version import ClusterVersion
from phalanx.wire import events
from phalanx.wire.messages import (
    ClaimAnswer,
    Complaint,
    ExplicitSuspicion,
    Heartbeat,
    JoinRedirect,
    JoinRefused,
    JoinRequest,
    JoinResponse,
    LeaseGrant,
    LeaseRequest,
    LeaveRequest,
    LifeAnswer,
    LifeProbe,
    LiteRequest,
    MasterConfirmation,
    MastershipClaim,
    MembersAck,
    MembersUpdate,
    MergeOrder,
    MergeProbe,
    ReachAnswer,
    ReachProbe,
    SuspicionReport,
    ViewIsStable,
)


class MembershipService:
    """Who is a member and who is master, as this member knows it."""

    def __init__(
        self,
        this: MemberId,
        config: NodeConfig,
        outbox: Outbox,
        clock: GridClock | None = None,
        carried: Carried | None = None,
        release_name: str = "",
    ) -> None:
        """`carried`: what the process took along from its last incarnation. `release_name`: the version of its package."""
        self.this = this
        self.state = MembershipState(this, config, outbox, clock, carried, release_name)
        self.gone = self.state.gone
        self.table_news = self.state.table_news
        self._validated: MembersView | None = None
        """The view that `validate` has looked at last."""
        self.administration = Administration(self.state)
        self.succession = Succession(self.state)
        self.divergence = Divergence(self.state)
        self.resolution = Resolution(self.state, self.administration)
        self.merging = Merging(self.state)
        self.cluster_version = ClusterVersion(self.state, self.merging.promises)
        self.ticker = Ticker(self.state)
        self._suspicion_handling = SuspicionHandling(self.state, self.administration, self.succession, self.ticker)
        self.view_acceptance = ViewAcceptance(
            this, self.state, self.succession, self.divergence, self._suspicion_handling, outbox
        )
        self._liveness = LivenessDispatch(
            self.state, self.administration, self.divergence, self.resolution, self.ticker, self.cluster_version
        )
        self._entry = Entry(this, config, self.state, self.divergence, self.ticker, outbox)
        self._config = config
        self._out = outbox
        self._is_started = False
        """Whether `ClusterStarted` was recorded: the cluster has had its initial members."""

    def __repr__(self) -> str:
        state = self.state
        return (
            f"MembershipService({self.this}, {state.role}, view={state.view}, master={state.master}, "
            f"{self._entry}, {self.succession}, {self.administration}, {self.resolution}, "
            f"parting={state.exclusion}, "
            f"suspected={state.suspicions.suspected})"
        )

    # --- what others ask -------------------------------------------------------------------------------------------

    @property
    def view(self) -> MembersView | None:
        """None until this member has joined, and again when this incarnation is over."""
        return self.state.view

    @property
    def master(self) -> MemberId | None:
        """Return whom this member follows: itself, the master of its view, or a claimer that it agreed with."""
        return self.state.master

    @property
    def members(self) -> frozenset[MemberId]:
        """Return the members of the view."""
        return self.state.members

    @property
    def is_master(self) -> bool:
        """Whether this member administrates the cluster: its claim, if it needed one, is over."""
        return self.state.role is Role.MASTER

    @property
    def is_claiming(self) -> bool:
        return self.state.role is Role.CLAIMING

    @property
    def is_over(self) -> bool:
        """Whether this incarnation has ended."""
        return self.state.role is Role.OVER

    @property
    def has_majority(self) -> bool:
        """Whether this member's side has the majority of the last stable view. Changes with the view only."""
        return self.state.quorum.has_majority

    def may_acknowledge(self, now: Millis) -> bool:
        """Whether an owner may now acknowledge operations on maps that ask for the majority: asked for each of them."""
        state = self.state
        return state.quorum.has_majority and (not state.config.lease_ms or now < state.lease.until)

    def majority_words(self) -> str:
        """Say in words which majority is needed and how much of it is here, for a caller that is refused."""
        if self.state.quorum.has_majority:
            return (
                f"it is there, but this member's lease of {self._config.lease_ms} ms is over or has yet to be granted"
            )
        return self.state.quorum.words()

    def accept_view(self, view_version: int, now: Millis) -> str:
        """On the master: an operator says that the present view is the stable one. Why not; empty: it is from now on."""
        state = self.state
        view = state.joined()
        if view_version != view.version:
            return (
                f"the member list has version {view.version} by now, not {view_version}: look at it, and say it again"
            )
        state.quorum.accept()
        send_view(state, view)
        renew_lease(state, now)
        return ""

    @property
    def holds_until(self) -> Millis:
        """On the master: until this time replicas of members that are gone are not assigned to others. `NEVER`: until a
        member says that it has the present view, or that is replaced.

        1. A, the master, removes C. B never hears of it, and claims with C: they are the majority, too. 2. C goes on as the
        owner that it was, under the new master. 3. Had A made itself the owner meanwhile, its lease would rest on what B
        echoed before, and it would confirm writes that C has never had.
        """
        state = self.state
        if self._config.lease_ms and state.quorum.has_majority and not state.quorum.is_removal_committed:
            return NEVER
        return state.lease.holds_until

    @property
    def has_started(self) -> bool:
        """Whether the cluster has once had the members that it was to wait for."""
        return self.state.has_started

    @property
    def leaving(self) -> set[MemberId]:
        """On the master: members that asked to leave and are still in the view."""
        return self.administration.duties.leaving

    @property
    def evacuation(self) -> Evacuation | None:
        """On the master: what is to be moved before members are removed that still reach it; None: nothing."""
        return self.administration.duties.evacuation

    @property
    def suspicions(self) -> Suspicions:
        return self.state.suspicions

    def validate(self) -> None:
        """Raise `InvariantViolation` unless what must hold between any two inputs does."""
        state = self.state
        view = state.view
        self.resolution.validate()
        invariant(
            (view is None) == (state.role in (Role.JOINING, Role.OVER)), "who is in a cluster has a view", me=self
        )
        invariant((self.succession.claim is not None) == self.is_claiming, "who claims has a claim", me=self)
        if view is None:
            return
        suspected = state.suspicions.suspected
        if view is not self._validated:
            self._validate_view(view)
            self._validated = view
        follows_itself = state.role in (Role.MASTER, Role.CLAIMING, Role.HANDING_OVER)
        invariant((state.master == self.this) == follows_itself, "a slave follows another, a master itself", me=self)
        if self.is_master:
            invariant(view.master == self.this, "the master is the oldest member", view=view)
            invariant(not suspected, "the master removes whom it suspects", suspected=suspected)
        invariant(self.this not in suspected, "a member never suspects itself")
        invariant(state.members.issuperset(suspected), "only members are suspected")

    def _validate_view(self, view: MembersView) -> None:
        """Raise `InvariantViolation` unless what must hold of an installed view does; a view never changes."""
        members = self.state.members
        invariant(self.this in members, "an installed view contains its installer (M3)", view=view)
        invariant(members == set(view.members), "the members are those of the view", view=view)
        invariant(len(members) == len(view.members), "a view lists no member twice", view=view)
        spoken = all(each.speaks(view.cluster_version) for each in view.all_releases().values())
        invariant(spoken, "every member of a view speaks its cluster version (PX-42)", view=view)

    def routes(self) -> Routes:
        """The messages about membership, each with the rule that takes it."""
        entry, liveness, administration = self._entry, self._liveness, self.administration
        return (
            route(JoinRequest, self.on_join_request),
            route(JoinResponse, entry.on_join_response),
            route(JoinRedirect, entry.on_join_redirect),
            route(JoinRefused, entry.on_join_refused),
            route_untimed(ReachProbe, self.on_reach_probe),
            route_untimed(ReachAnswer, entry.on_reach_answer),
            route(MembersUpdate, self.view_acceptance.on_members_update),
            route(MembersAck, administration.on_members_ack),
            route(Heartbeat, liveness.on_heartbeat),
            route_untimed(ViewIsStable, liveness.on_view_is_stable),
            route(MasterConfirmation, liveness.on_master_confirmation),
            route(LifeProbe, liveness.on_life_probe),
            route(LifeAnswer, liveness.on_life_answer),
            route(LeaseRequest, liveness.on_lease_request),
            route(LeaseGrant, liveness.on_lease_grant),
            route(ExplicitSuspicion, self.on_explicit_suspicion),
            route_untimed(Complaint, administration.on_complaint),
            route(SuspicionReport, self.on_suspicion_report),
            route(MastershipClaim, self.succession.on_mastership_claim),
            route(ClaimAnswer, self.on_claim_answer),
            route(MergeProbe, self.merging.on_merge_probe),
            route(MergeOrder, self.merging.on_merge_order),
            route(LeaveRequest, administration.on_leave_request),
            route(LiteRequest, self.on_lite_request),
        )

    def interests(self) -> list[Interest]:
        """The facts of this machine that its own rules follow, before any other machine does."""
        return [interest(MembershipChanged, self._on_change), interest(IncarnationOver, self._on_over)]

    def _on_change(self, fact: MembershipChanged, now: Millis) -> None:
        """The view or the role of this member may be another one; a full cluster begins to work."""
        self.succession.go_on(now)
        self.resolution.follow()
        self.administration.follow(now)
        self.merging.follow(now)
        if self.has_started and not self._is_started:
            self._is_started = True
            view, waited_for = self.state.joined(), self._config.initial_members
            self._out.record(events.ClusterStarted(view.version, len(view.members), waited_for))

    def _on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """Nothing of an ended incarnation goes on."""
        self.resolution.follow()
        self._entry.end()
        self.succession.end()
        self.administration.end()

    # --- time and connections --------------------------------------------------------------------------------------

    def start(self, now: Millis, past: Past | None = None) -> None:
        """Begin to join, or form a cluster where this member is the seed; with a past: come back."""
        self._entry.start(now, past)

    def next_deadline(self) -> Millis | None:
        if self._entry.is_joining:
            return self._entry.next_deadline()
        if self.state.view is None:
            return None
        earliest = self.ticker.next_deadline()
        for deadline in (self.divergence.next_deadline(), self.succession.next_deadline(),
                         self.administration.next_deadline(), self.cluster_version.next_deadline(),
                         self.merging.next_deadline(), self.resolution.next_deadline()):  # fmt: skip
            if deadline is not None and deadline < earliest:
                earliest = deadline
        return earliest

    def note_told(self) -> None:
        """Note that the driver is told now when to come back: if it comes much later, this member was away."""
        if self.state.view is not None and not self._entry.is_joining:
            self.ticker.note_told()

    def on_time(self, now: Millis) -> None:
        """Heartbeats, verdicts of failure detectors, and the ends of what waits."""
        state = self.state
        if self._entry.is_joining:
            self._entry.on_time(now)
        if state.view is None:
            return
        if now >= self.ticker.next_deadline():
            self._review(now)
        elif state.exclusion is not None and now >= state.exclusion.decide_at:
            self._decide(now)
        if state.view is None:
            return
        self.succession.on_time(now)
        if self.ticker.on_time(now):
            self.resolution.on_tick(now)
        self.resolution.on_time(now)
        self.administration.on_time(now)
        self.cluster_version.on_time(now)
        self.merging.on_time(now)

    def _review(self, now: Millis) -> None:
        """Find out who is suspected by now. Who went on without this one may be the many of those that are left."""
        state = self.state
        self._suspicion_handling.act_on(state.suspicions.review(now, is_master=state.is_master), now)
        if state.exclusion is not None:
            self._decide(now)

    def _decide(self, now: Millis) -> None:
        """Follow those that went on without this member, or go on without them; a claim waits for that."""
        self._suspicion_handling.act_on(self.divergence.decide(now), now)
        if self.state.exclusion is None and self.state.view is not None:
            self.succession.go_on(now)

    def on_seeds(self, event: SeedsFound, now: Millis) -> None:
        self._entry.on_seeds(event, now)

    def on_join_request(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        """Before the answer, a member that looks for a cluster itself learns who else does."""
        self._entry.on_joiner(sender, message, now)
        self.administration.on_join_request(sender, message, now)

    def on_link(self, event: LinkLost | LinkRefused | LinkUp, now: Millis) -> None:
        """A connection opened, broke or was refused. What breaks is reopened by a heartbeat: only then is it evidence."""
        state = self.state
        if self._entry.is_joining:
            self._entry.on_link(event, now)
            return
        if state.view is None:
            return
        member = MemberId(event.peer)
        if member not in state.members:
            state.gone.departures.on_link(member, event, now)
            if isinstance(event, LinkRefused):
                self.succession.on_refused(event, now)
            if not isinstance(event, LinkUp):
                self.administration.on_unreachable(member)
        elif isinstance(event, LinkUp):
            state.suspicions.connection_open(member)
            # What was sent before may have been lost with a connection that nobody could open again for a while.
            self.administration.repeat_hand_over(member)
        elif isinstance(event, LinkRefused):
            state.suspicions.connection_refused(member, event, now)
            self._review(now)
        elif member not in state.suspicions.suspected:
            send_heartbeat(state, member)
            self.administration.repeat_hand_over(member)

    # --- signs of life, and doubts ---------------------------------------------------------------------------------

    def on_reach_probe(self, sender: MemberId, message: ReachProbe) -> None:
        """A joiner has to show that it reaches this member, which may be a joiner itself."""
        if not self.is_over:
            self._out.send(sender, ReachAnswer(message.request_id))

    def on_suspicion_report(self, sender: MemberId, message: SuspicionReport, now: Millis) -> None:
        """Large clusters: this member is to act on a suspicion, and asks for itself first."""
        if sender in self.state.members:
            question(self.state, (message.suspect,), sender, now)
            if self.state.watching.is_ring:
                self.resolution.on_one(sender, message.suspect)

    def on_explicit_suspicion(self, sender: MemberId, message: ExplicitSuspicion, now: Millis) -> None:
        self._follow_word(self.divergence.on_explicit_suspicion(sender, message, now), now)

    def _follow_word(self, suspects: list[MemberId], now: Millis) -> None:
        """Act on what a member said of itself: that may also have decided who are the many."""
        self._suspicion_handling.act_on(suspects, now)
        if self.state.view is not None:
            self.succession.go_on(now)

    # --- mastership ------------------------------------------------------------------------------------------------

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> None:
        if not self.is_claiming:
            return
        suspects = self.divergence.on_claim_answer(sender, message, now)
        if suspects is None:
            self.succession.on_claim_answer(sender, message, now)
        else:
            self._follow_word(suspects, now)

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave(self, now: Millis) -> None:
        """Ask to leave. The master sees to it that nothing is lost, then publishes a view without this member."""
        state = self.state
        if state.role is Role.OVER:
            return
        if state.view is None:
            end_incarnation(state, "left before it had joined")
        else:
            state.wants_to_leave = True
            if state.is_master:
                self.administration.begin_leaving(self.this, now)
            elif state.master is not None and state.master != self.this:
                self._out.send(state.master, LeaveRequest())

    def want_lite(self, lite: bool, now: Millis) -> str:
        """Ask the master to make this member a lite member, or a data member again. The master loses no data for it.

        Returns why it is not done yet; empty: it is done.
        """
        state = self.state
        if state.view is None:
            return "this member is in no cluster now"
        state.wants_lite = lite if lite != state.view.traits_of(self.this).lite else None
        if state.is_master:
            self.administration.on_lite_wanted(self.this, lite, now)
        elif state.master is not None and state.master != self.this:
            # Also when it is taken back.
            self._out.send(state.master, LiteRequest(lite))
        return self.administration.why_not_lite(lite)

    def on_lite_request(self, sender: MemberId, message: LiteRequest, now: Millis) -> None:
        if self.is_master and sender in self.state.members:
            self.administration.on_lite_wanted(sender, message.lite, now)

    def let_go(self, members: Sequence[MemberId], now: Millis) -> None:
        """On the master: these leaving members have handed over what they held. The master itself leaves last."""
        self.administration.let_go(members, now)

    # --- facts of other machines -----------------------------------------------------------------------------------

    def on_replicas_handed_over(self, fact: ReplicasHandedOver, confirmed: TableConfirmed, now: Millis) -> None:
        """Let members go that hold nothing in the fact's table, if that is still the installed one."""
        if self.is_master and fact.table is confirmed.table:
            self.let_go(fact.members, now)

    def on_evacuation_ended(self, fact: EvacuationOver, now: Millis) -> None:
        """Go on with a removal: what only those members held has been moved, as far as it can be."""
        self.resolution.on_evacuation_ended(fact.order, now)

    def on_kept_handed_in(self, fact: KeptHandedIn, now: Millis) -> None:
        """Leave: the merge that held this member back is over."""
        self.leave(now)
