"""What the master alone does: admit, remove, publish, let go (docs/protocol/membership.md).

Joiners that ask while the view that admitted others is still being acknowledged wait for that, and are then admitted
together: many members that start at once need few views, and a single one waits for nobody. A joiner is answered when
all members that existed before have acknowledged the view, or when the time for that is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.common.evacuation import Evacuation
from phalanx.common.ids import MemberId, Millis, address_of, incarnation_of, may_be_member
from phalanx.common.versions import FIRST_RELEASE, Release, range_words
from phalanx.common.view import MembersView
from phalanx.membership.incarnation_end import leave_cluster
from phalanx.membership.join.joining import refusal_of, release_of
from phalanx.membership.join.links_to_prove import BrokenLinks
from phalanx.membership.lease_exchange import note_view
from phalanx.membership.outgoing import members_update, send_view, tell_diverged
from phalanx.membership.role import RoleTurn
from phalanx.membership.state import MembershipState
from phalanx.membership.view_installation import install_view
from phalanx.membership.views.master_handover import MasterHandover
from phalanx.membership.views.publication import Publication, Publications
from phalanx.wire import events
from phalanx.wire.messages import (
    Complaint,
    JoinRedirect,
    JoinRefused,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    MasterConfirmation,
    MembersAck,
    MembersUpdate,
)

LEFT = "DESIGN 6 graceful shutdown"
FULL = "CS-09 max_members"
VERSION = "PX-45"


class Administration:
    """Admission, removal and publication by one member, as long as it is the master."""

    def __init__(self, state: MembershipState) -> None:
        self._state = state
        self._out = state.out
        self.duties = state.duties
        self._publications = Publications()
        self._queued: dict[MemberId, JoinRequest] = {}
        """Joiner that waits for the next view to its request."""
        self.hand_over: MasterHandover | None = None
        """Set once this member, the master, has made a view without itself: it decides nothing any more."""
        self._next_publication: Millis | None = None
        """When this master publishes the same view again; None: it is not the master yet."""
        self._lite_again_at: Millis = 0
        """When this master asks itself again to hold data, or none, as its operator wants it."""
        self._last_words_until: Millis = 0
        """Until then a master that leaves waits for the last words of members that it has let go."""
        self._awaits_last_words = False
        """Whether that time is not over yet."""
        self.links = BrokenLinks(state.config)
        """Links for which members were removed that this master reaches, and which they must prove before they come back."""

    def __repr__(self) -> str:
        return f"Administration(publications={self._publications}, queued={list(self._queued)}, hand_over={self.hand_over})"

    def follow(self, now: Millis) -> None:
        """Publish from time to time from now on, if this member is the master now: it has just sent its view to all."""
        if self._state.is_master and self._next_publication is None:
            self._next_publication = now + self._state.config.publish_interval_ms

    def next_deadline(self) -> Millis | None:
        state, earliest = self._state, self._publications.next_deadline()
        if self.hand_over is not None and (earliest is None or self.hand_over.deadline < earliest):
            earliest = self.hand_over.deadline
        if not state.is_master:
            return earliest
        again_at = self._lite_again_at if state.wants_lite is not None else None
        words_until = self._last_words_until if self._awaits_last_words and state.this in self.duties.leaving else None
        for deadline in (self._next_publication, again_at, words_until):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def on_time(self, now: Millis) -> None:
        """End publications and hand-overs whose time is over. Publish the view anew from time to time (CS-19)."""
        self.end_publications(now)
        self._end_hand_over(now)
        state = self._state
        if not state.is_master:
            return
        if state.wants_lite is not None and now >= self._lite_again_at:
            # Other members repeat their request by themselves.
            self.on_lite_wanted(state.this, state.wants_lite, now)
        if self._awaits_last_words and state.this in self.duties.leaving and now >= self._last_words_until:
            self._awaits_last_words = False
            state.tell_change()  # for whoever says that this member has handed over what it held
        if self._next_publication is not None and now >= self._next_publication:
            self._next_publication = now + state.config.publish_interval_ms
            send_view(state, state.joined())

    # --- joining ---------------------------------------------------------------------------------------------------

    def on_join_request(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        state = self._state
        view = state.view
        refusal, rule = self._refusal(sender, message)
        if refusal:
            self._out.record(events.JoinRequestRefused(sender, refusal, rule))
            # Nothing but its being full, or too new, says that it is the cluster that the joiner belongs to.
            is_its_own = view is not None and rule in (FULL, VERSION)
            self._out.send(sender, JoinRefused(message.request_id, False, refusal, is_its_own))
        elif state.is_master and message.member in state.gone.former.removed:
            # 1. J asks, and hangs. 2. It is admitted and, silent, removed. 3. Its repeated request arrives: the same
            # incarnation would be a member again, at another age than those know that saw it before (EL-20).
            reason = "this incarnation was a member and has been removed"
            self._out.record(events.JoinRequestRefused(sender, reason, "EL-20 EL-21"))
            self._out.send(sender, JoinRefused(message.request_id, True, reason, True, come_back=True))
        elif state.is_master and (not state.wants_to_leave or self.duties.missing):
            if message.member not in state.members:
                if self._is_held_back(message, now):
                    return
                # Who waits there under an older identity is dead: the address is taken.
                at = address_of(message.member)
                self._queued = {waits: asked for waits, asked in self._queued.items() if address_of(waits) != at}
                self._queued[message.member] = message
                self._admit_queued(now)
            elif not self._publications.renew(message.member, message.request_id):
                self._out.send(message.member, self._admission(message.request_id, state.joined(), now))
        elif state.master not in (None, state.this) and state.master not in state.suspicions.suspected:
            self._out.send(sender, JoinRedirect(message.request_id, state.master))
        else:
            self._out.send(
                sender, JoinRefused(message.request_id, True, self._not_now(), view is not None, release=state.release)
            )

    def _is_held_back(self, message: JoinRequest, now: Millis) -> bool:
        """Whether the joiner cannot be admitted yet because it may not reach everybody (the two-way check)."""
        state, joiner = self._state, message.member
        held = self.links.check(joiner, message.reaches, (*state.joined().members, *self._queued), now)
        if held is None:
            return False
        if held.is_news:
            self._out.record(events.JoinHeldBack(joiner, held.reach, held.reason, "PD-24 PD-28"))
        refusal = JoinRefused(message.request_id, True, held.reason, True, waits=True, reach=held.reach)
        self._out.send(joiner, refusal)
        return True

    def _refusal(self, sender: MemberId, message: JoinRequest) -> tuple[str, str]:
        """Why the request can never be granted, and by which rule; empty if it may be."""
        state, table = self._state, self._state.table_news
        if refusal := refusal_of(sender, message, state.this, state.config, table.partition_count, table.has_data):
            return refusal, "CS-09"
        if state.is_master and (refusal := self._why_not_spoken(release_of(message))):
            return refusal, VERSION
        joiner = message.member
        identity, address = incarnation_of(joiner), address_of(joiner)
        for member in (*state.members, *self._queued):
            if incarnation_of(member) == identity and address_of(member) != address:
                return f"a member of the same identity runs at {address_of(member)}: start this one anew", "EL-21"
        most = state.config.max_members
        if state.is_master and most and joiner not in state.members:
            others = {address_of(member) for member in (*state.members, *self._queued)} - {address}
            if len(others) >= most:
                return f"the cluster has its maximum of {most} members (max_members)", FULL
        return "", ""

    def _why_not_spoken(self, joiner: Release) -> str:
        """Why the joiner's build does not fit the cluster, though this member's speaks with it; empty: it fits."""
        version = self._state.joined().cluster_version
        if joiner.newest < version:
            return (
                f"the cluster version is {version}, and the joiner speaks {range_words(joiner)}: start it with the release of "
                f"the other members, or a newer one"
            )
        if joiner.oldest > version:
            return (
                f"the cluster version is {version}, and the joiner speaks {range_words(joiner)}: upgrade the members first to the "
                f"release before the joiner's, and raise the cluster version"
            )
        return ""

    def _not_now(self) -> str:
        state = self._state
        if state.wants_to_leave:
            return "this member leaves"
        if state.view is None:
            return "this member has not joined a cluster itself yet"
        return "the master is suspected, or being replaced"

    def _admit_queued(self, now: Millis) -> None:
        """Append the queued joiners. Earlier incarnations on their addresses are dead (the address is taken): they go."""
        state = self._state
        if not self._queued or self._publications.is_waiting or not state.is_master:
            return
        requests, self._queued = self._queued, {}
        joiners = {joiner: request.request_id for joiner, request in requests.items()}
        addresses = {address_of(joiner) for joiner in joiners}
        view = state.joined()
        replaced = frozenset(member for member in view.members if address_of(member) in addresses)
        existing = [member for member in view.others(state.this) if member not in replaced]
        traits = ((joiner, request.traits) for joiner, request in requests.items())
        # Who names no release, and no newer protocol, is of the first release: the view says that by saying nothing.
        told = {joiner: release_of(request) for joiner, request in requests.items()}
        releases = {joiner: release for joiner, release in told.items() if release != FIRST_RELEASE}
        new = view.with_change(state.this, replaced, tuple(joiners), traits, releases)
        for joiner, request in requests.items():
            state.quorum.told(joiner, request.memory)
            at = address_of(joiner)
            before = tuple(member for member in view.members if member in replaced and address_of(member) == at)
            rejoins = bool(before) or state.gone.former.addresses.pop(at, None) is not None
            self._out.record(events.MemberAdmitted(joiner, new.version, before, rejoins))
        install_view(state, new, "CS-10 joined", now)
        for request in requests.values():
            state.gone.learn_from_joiner(request, now)
        deadline = now + state.config.join_acknowledgement_ms
        self._publications.wait(Publication(new, existing, deadline, joiners))
        send_view(state, new, skip=joiners)
        self.end_publications(now)

    def on_unreachable(self, peer: MemberId) -> None:
        """A joiner that cannot be reached any more is not admitted."""
        self._queued.pop(peer, None)

    def on_members_ack(self, sender: MemberId, message: MembersAck, now: Millis) -> None:
        state = self._state
        self._publications.on_ack(sender, message.version)
        if state.is_master:
            self._note_view(sender, message, now)
        self.end_publications(now)
        if self.hand_over is not None:
            self.hand_over.on_ack(sender, message.version)
            self._end_hand_over(now)

    def end_publications(self, now: Millis) -> None:
        """Answer the joiners of the views that all have, or that have waited long enough; then admit the next ones."""
        if not self._publications.is_waiting:
            return
        state = self._state
        for publication in self._publications.take_ended(state.members, now):
            view = self.hand_over.view if self.hand_over is not None else state.view
            late = tuple(sorted(publication.waiting_for))
            for joiner, request_id in publication.joiners.items():
                if view is None or joiner not in view:
                    continue
                if self.hand_over is not None:
                    # The list is the next master's, which answers for itself.
                    self._out.send(joiner, JoinRedirect(request_id, view.master))
                else:
                    self._out.record(events.JoinAnswered(joiner, view.version, late))
                    self._out.send(joiner, self._admission(request_id, view, now))
        self._admit_queued(now)

    def _note_view(self, sender: MemberId, message: MembersAck, now: Millis) -> None:
        state = self._state
        if sender in state.members:
            note_view(state, sender, message.version, message.maker)
        elif (
            sender in self.duties.let_go
            and self.duties.let_go[sender][0] == message.version
            and message.maker == state.this
        ):
            _, voter = self.duties.let_go.pop(sender)
            if state.quorum.has_left(voter):
                # 1. This view has no majority without D, which leaves. 2. C gets it, and D's last word comes. 3. C says that
                # it has this view, and is cut off: it counts for those that are the majority of the view before.
                new = state.joined().with_change(state.this, frozenset(), ())
                install_view(state, new, LEFT, now)
                send_view(state, new)
            elif state.this in self.duties.leaving and not self.duties.let_go:
                state.tell_change()

    def _admission(self, request_id: int, view: MembersView, now: Millis) -> JoinResponse:
        state = self._state
        clock, footing = state.read_clock(now), state.quorum.footing
        former, departures = state.gone.told()
        return JoinResponse(request_id, view, state.has_started, clock, footing, former, state.age_ms(now), departures)

    # --- removal ---------------------------------------------------------------------------------------------------

    def remove(
        self,
        gone: Sequence[MemberId],
        rule: str,
        now: Millis,
        *,
        reason: str = "",
        reasons: Mapping[MemberId, str] | None = None,
    ) -> None:
        """Publish a view without some members. They are not told: whoever lives speaks, and is answered then (CS-42)."""
        state = self._state
        new = state.joined().with_change(state.this, frozenset(gone), ())
        for member in gone:
            why = reason or (reasons or {}).get(member) or state.suspicions.suspected.get(member, "")
            self._out.record(events.MemberRemoved(member, new.version, why, rule))
        install_view(state, new, "CS-11 removed", now)
        send_view(state, new)
        self.end_publications(now)

    def evacuate(self, order: Evacuation | None) -> None:
        """Move data by this order before members are removed. None: the order is over."""
        if order is not self.duties.evacuation:
            self.duties.evacuation = order
            self._state.tell_change()

    def on_complaint(self, sender: MemberId, message: Complaint) -> None:
        """CS-49: whoever of the two is not in this member's list is told to go its own way."""
        state = self._state
        if not state.is_master or not may_be_member(message.complainee):
            return
        told: list[MemberId] = []
        if sender not in state.members:
            told.append(sender)
            self._tell(sender, message.view_version, message.view_maker)
        if message.complainee not in state.members:
            told.append(message.complainee)
            self._tell(message.complainee, message.complainee_version, message.complainee_maker)
        self._out.record(events.ComplaintJudged(sender, message.complainee, tuple(told), "CS-49"))
        if not told:
            # Both are members: the complainer has an old list.
            self._out.send(sender, members_update(state, state.joined()))

    def on_stranger(self, sender: MemberId, version: int, maker: MemberId, rule: str) -> None:
        """Tell a member outside the master's list that views diverged: it follows this master, or counts it as its own (CS-42)."""
        tell_diverged(
            self._state, sender, version, maker, "told a member that is not in the list to go its own way", rule
        )

    def _tell(self, peer: MemberId, version: int, maker: MemberId) -> None:
        tell_diverged(self._state, peer, version, maker, "answered a complaint", "CS-49")

    def heal(self, sender: MemberId, version: int) -> None:
        """EL-32: a member that has an older list than this master gets the latest, it alone."""
        state = self._state
        view = state.joined()
        if version < view.version:
            self._out.record(events.OutdatedViewHealed(sender, version, view.version))
            self._out.send(sender, members_update(state, view))

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """CS-28: a slave says that it follows this master."""
        state = self._state
        if sender in state.members:
            state.suspicions.confirmed(sender, now)
            note_view(state, sender, message.view_version, message.view_maker)
            if state.watching.is_ring:
                # Elsewhere the heartbeat that comes along says it.
                self.heal(sender, message.view_version)
        else:
            self.on_stranger(sender, message.view_version, message.view_maker, "CS-43")

    # --- leaving ---------------------------------------------------------------------------------------------------

    def on_leave_request(self, sender: MemberId, message: LeaveRequest, now: Millis) -> None:
        """On the master, a member of the view asks to leave, perhaps again."""
        state = self._state
        if state.is_master and sender in state.members and sender not in self.duties.leaving:
            self.begin_leaving(sender, now)
            self._out.record(events.LeaveStarted(sender, self._replicas_to_hand_over(sender)))

    def begin_leaving(self, member: MemberId, now: Millis) -> None:
        """On the master: begin to move the replicas of a member away, because it asked to leave."""
        if self.duties.begin_leaving(member, self._state.joined(), now):
            self._state.tell_change()

    def _replicas_to_hand_over(self, member: MemberId) -> int:
        """Return how many replicas others must take over before this member may go."""
        state = self._state
        return state.table_news.replicas_of(member) if self.duties.others_hold(member, state.joined()) else 0

    def why_not_lite(self, lite: bool) -> str:
        """Why this member does not hold data, or does, as it was asked to become; empty: it does."""
        state = self._state
        view = state.view
        if view is None:
            return "this member is in no cluster now"
        if view.traits_of(state.this).lite == lite:
            return ""
        if not lite:
            return "the master has yet to say so"
        if view.data_members == (state.this,):
            return "no other member holds data: start one, or promote one first"
        held = state.table_news.replicas_of(state.this)
        return f"{held} replicas are still here" if held else "the master has yet to say so"

    def on_lite_wanted(self, member: MemberId, lite: bool, now: Millis) -> None:
        """A member was asked by its operator to hold data, at once, or none, as soon as others hold what it has."""
        state = self._state
        view = state.joined()
        if member == state.this:
            self._lite_again_at = now + state.config.confirmation_interval_ms
        if not lite:
            if member in self.duties.demoting:
                self._end_demotion(member)
            if view.traits_of(member).lite:
                self._change_lite(member, now, lite=False)
        elif (
            member not in self.duties.demoting
            and not view.traits_of(member).lite
            and self.duties.others_hold(member, view)
        ):
            self.duties.demoting.add(member)
            state.tell_change()
            self._out.record(events.LiteChangeStarted(member, self._replicas_to_hand_over(member)))

    def _end_demotion(self, member: MemberId) -> None:
        """A member has become lite, or will stay a data member."""
        self.duties.demoting.discard(member)
        self._state.tell_change()

    def _change_lite(self, member: MemberId, now: Millis, *, lite: bool) -> None:
        state = self._state
        new = state.joined().with_lite(state.this, member, lite=lite)
        self._out.record(events.LiteChanged(member, lite, new.version))
        install_view(state, new, "DESIGN 4 lite members", now)
        send_view(state, new)
        self.end_publications(now)

    def let_go(self, members: Sequence[MemberId], now: Millis) -> None:
        """These members have handed over what they held: they leave, or stay without data. The master leaves last."""
        state = self._state
        for member in members:
            if member in self.duties.demoting and self.duties.others_hold(member, state.joined()):
                self._end_demotion(member)
                if member not in self.duties.leaving:
                    self._change_lite(member, now, lite=True)
        members = [member for member in members if member in self.duties.leaving]
        others = [member for member in members if member != state.this]
        if others:
            view = state.joined().with_change(state.this, frozenset(others), ())
            self._last_words_until = now + state.config.join_acknowledgement_ms
            self._awaits_last_words = True
            former, departures = state.gone.told()
            for member in others:
                self.duties.let_go[member] = view.version, state.quorum.voices.get(member, member)
                update = MembersUpdate(view, state.has_started, former=former, departures=departures)
                self._out.send(member, update)
            self.remove(others, LEFT, now, reason="it left")
        elif state.this in members and (not self.duties.let_go or now >= self._last_words_until):
            # 1. B and E leave A and C, which have two of four votes then. 2. A, the master, leaves too before B and E have said
            # that they are over. 3. Nobody hears it, and C never has the majority again.
            self._hand_over_mastership(now)

    def _hand_over_mastership(self, now: Millis) -> None:
        """Publish a view without this member, and stay until all have it: the next oldest is the master then."""
        state = self._state
        view = state.joined()
        if not view.others(state.this):
            leave_cluster(state)
            return
        new = view.with_change(state.this, frozenset({state.this}), ())
        self._out.record(events.MemberRemoved(state.this, new.version, "it left", LEFT))
        self._queued.clear()
        footing = state.quorum.next_footing(new, left=state.quorum.voter)
        state.follow(state.this, RoleTurn.HANDS_OVER)
        deadline = now + state.config.join_acknowledgement_ms
        self.hand_over = MasterHandover(
            MembersUpdate(new, state.has_started, footing, *state.gone.told()),
            deadline,
            self._out,
        )

    def _end_hand_over(self, now: Millis) -> None:
        if self.hand_over is not None and self.hand_over.is_over(now):
            self.hand_over = None
            leave_cluster(self._state)

    def repeat_hand_over(self, member: MemberId) -> None:
        """Tell a member that may not have heard who is the master now."""
        if self.hand_over is not None:
            self.hand_over.repeat(member)

    def end(self) -> None:
        self._publications.clear()
        self._queued.clear()
        self.duties.let_go.clear()
        self.hand_over = None
