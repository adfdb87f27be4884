"""Membership of one member: the shell that holds the variables (view, master, suspicions) and routes.

The rules stand in their own files: how to get in (`joining`), whom to suspect (`suspicion`), how the oldest survivor
takes over (`claim`), what waits for acknowledgements (`publication`). Here they meet:

* Only the master admits, removes and publishes. A member installs a view only if its master made or sent it, only if
  it is newer, and only if it contains the member itself.
* The master removes a member that it suspects at once; elsewhere a suspicion stays local until every older member is
  suspected, and then the member claims the mastership.
* A member that most others went on without must not serve from its old view: it learns of it through explicit
  suspicion, ends this incarnation and comes back as a new member (`divergence`). Merging two sides that both went on is
  decided elsewhere.
"""

from __future__ import annotations

from phalanx.common.config import NodeConfig
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.invariant import invariant
from phalanx.common.view import MembersView
from phalanx.membership.claim import Claim
from phalanx.membership.divergence import Parting, may_succeed
from phalanx.membership.handover import HandOver
from phalanx.membership.joining import Joining, JoinOutcome, refusal_of
from phalanx.membership.publication import Publication, Publications
from phalanx.membership.suspicion import Suspicions
from phalanx.wire import events
from phalanx.wire.effects import Finished, LinkLost, LinkRefused, LinkUp, Outbox
from phalanx.wire.messages import (
    ClaimAnswer,
    ExplicitSuspicion,
    Heartbeat,
    JoinRedirect,
    JoinRefused,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    MastershipClaim,
    MembersAck,
    MembersUpdate,
)


class MembershipService:
    """Who is a member and who is master, as this member knows it."""

    def __init__(self, this: MemberId, config: NodeConfig, outbox: Outbox) -> None:
        self.this = this
        self.view: MembersView | None = None
        """None until this member has joined, and again when this incarnation is over."""
        self.master: MemberId | None = None
        """Whom this member follows: itself, the master of its view, or a claimer that it agreed with."""
        self.leaving: set[MemberId] = set()
        """On the master: members that asked to leave and are still in the view."""
        self.wants_to_leave = False
        self.suspicions = Suspicions(config, outbox)
        self._config = config
        self._out = outbox
        self._joining: Joining | None = None
        self._claim: Claim | None = None
        self._claims_made = 0
        self._claim_started = 0
        self._publications = Publications()
        self._table_version = 0
        self._hand_over: HandOver | None = None
        """This member was the master and has made a view without itself: it decides nothing any more."""
        self._parting: Parting | None = None
        self.is_over = False
        """Whether this incarnation has ended."""
        self._next_heartbeat = 0
        self._next_publication = 0

    def __repr__(self) -> str:
        return (
            f"MembershipService({self.this}, view={self.view}, master={self.master}, joining={self._joining}, "
            f"claim={self._claim}, publications={self._publications}, hand_over={self._hand_over}, "
            f"parting={self._parting}, suspected={self.suspicions.suspected})"
        )

    @property
    def is_master(self) -> bool:
        """Whether this member administrates the cluster: its claim, if it needed one, is over."""
        return self.view is not None and self.master == self.this and self._claim is None and self._hand_over is None

    @property
    def is_claiming(self) -> bool:
        return self._claim is not None

    def validate(self) -> None:
        """What must hold between any two inputs."""
        view = self.view
        if view is None:
            return
        invariant(self.this in view, "an installed view contains its installer (M3)", view=view)
        invariant(len(set(view.members)) == len(view.members), "a view lists no member twice", view=view)
        if self.is_master:
            invariant(view.master == self.this, "the master is the oldest member", view=view)
        invariant(self.this not in self.suspicions.suspected, "a member never suspects itself")
        invariant(view.members and all(s in view for s in self.suspicions.suspected), "only members are suspected")

    # --- time and connections -------------------------------------------------------------------------------------

    def start(self, now: Millis) -> None:
        """Begin to join, or form a cluster where this member is the seed."""
        self._joining = Joining(self.this, self._config, self._out, now)
        self._follow_join(self._joining.begin(now), now)

    def next_deadline(self) -> Millis | None:
        if self._joining is not None:
            return self._joining.next_deadline()
        if self.view is None:
            return None
        deadline = self.suspicions.next_deadline(self._next_heartbeat)
        if self._parting is not None:
            # A claim waits for it.
            deadline = min(deadline, self._parting.decide_at)
        elif self._claim is not None:
            deadline = min(deadline, self._claim.next_deadline())
        if self._hand_over is not None:
            deadline = min(deadline, self._hand_over.deadline)
        return min(deadline, *self._publications.deadlines()) if self._publications.is_waiting else deadline

    def on_time(self, now: Millis, table_version: int) -> None:
        """Heartbeats, verdicts, and the ends of what waits."""
        self._table_version = table_version
        if self._joining is not None:
            self._follow_join(self._joining.on_time(now), now)
            return
        if self.view is None:
            return
        self._act_on(self.suspicions.review(now), now)
        self._decide_parting(now)
        if self.view is None:
            return
        self._claim_if_due(now)
        if now >= self._next_heartbeat:
            self._tick(now)
        for member in self.suspicions.to_reconnect(now):
            # To a suspected member goes no heartbeat (CS-38), only what opens the connection.
            is_suspected = member in self.suspicions.suspected
            self._out.send(member, MembersAck(self._joined().version) if is_suspected else self._heartbeat())
        if self._claim is not None:
            self._claim.ask_again(now)
            self._end_claim_if_over(now)
        self._end_publications(now)
        self._end_hand_over(now)

    def on_link(self, event: LinkLost | LinkRefused | LinkUp, now: Millis) -> None:
        """A connection opened, broke or was refused. What breaks is reopened by a heartbeat: only then is it evidence."""
        peer = event.peer
        if self._joining is not None:
            if not isinstance(event, LinkUp):
                self._follow_join(self._joining.on_unreachable(event, now), now)
            return
        if self.view is None:
            return
        member = MemberId(peer)
        if member not in self.view:
            if self._claim is not None and isinstance(event, LinkRefused):
                self._claim.on_refused(member, self._config.connection_grace_ms, now)
                self._end_claim_if_over(now)
            return
        if isinstance(event, LinkUp):
            self.suspicions.connection_open(member, now)
        elif isinstance(event, LinkRefused):
            self.suspicions.connection_refused(member, now)
            self._act_on(self.suspicions.review(now), now)
        elif member in self.suspicions.suspected:
            self.suspicions.connection_lost(member, now)
        else:
            self._out.send(member, self._heartbeat())
            if self._hand_over is not None:
                self._hand_over.repeat(member)

    def _tick(self, now: Millis) -> None:
        self._next_heartbeat = now + self._config.heartbeat_interval_ms
        view = self._joined()
        heartbeat = self._heartbeat()
        for member in view.others(self.this):
            if member not in self.suspicions.suspected:
                self._out.send(member, heartbeat)
        if self.wants_to_leave and self.master is not None and self.master != self.this:
            self._out.send(self.master, LeaveRequest())
        if self.is_master and now >= self._next_publication:
            self._next_publication = now + self._config.publish_interval_ms
            self._send_view(view)

    def _heartbeat(self) -> Heartbeat:
        view = self._joined()
        return Heartbeat(view.version, view.maker, self.master or view.master, self._table_version)

    # --- joining: the joiner ---------------------------------------------------------------------------------------

    def _follow_join(self, outcome: JoinOutcome, now: Millis) -> None:
        joining = self._joining
        if outcome is JoinOutcome.WAITING or joining is None:
            return
        self._joining = None
        if outcome is JoinOutcome.FAILED:
            self._out.record(events.JoinGivenUp(joining.failure))
            self.is_over = True
            self._out.add(Finished(joining.failure, failed=True))
            return
        self.master = self.this
        self._install(MembersView(1, self.this, (self.this,)), "EL-05 the seed forms the cluster", now)
        self._record_joined()

    def on_join_response(self, sender: MemberId, message: JoinResponse, now: Millis) -> None:
        if self._joining is None:
            return
        if not self._joining.expects(message.request_id) or self.this not in message.view:
            self._out.record(events.StaleMessageIgnored(sender, "answer to an earlier join request", "EL-12"))
            return
        self._joining = None
        self.master = message.view.master
        self._install(message.view, "EL-13 admitted", now)
        self._record_joined()
        # A view that admits the next joiner may wait for this member, which could not take it before.
        self._out.send(sender, MembersAck(message.view.version))

    def on_join_redirect(self, sender: MemberId, message: JoinRedirect, now: Millis) -> None:
        if self._joining is not None:
            self._follow_join(self._joining.on_redirect(sender, message, now), now)

    def on_join_refused(self, sender: MemberId, message: JoinRefused, now: Millis) -> None:
        if self._joining is not None:
            self._follow_join(self._joining.on_refused(sender, message, now), now)

    def _record_joined(self) -> None:
        view = self._joined()
        self._out.record(events.Joined(view.version, view.master, view.members))

    # --- joining: the master ---------------------------------------------------------------------------------------

    def on_join_request(self, sender: MemberId, message: JoinRequest, now: Millis) -> None:
        joiner, view = message.member, self.view
        refusal = refusal_of(sender, message, self.this, self._config)
        if refusal:
            self._out.send(sender, JoinRefused(message.request_id, False, refusal, view is not None))
        elif view is None or self._claim is not None or self.master is None or self.wants_to_leave:
            reason = "this member leaves" if self.wants_to_leave else "this member has not joined a cluster itself yet"
            self._out.send(sender, JoinRefused(message.request_id, True, reason, view is not None))
        elif not self.is_master:
            if self.master in self.suspicions.suspected:
                self._out.send(sender, JoinRefused(message.request_id, True, "the master is suspected", True))
            else:
                self._out.send(sender, JoinRedirect(message.request_id, self.master))
        elif joiner in view:
            self._out.send(joiner, JoinResponse(message.request_id, view))
        else:
            self._admit(joiner, message.request_id, now)

    def _admit(self, joiner: MemberId, request_id: int, now: Millis) -> None:
        """Append the joiner. An earlier incarnation on its address is dead (the address is taken): it goes at once."""
        view = self._joined()
        replaced = tuple(member for member in view.members if address_of(member) == address_of(joiner))
        existing = tuple(member for member in view.others(self.this) if member not in replaced)
        new = view.with_change(self.this, frozenset(replaced), (joiner,))
        self._out.record(events.MemberAdmitted(joiner, new.version, replaced))
        self._install(new, "CS-10 joined", now)
        deadline = now + self._config.join_acknowledgement_ms
        self._publications.wait(Publication(new, existing, deadline, (joiner, request_id)))
        self._send_view(new, skip=joiner)
        self._end_publications(now)

    def on_members_ack(self, sender: MemberId, message: MembersAck, now: Millis) -> None:
        self._publications.on_ack(sender, message.version)
        self._end_publications(now)
        if self._hand_over is not None:
            self._hand_over.on_ack(sender, message.version)
            self._end_hand_over(now)

    def _end_publications(self, now: Millis) -> None:
        for publication in self._publications.take_ended(now):
            view = self._hand_over.view if self._hand_over is not None else self.view
            joiner, request_id = publication.joiner
            if view is not None and joiner in view:
                late = tuple(sorted(publication.waiting_for))
                self._out.record(events.JoinAnswered(joiner, view.version, late))
                self._out.send(joiner, JoinResponse(request_id, view))

    # --- views -----------------------------------------------------------------------------------------------------

    def on_members_update(self, sender: MemberId, message: MembersUpdate, now: Millis) -> None:
        view, current = message.view, self.view
        if current is None:
            return
        if (view.version, view.maker) == (current.version, current.maker):
            self._out.send(sender, MembersAck(current.version))
            return
        is_passed_on = view.maker == self.master and sender in current
        if sender != self.master and not is_passed_on and not self._follow_successor(sender, view, current):
            return
        if view.version <= current.version:
            self._out.send(sender, MembersAck(current.version))
            return
        if self.this not in view:
            if self.wants_to_leave:
                self._leave()
            else:
                self._eject(sender, view, "M3 a view without this member")
            return
        self.suspicions.heard(sender, now, "CS-50")
        self.master = view.master
        self._install(view, "CS-14 newer list of the master", now)
        self._out.send(sender, MembersAck(view.version))
        if self.is_master:
            # It was handed over to this member: others must have this view before they hear of the next one.
            self._send_view(view)

    def _follow_successor(self, sender: MemberId, view: MembersView, current: MembersView) -> bool:
        """Whether the list of a member that is not our master is to be taken as our next master's."""
        if self.master is None or not may_succeed(sender, view, current, self.master, self.this):
            self._out.record(events.ViewsDiverged(sender, "told a member that is not our master so", "CS-45"))
            self._tell_diverged(sender, view.version, view.maker)
            return False
        if any(older not in self.suspicions.suspected for older in current.older_than(sender)):
            # It repeats its list as long as this member's is older.
            self._out.record(events.StaleMessageIgnored(sender, "the list of a master that is not ours yet", "CS-58"))
            return False
        return True

    def _install(self, view: MembersView, rule: str, now: Millis) -> None:
        invariant(self.this in view, "an installed view contains its installer (M3)", view=view)
        invariant(self.view is None or view.version > self.view.version, "views only move on (M1)", view=view)
        self.view = view
        self._parting = None
        self.leaving.intersection_update(view.members)
        if self.wants_to_leave and self.is_master:
            # It asked a master that is gone, and is the master itself now.
            self.leaving.add(self.this)
        self.suspicions.watch(view, self.this, now)
        self._publications.on_view(view)
        if self._next_heartbeat == 0:
            self._next_heartbeat = now
        self._out.record(events.ViewInstalled(view.version, view.maker, view.master, view.members, rule))

    def _send_view(self, view: MembersView, skip: MemberId | None = None) -> None:
        update = MembersUpdate(view)
        for member in view.others(self.this):
            if member != skip:
                self._out.send(member, update)

    def _joined(self) -> MembersView:
        invariant(self.view is not None, "this member has joined")
        return self.view  # type: ignore[return-value]  # held by the invariant

    # --- suspicion and removal -------------------------------------------------------------------------------------

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        view = self.view
        if view is None:
            return
        if sender not in view:
            # Others complain to the master; only the master answers an unknown member.
            if self.is_master:
                self._out.record(events.ViewsDiverged(sender, "told an unknown member to go its own way", "CS-44"))
                self._tell_diverged(sender, message.view_version, message.view_maker)
            return
        if self.is_master and message.master != self.this:
            # It lives, but does not follow this master: it installs neither its lists nor its tables, and must go.
            self._out.record(events.ViewsDiverged(sender, f"follows {message.master}, and is not waited for", "CS-29"))
            return
        self.suspicions.heard(sender, now, "CS-51 CS-52")
        if self._parting is not None:
            self._parting.heard(sender)
        if self.is_master and message.view_version < view.version:
            self._out.record(events.OutdatedViewHealed(sender, message.view_version, view.version))
            self._out.send(sender, MembersUpdate(view))
        elif self._hand_over is not None:
            self._hand_over.repeat(sender)

    def on_explicit_suspicion(self, sender: MemberId, message: ExplicitSuspicion, now: Millis) -> None:
        view = self.view
        if view is None or sender not in view or self._hand_over is not None:
            return
        if (message.about_version, message.about_maker) != (view.version, view.maker):
            self._out.record(events.StaleMessageIgnored(sender, "explicit suspicion about an earlier view", "A.6-21"))
            return
        theirs = message.view
        if self.this not in theirs and theirs.members and theirs.master in view:
            self._part(sender, theirs, now)
        elif self.suspicions.suspect(sender, "it said that our views have diverged", "CS-40"):
            self._act_on([sender], now)

    def _part(self, sender: MemberId, view: MembersView, now: Millis) -> None:
        """The sender says that it went on without this member."""
        if self._parting is None:
            self._parting = Parting(self.this, now + 2 * self._config.heartbeat_interval_ms)
        self._parting.told(sender, view)
        self._decide_parting(now)

    def _decide_parting(self, now: Millis) -> None:
        parting = self._parting
        if parting is None:
            return
        suspected = self.suspicions.suspected
        unsuspected = [m for m in self._joined().members if m not in suspected or m in parting.told_by]
        followed = parting.to_follow(unsuspected, now)
        if followed is not None:
            self._eject(*followed, "CS-42 others went on without this member")
        elif now >= parting.decide_at:
            self._parting = None
            said = "it said that our views have diverged"
            self._act_on([m for m in parting.told_by if self.suspicions.suspect(m, said, "CS-40")], now)

    def _tell_diverged(self, peer: MemberId, version: int, maker: MemberId) -> None:
        self._out.send(peer, ExplicitSuspicion(version, maker, self._joined()))

    def _act_on(self, suspects: list[MemberId], now: Millis) -> None:
        """The verdicts of the failure detector: removal on the master, a claim where every older member is suspected."""
        if not suspects or self.view is None:
            return
        if self.is_master:
            self._remove(suspects, "CS-35", now)
            return
        if self._claim is not None:
            for suspect in suspects:
                self._claim.leave_out(suspect)
        self._claim_if_due(now)

    def _remove(self, gone: list[MemberId], rule: str, now: Millis) -> None:
        view = self._joined()
        new = view.with_change(self.this, frozenset(gone), ())
        for member in gone:
            reason = self.suspicions.suspected.get(member, "it left")
            self._out.record(events.MemberRemoved(member, new.version, reason, rule))
        self._install(new, "CS-11 removed", now)
        self._send_view(new)
        self._end_publications(now)

    # --- mastership ------------------------------------------------------------------------------------------------

    def _claim_if_due(self, now: Millis) -> None:
        """Claim when every older member is suspected. Also asked when a new view left only suspected ones in front."""
        view = self._joined()
        if self.master == self.this or self._hand_over is not None or self._parting is not None:
            return
        if all(older in self.suspicions.suspected for older in view.older_than(self.this)):
            self._start_claim(now)

    def _start_claim(self, now: Millis) -> None:
        view = self._joined()
        self._claims_made += 1
        self._claim_started = now
        self.master = self.this
        timing = (now + self._config.claim_timeout_ms, self._config.retry_interval_ms)
        self._claim = Claim(self.this, self._claims_made, view, timing, self._out)
        suspected = tuple(self.suspicions.suspected)
        self._out.record(events.ClaimStarted(self._claims_made, view.version, suspected, "CS-53"))
        self._claim.ask_younger(view, suspected, now)
        self._end_claim_if_over(now)

    def on_mastership_claim(self, sender: MemberId, message: MastershipClaim, now: Millis) -> None:
        view = self.view
        if view is None:
            if self._joining is not None:
                self._out.send(sender, ClaimAnswer(message.claim_id, False, None))
            return
        if sender not in view or sender not in view.older_than(self.this):
            if self.is_master:
                # The claimer took too long: others have gone on without it, under this member.
                self._out.send(sender, ClaimAnswer(message.claim_id, False, view))
            return
        self.suspicions.heard(sender, now, "CS-52 a claim is a sign of life")
        not_suspected = tuple(m for m in view.older_than(sender) if m not in self.suspicions.suspected)
        if not not_suspected:
            self._claim = None
            self.master = sender
        self._out.record(events.ClaimAnswered(sender, not not_suspected, not_suspected))
        self._out.send(sender, ClaimAnswer(message.claim_id, not not_suspected, view))

    def on_claim_answer(self, sender: MemberId, message: ClaimAnswer, now: Millis) -> None:
        if self._claim is None:
            return
        view = self._joined()
        if sender in view and message.view is not None and self.this not in message.view:
            self._part(sender, message.view, now)
            return
        self._claim.on_answer(sender, message, self.suspicions.suspected, now)
        self._end_claim_if_over(now)

    def _end_claim_if_over(self, now: Millis) -> None:
        claim = self._claim
        if claim is None or not claim.is_over(now) or self._parting is not None:
            return
        self._claim = None
        view = claim.final_view()
        took_ms = now - self._claim_started
        self._out.record(events.ClaimEnded(claim.claim_id, "this member is the master", claim.left_out(), took_ms))
        self._install(view, "CS-66 mastership claimed", now)
        self._send_view(view)

    # --- leaving ---------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Ask to leave. The master sees to it that nothing is lost, then publishes a view without this member."""
        if self.is_over:
            return
        if self.view is None:
            self._joining = None
            self._end("left before it had joined")
            return
        self.wants_to_leave = True
        if self.is_master:
            self.leaving.add(self.this)
        elif self.master is not None:
            self._out.send(self.master, LeaveRequest())

    def on_leave_request(self, sender: MemberId) -> None:
        if self.is_master and self.view is not None and sender in self.view:
            self.leaving.add(sender)

    def let_go(self, members: list[MemberId], now: Millis) -> None:
        """On the master: these leaving members have handed over what they held. The master itself leaves last."""
        view = self._joined()
        others = [member for member in members if member != self.this]
        if others:
            new = view.with_change(self.this, frozenset(others), ())
            for member in others:
                self._out.record(events.MemberRemoved(member, new.version, "it left", "DESIGN 6 graceful shutdown"))
                self._out.send(member, MembersUpdate(new))
            self._install(new, "CS-11 left", now)
            self._send_view(new)
            self._end_publications(now)
        elif self.this in members:
            self._hand_over_mastership(now)

    def _hand_over_mastership(self, now: Millis) -> None:
        """Publish a view without this member, and stay until all have it: the next oldest is the master then."""
        view = self._joined()
        if not view.others(self.this):
            self._leave()
        else:
            new = view.with_change(self.this, frozenset({self.this}), ())
            self._out.record(events.MemberRemoved(self.this, new.version, "it left", "DESIGN 6 graceful shutdown"))
            self._hand_over = HandOver(new, now + self._config.join_acknowledgement_ms, self._out)

    def _end_hand_over(self, now: Millis) -> None:
        if self._hand_over is not None and self._hand_over.is_over(now):
            self._leave()

    def _leave(self) -> None:
        self._out.record(events.Left(self._joined().version))
        self._end("left")

    def _eject(self, by: MemberId, view: MembersView, rule: str) -> None:
        self._out.record(events.Ejected(by, view.version, rule))
        if self.wants_to_leave:
            self._leave()
        else:
            self._end("the cluster went on without this member", rejoin=view.members)

    def _end(self, reason: str, rejoin: tuple[MemberId, ...] = ()) -> None:
        self.view = self.master = self._claim = self._parting = self._hand_over = None
        self._publications.clear()
        self.is_over = True
        self._out.add(Finished(reason, rejoin))
