"""Membership of one member: the facade of its rules. It makes them, each with the parts that it depends on, and holds
none.

Almost every rule depends on `state`: the view, the master that this member follows, and its role. Each rule has an
object of its own: how to enter (`entry`, `joining`), which lists are taken (`view_acceptance`), signs of life
(`liveness`), what follows from suspicions (`suspicion_handling`), what the master does (`views`), how the mastership
passes on (`claim`), what happens when views diverge (`divergence`, `exclusions`), how two sides become one (`merging`),
what is sent by the clock (`ticker`). This module dispatches inputs:

* Only the master admits, removes and publishes. A member installs a view only if its master made or sent it, only if it
  is newer, and only if it contains the member itself.
* The master removes a member that it suspects at once. On other members a suspicion stays local until every older
  member is suspected; then the member claims the mastership.
"""

from __future__ import annotations

from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import invariant
from phalanx.common.quorum import QuorumHandover
from phalanx.common.view import MembersView
from phalanx.machine.facts import (
    FolderTakenUp,
    IncarnationOver,
    MembershipChanged,
    OrphansMerged,
    ReplicasHandedOver,
    StopsDue,
    TableConfirmed,
    TakersFull,
)
from phalanx.machine.inputs import LinkLost, LinkRefused, LinkUp, SeedsFound
from phalanx.machine.interests import Interest, interest
from phalanx.machine.local_context import LocalContext
from phalanx.machine.routes import Routes, route, route_untimed
from phalanx.membership.claim.accession import Accession
from phalanx.membership.claim.claim_answers import ClaimAnswers
from phalanx.membership.claim.succession import Succession
from phalanx.membership.departure_judge import DepartureJudge
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.entry import Entry
from phalanx.membership.heartbeats.liveness import ConfirmationDispatch, HeartbeatDispatch
from phalanx.membership.heartbeats.master_contact import ConfirmationSender, MasterContact
from phalanx.membership.heartbeats.ticker import Ticker
from phalanx.membership.incarnation import Incarnation, Inheritance
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.join.surroundings import JoinSurroundings
from phalanx.membership.majority import Majority
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.merge.divergence import Divergence
from phalanx.membership.merge.exclusions import Exclusions
from phalanx.membership.merge.merging import Merging
from phalanx.membership.merge.own_side import OwnSide
from phalanx.membership.outgoing import Heartbeats, ViewPublisher
from phalanx.membership.partial.resolution import Resolution
from phalanx.membership.peer_watch import PeerWatch
from phalanx.membership.quorum.lease import Lease
from phalanx.membership.quorum.quorum_state import QuorumState
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.suspicion_handling import ExclusionHandling, SuspicionHandling
from phalanx.membership.table_news import TableNews
from phalanx.membership.view_acceptance import ListVerdict, MasterLists, ViewAcceptance
from phalanx.membership.view_installation import ViewInstallation
from phalanx.membership.view_log import ViewLog
from phalanx.membership.views.administration import Administration
from phalanx.membership.views.admission import Admission, JoinRedirects, JoinRefusals, JoinRequests, Newcomers
from phalanx.membership.views.awaited import AwaitedMembers
from phalanx.membership.views.cluster_version import ClusterVersion
from phalanx.membership.views.leaving import LastAcks, LeaveRequests, Leaving, Resignation
from phalanx.membership.views.lite_changes import LiteChanges
from phalanx.membership.views.removals import ForcedRemovals, Removals
from phalanx.membership.views.stopping import Stopping
from phalanx.membership.wishes import OwnWishes
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
    StopOrder,
    SuspicionReport,
    ViewIsStable,
)
from phalanx.wire.restart_events import ClockJumped
from phalanx.wire.view_events import ClusterStarted

LONG_OFF_MS: Millis = 86_400_000
"""A process that was off for longer says so: its machine's clock can be wrong."""


class MembershipService:
    """The members and the master, as this member knows them."""

    def __init__(self, local: LocalContext, carried: QuorumHandover | None = None) -> None:
        """`carried`: what the process took along from its last incarnation."""
        this, config, out = local.this, local.config, local.out
        self.this = this
        self._local = local
        self._validated: MembersView | None = None
        """The view that `validate` has looked at last."""
        self._is_started = False
        """Whether `ClusterStarted` was recorded: the cluster has had its initial members."""

        # What is known.
        suspicions = self.suspicions = Suspicions(this, config, out)
        gone = self.gone = GoneMembers(this, config)
        table = self.table_news = TableNews(config.partition_count)
        duties = self.duties = MasterDuties(gone.departures, table)
        lease, founded_at = Lease(this, config.lease_ms, carried), carried.founded_at if carried is not None else None
        state = self.state = MembershipState(local, lease, duties, founded_at)
        wishes = self.wishes = OwnWishes(local, state, duties, table)
        quorum = QuorumState(local, carried, table)
        majority = self.majority = Majority(local, state, suspicions, quorum)
        self.view_log = ViewLog(this, state, majority, gone.departures)

        # What is sent, and which members this one expects to hear.
        self.publisher = publisher = ViewPublisher(local, state, majority, gone)
        self.heartbeats = heartbeats = Heartbeats(local, state, suspicions, majority)
        self._watch = watch = PeerWatch(local, state, suspicions, heartbeats)
        contact = MasterContact(state, ConfirmationSender(local, state, table, gone), majority, wishes)
        self.ticker = Ticker(config, suspicions, heartbeats, contact)

        # How an incarnation begins, gets its views, and ends.
        judge = DepartureJudge(gone, duties, suspicions)
        followers = (judge, gone, duties, wishes, watch, self.ticker, majority)
        self.installation = ViewInstallation(local, state, publisher, followers)
        self.incarnation = Incarnation(local, state, wishes, Inheritance(state, majority, gone, wishes))
        accession = Accession(local, state, majority, self.installation)
        self._entry = Entry(local, self.incarnation, JoinSurroundings(local, gone), accession)

        # The master's list.
        newcomers = Newcomers(local, state, majority, gone)
        self._admission = Admission(local, state, newcomers, self.installation)
        refusals = JoinRefusals(local, state, table, gone, quorum.founders)
        redirects = JoinRedirects(local, state, wishes, heartbeats)
        self._join_requests = JoinRequests(refusals, redirects, self._admission)
        removals = Removals(local, state, suspicions, self._admission)
        stopping = self.stopping = Stopping(local, state, self.incarnation, removals)
        self.leave_requests = LeaveRequests(local, state, duties, stopping)
        self.resignation = Resignation(local, state, publisher, self.incarnation)
        leaving = Leaving(LastAcks(state, duties, majority, publisher), removals, self.resignation, self._admission)
        lite_changes = LiteChanges(local, state, duties, wishes)
        self.administration = Administration(state, self._admission, leaving, lite_changes)
        self.resolution = Resolution(local, state, watch, ForcedRemovals(duties, removals, gone, publisher))

        # Masters that come and go, and sides that part and come together.
        self.succession = Succession(local, state, suspicions, accession)
        self.claim_answers = ClaimAnswers(local, state, self.succession, watch)
        self.divergence = Divergence(local, state, suspicions, publisher)
        self.exclusions = Exclusions(local, state, suspicions, self.incarnation)
        self.merging = Merging(local, state, gone, OwnSide(local, state, table, quorum.founders))
        awaited = AwaitedMembers(local, state, gone, self.merging.promises)
        self.cluster_version = ClusterVersion(local, state, awaited, self.installation)

        # What messages and suspicions lead to.
        self._suspicion_handling = SuspicionHandling(state, removals, stopping, self.succession, heartbeats)
        self._exclusion_handling = ExclusionHandling(state, self.exclusions, self.succession, self._suspicion_handling)
        masters = MasterLists(gone, suspicions, majority, accession)
        outcomes = {
            ListVerdict.REPEATED: masters.on_repeated,
            ListVerdict.NEWER: masters.on_newer,
            ListVerdict.SUCCESSION: self._on_succession,
            ListVerdict.HANDS_OVER: accession.take_votes,
            ListVerdict.FOREIGN: self.divergence.on_foreign_list,
            ListVerdict.OTHER_HISTORY: self.divergence.on_other_history,
            ListVerdict.LEFT_OUT: self.incarnation.on_left_out,
        }
        self.view_acceptance = ViewAcceptance(local, state, self.claim_answers, outcomes)
        hearers = (
            watch,
            self.exclusions,
            publisher,
            self.resolution,
            majority,
            heartbeats,
            self.ticker,
            self.resignation,
        )
        self._heartbeat_dispatch = HeartbeatDispatch(local, state, self.divergence, hearers)
        confirmed = (watch, majority, self.cluster_version, publisher, heartbeats)
        self._confirmation_dispatch = ConfirmationDispatch(local, state, self.divergence, confirmed)

    def __repr__(self) -> str:
        state = self.state
        return (
            f"MembershipService({self.this}, {state.role}, view={state.view}, master={state.master}, "
            f"{self._entry}, {self.succession}, {self.administration}, {self.resolution}, "
            f"exclusion={state.exclusion}, "
            f"suspected={self.suspicions.suspected})"
        )

    # --- what others ask -------------------------------------------------------------------------------------------

    @property
    def view(self) -> MembersView | None:
        """None until this member has joined, and again when this incarnation is over."""
        return self.state.view

    @property
    def master(self) -> MemberId | None:
        """Return the master that this member follows: itself, the oldest of its view, or a claimer that it agreed with."""
        return self.state.master

    def leaves_others(self) -> bool:
        """Return whether this member, which has left, leaves others behind that hold data, as far as it knows. Who has stopped within
        its list does not: it comes back with its vote, and what its folder has."""
        if self.incarnation.has_stopped:
            return False
        view, has_left = self.state.left_to, self.majority.quorum.has_left
        return view is not None and any(member != self.this and not has_left(member) for member in view.data_members)

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
        return self.majority.quorum.has_majority

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
        suspected = self.suspicions.suspected
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
        """Return the messages about membership, each with the rule that handles it."""
        entry, majority, watch = self._entry, self.majority, self._watch
        heartbeats, confirmations = self._heartbeat_dispatch, self._confirmation_dispatch
        exclusions = self._exclusion_handling
        return (
            route(JoinRequest, self.on_join_request),
            route(JoinResponse, self.on_join_response),
            route(JoinRedirect, entry.on_join_redirect),
            route(JoinRefused, entry.on_join_refused),
            route_untimed(ReachProbe, heartbeats.on_reach_probe),
            route_untimed(ReachAnswer, entry.on_reach_answer),
            route(MembersUpdate, self.view_acceptance.on_members_update),
            route(MembersAck, self.administration.on_members_ack),
            route(Heartbeat, heartbeats.on_heartbeat),
            route_untimed(ViewIsStable, majority.on_view_is_stable),
            route(MasterConfirmation, confirmations.on_master_confirmation),
            route(LifeProbe, heartbeats.on_life_probe),
            route(LifeAnswer, watch.on_life_answer),
            route(LeaseRequest, majority.on_lease_request),
            route(LeaseGrant, majority.on_lease_grant),
            route(ExplicitSuspicion, exclusions.on_explicit_suspicion),
            route_untimed(Complaint, self.divergence.on_complaint),
            route(SuspicionReport, self.resolution.on_suspicion_report),
            route(MastershipClaim, self.claim_answers.on_mastership_claim),
            route(ClaimAnswer, exclusions.on_claim_answer),
            route(MergeProbe, self.on_merge_probe),
            route(MergeOrder, self.exclusions.on_merge_order),
            route(LeaveRequest, self.leave_requests.on_leave_request),
            route(StopOrder, self.stopping.on_stop_order),
            route(LiteRequest, self.administration.on_lite_request),
        )

    def interests(self) -> list[Interest]:
        """Return the facts of this machine that its own rules follow, before any other machine does."""
        return [
            interest(MembershipChanged, self._on_change),
            interest(StopsDue, lambda due, now: self.stopping.stop(due, now) if self.is_master else None),
            interest(TakersFull, self.duties.on_takers_full),
            interest(FolderTakenUp, self.wishes.on_folder_taken_up),
            interest(IncarnationOver, self._on_over),
        ]

    def _on_change(self, fact: MembershipChanged, now: Millis) -> None:
        """Follow a change of the view or the role; record that a full cluster begins to work."""
        self.stopping.on_view(self.state.members)
        self.succession.advance(now)
        self.resolution.follow()
        self.administration.follow(now)
        self.merging.follow(now)
        if self.state.has_started and not self._is_started:
            self._is_started = True
            view, waited_for = self.state.joined(), self._local.config.initial_members
            self._local.out.record(ClusterStarted(view.version, len(view.members), waited_for))

    def _on_over(self, fact: IncarnationOver, now: Millis) -> None:
        """End everything of an ended incarnation."""
        self.resolution.follow()
        self._entry.end()
        self.succession.end()
        self.administration.end()
        self.stopping.end()

    # --- time and connections --------------------------------------------------------------------------------------

    def start(self, now: Millis, past: FormerIncarnation | None = None) -> None:
        """Begin to join, or form a cluster if this member is the seed; with a past: come back."""
        if past is not None and past.off_ms > LONG_OFF_MS:
            self._local.out.record(ClockJumped(past.off_ms))
        self.majority.lease.start(now)
        self._entry.start(now, past)

    def next_deadline(self) -> Millis | None:
        if self._entry.is_joining:
            return self._entry.next_deadline()
        if self.state.view is None:
            return None
        earliest = self.ticker.next_deadline()
        for deadline in (self.exclusions.next_deadline(), self.succession.next_deadline(),
                         self.administration.next_deadline(), self.cluster_version.next_deadline(),
                         self.merging.next_deadline(), self.resolution.next_deadline(), self.stopping.next_deadline()):  # fmt: skip
            if deadline is not None and deadline < earliest:
                earliest = deadline
        return earliest

    def review_at(self) -> Millis | None:
        """Return when suspicions are looked at next; None: this member has no view."""
        return self.ticker.next_deadline() if self.state.view is not None and not self._entry.is_joining else None

    def on_time(self, now: Millis) -> None:
        """Send heartbeats, review failure detectors, and end what has timed out."""
        state = self.state
        if self._entry.is_joining:
            self._entry.on_time(now)
        if state.view is None:
            return
        if now >= self.ticker.next_deadline():
            self._review(now)
        elif (decide_at := self.exclusions.next_deadline()) is not None and now >= decide_at:
            self._exclusion_handling.decide(now)
        if state.view is None:
            return
        self.succession.on_time(now)
        if self.ticker.on_time(now):
            self.resolution.on_tick(now)
        self.resolution.on_time(now)
        self.administration.on_time(now)
        self.cluster_version.on_time(now)
        self.merging.on_time(now)
        self.stopping.on_time(now)

    def _review(self, now: Millis) -> None:
        """Act on members that are suspected by now, and on an exclusion: fewer unsuspected members can decide it."""
        self._suspicion_handling.act_on(self.suspicions.review(now, is_master=self.state.is_master), now)
        self._exclusion_handling.decide(now)

    def on_seeds(self, event: SeedsFound, now: Millis) -> None:
        self._entry.on_seeds(event, now)

    def on_join_request(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        """Answer a joiner. A member that looks for a cluster itself first notes the other one."""
        self._entry.on_joiner(sender, message, now)
        self._join_requests.on_join_request(sender, message, now)

    def on_join_response(self, sender: MemberId, message: JoinResponse, now: Millis) -> None:
        """Join the cluster whose master has admitted this member, unless this member waits for another answer."""
        if self.divergence.check_admission(sender, message, now, is_expected=self._entry.expects(message)):
            self._entry.enter(sender, message, now)

    def on_link(self, event: LinkLost | LinkRefused | LinkUp, now: Millis) -> None:
        """Follow a connection that opened, broke or was refused. A broken one is reopened by a heartbeat: only refusal
        is evidence.
        """
        state = self.state
        if self._entry.is_joining:
            self._entry.on_link(event, now)
            return
        if state.view is None:
            return
        member = MemberId(event.peer)
        if member not in state.members:
            self.gone.departures.on_link(member, event, now)
            if isinstance(event, LinkRefused):
                self.succession.on_refused(event, now)
            if not isinstance(event, LinkUp):
                self._admission.on_unreachable(member)
        elif isinstance(event, LinkUp):
            self.suspicions.connection_open(member)
            # What was sent before may have been lost with a connection that nobody could open again for a while.
            self.resignation.repeat(member)
        elif isinstance(event, LinkRefused):
            if not self.stopping.is_ending(member):
                self.suspicions.connection_refused(member, event, now)
                self._review(now)
        elif member not in self.suspicions.suspected:
            self.heartbeats.send(member)
            self.resignation.repeat(member)

    def _on_succession(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        """Publish the view that makes this member the master: others must have it before they hear of the next one."""
        self.publisher.publish()
        # Members that it suspected as a slave are still in the view, and no new verdict will come.
        self._suspicion_handling.act_on(list(self.suspicions.suspected), now)

    def on_merge_probe(self, sender: MemberId, message: MergeProbe, now: Millis) -> None:
        """Answer another side, and join it if that is decided."""
        if (into := self.merging.on_merge_probe(sender, message, now)) is not None:
            self.incarnation.come_back("merges with another side of its cluster", into)

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave(self, now: Millis, *, keeps: bool = False, because_of_disk: bool = False) -> None:
        """Ask to leave. The master sees to it that nothing is lost, then publishes a view without this member.

        `keeps`: as `LeaveWanted`; `because_of_disk`: as `LeaveRequest`.
        """
        state = self.state
        if self.is_over:
            return
        if state.view is None:
            self.incarnation.end("left before it had joined")
        else:
            self.wishes.want_to_leave(keeps=keeps, because_of_disk=because_of_disk)
            if state.is_master:
                self.leave_requests.begin_leave(self.this, self.wishes.to_ask(), now)
            elif state.master is not None and state.master != self.this:
                self._local.out.send(state.master, self.wishes.to_ask())

    def want_lite(self, lite: bool, now: Millis) -> str:
        """Ask the master to make this member a lite member, or a data member again, without loss of data.

        Return why it is not done yet; empty: it is done.
        """
        state = self.state
        if state.view is None or not self.wishes.want_lite(lite):
            return self.wishes.why_not_lite(lite)
        if state.is_master:
            self.administration.on_lite_wanted(self.this, lite, now)
        elif state.master is not None and state.master != self.this:
            # Also when it is taken back.
            self._local.out.send(state.master, LiteRequest(lite))
        return self.wishes.why_not_lite(lite)

    # --- facts of other machines -----------------------------------------------------------------------------------

    def on_replicas_handed_over(self, fact: ReplicasHandedOver, confirmed: TableConfirmed, now: Millis) -> None:
        """Complete the leaving of members that hold nothing in the fact's table, if that is still the installed one."""
        if self.is_master and fact.table is confirmed.table:
            self.administration.complete_leaving(fact.members, now)

    def on_orphans_merged(self, fact: OrphansMerged, now: Millis) -> None:
        """Leave: the merge that delayed this member's leaving is over."""
        self.leave(now, because_of_disk=fact.because_of_disk)
