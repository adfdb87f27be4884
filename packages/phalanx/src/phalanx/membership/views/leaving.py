"""How members leave the view in good order: those that asked, when they have handed over their replicas; the master last."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.departure import Departures
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.incarnation import Incarnation
from phalanx.membership.majority import Majority
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.outgoing import ViewPublisher
from phalanx.membership.role import RoleEvent
from phalanx.membership.state import MembershipState
from phalanx.membership.views.admission import Admission
from phalanx.membership.views.master_handover import MasterHandover
from phalanx.membership.views.removals import IT_LEFT, Removals
from phalanx.membership.views.stopping import Stopping
from phalanx.wire.join_events import LeaveStarted
from phalanx.wire.messages import Heartbeat, LeaveRequest, MembersAck
from phalanx.wire.view_events import MemberRemoved

LEFT = "PX-01"


class LeaveRequests:
    """Takes the requests of members that want to leave."""

    def __init__(self, local: LocalContext, state: MembershipState, duties: MasterDuties, stopping: Stopping) -> None:
        self._local = local
        self._state = state
        self._duties = duties
        self._stopping = stopping

    def on_leave_request(self, sender: MemberId, message: LeaveRequest, now: Millis) -> None:
        """Start the leaving of a member that asks for it, as the master."""
        if self._state.is_master and sender in self._state.members and self.begin_leave(sender, message, now):
            to_hand_over = 0 if message.keeps else self._duties.replicas_to_hand_over(sender, self._state.joined())
            self._local.out.record(LeaveStarted(sender, to_hand_over, keeps=message.keeps))
        elif self._state.is_master:
            self._stopping.repeat(sender)

    def begin_leave(self, member: MemberId, request: LeaveRequest, now: Millis) -> bool:
        """Move, as the master, the replicas of a member away, because it asked to leave. Return whether that is new."""
        is_new = self._duties.begin_leaving(member, request, self._state.joined(), now)
        if is_new:
            self._state.tell_change()
        return is_new

    def stop_all(self, now: Millis) -> None:
        """Let the whole cluster stop, as the master, because an operator says so."""
        view = self._state.joined()
        self._duties.stops_all = True
        for member in view.members:
            self._duties.begin_leaving(member, LeaveRequest(keeps=True), view, now)
        self._state.tell_change()


class LastAcks:
    """Members that have left: their last acknowledgements, and their votes."""

    def __init__(
        self, state: MembershipState, duties: MasterDuties, majority: Majority, publisher: ViewPublisher
    ) -> None:  # fmt: skip
        self._state = state
        self._duties = duties
        self._majority = majority
        self._publisher = publisher
        self._until: Millis = 0
        """Until when a leaving master waits for acknowledgements of members that have left."""
        self._awaits = False
        """Whether that time is not over yet."""

    @property
    def _leaves(self) -> bool:
        """Whether this member, the master, leaves too."""
        return self._duties.has_asked(self._state.master)

    @property
    def due_at(self) -> Millis | None:
        """When a leaving master stops to wait; None: it does not wait."""
        return self._until if self._awaits and self._leaves else None

    def on_time(self, now: Millis) -> None:
        """Continue to leave, as the master, when it has waited long enough."""
        if self._awaits and self._leaves and now >= self._until:
            self._awaits = False
            self._state.tell_change()  # the coordinator then says again that this member has handed over its replicas

    def own_departure(self) -> Departures:
        """Return what others are to note of this master when it leaves, because it stops, and comes back with its folder; or nothing."""
        return self._duties.departure_if_stopping(self._state.joined())

    def are_over(self, now: Millis) -> bool:
        """Return whether no acknowledgement is waited for any more.

        1. B and E leave A and C, which have two of four votes then. 2. A, the master, leaves too before B and E have
        said that they are over. 3. No member hears it, and C never has the majority again.
        """
        return not self._duties.departing or now >= self._until

    def split_leavers(self, members: Sequence[MemberId]) -> tuple[list[MemberId], bool]:
        """Return those of these members that asked to leave, except this one, and whether this one did."""
        this, leavers = self._state.master, [member for member in members if self._duties.has_asked(member)]
        return [member for member in leavers if member != this], this in leavers

    def send_farewell(self, members: Sequence[MemberId], until: Millis) -> None:
        """Tell members that the next view is without them, and expect their last acknowledgements until then."""
        view = self._state.joined()
        view = view.with_change(view.master, frozenset(members), ())
        self._until = until
        self._awaits = True
        update = self._publisher.farewell(view)
        quorum = self._majority.quorum
        keep_votes = quorum.keep_votes(view)
        for member in members:
            voter = None if keep_votes else quorum.voices.get(member, member)
            self._duties.departing[member] = view.version, voter
            self._publisher.send(member, update)

    def on_ack(self, sender: MemberId, message: MembersAck) -> bool:
        """Note which member has the view, or says that it is over. Return whether a view with its vote is to be
        published.

        1. This view has no majority without D, which leaves. 2. C gets it, and D's last acknowledgement comes. 3. C
        says that it has this view, and is cut off: it counts for those that are the majority of the view before.
        """
        state, departing = self._state, self._duties.departing
        if sender in state.members:
            self._majority.note_view(sender, message.version, message.maker)
        elif sender in departing and departing[sender][0] == message.version and message.maker == state.master:
            _, voter = departing.pop(sender)
            if voter is not None and self._majority.quorum.record_departure(voter):
                return True
            if self._leaves and not departing:
                state.tell_change()
        return False

    def end(self) -> None:
        """End with this incarnation."""
        self._duties.departing.clear()


class Resignation:
    """How this member, the master, leaves itself."""

    def __init__(
        self, local: LocalContext, state: MembershipState, publisher: ViewPublisher, incarnation: Incarnation
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._publisher = publisher
        self._incarnation = incarnation
        self.hand_over: MasterHandover | None = None
        """Set once this member has made a view without itself: it decides nothing any more."""

    def time_limit(self, now: Millis) -> Millis:
        """Return until when a last view that is sent now is waited for."""
        return now + self._local.config.join_acknowledgement_ms

    def resign(self, own: Departures, now: Millis) -> MembersView | None:
        """Publish a view without this member, whose oldest is the next master, and wait until all have it. None: it is
        alone. `own`: what they are to note of its departure.
        """
        this, out = self._local.this, self._local.out
        view = self._state.joined()
        if not view.others(this):
            self._incarnation.leave()
            return None
        new = view.with_change(this, frozenset({this}), ())
        out.record(MemberRemoved(this, new.version, IT_LEFT, LEFT))
        update = self._publisher.handover(new, own)
        self._state.follow(this, RoleEvent.HANDS_OVER)
        self.hand_over = MasterHandover(update, self.time_limit(now), out)
        return new

    def on_ack(self, sender: MemberId, message: MembersAck, now: Millis) -> None:
        """Note that a member knows the next master."""
        if self.hand_over is not None:
            self.hand_over.on_ack(sender, message.version)
            self.end_if_over(now)

    def end_if_over(self, now: Millis) -> None:
        """Leave when all know the next master, or the time is over."""
        if self.hand_over is not None and self.hand_over.is_over(now):
            successors, self.hand_over = self.hand_over.view, None
            self._incarnation.leave(successors)

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Tell a member that still speaks to this one which member is the master now."""
        self.repeat(sender)

    def repeat(self, member: MemberId) -> None:
        """Tell a member that has perhaps not heard which member is the master now."""
        if self.hand_over is not None:
            self.hand_over.repeat(member)

    def end(self) -> None:
        """End with this incarnation."""
        self.hand_over = None


class Leaving:
    """Completes the leaving of members."""

    def __init__(
        self, last_acks: LastAcks, removals: Removals, resignation: Resignation, admission: Admission
    ) -> None:  # fmt: skip
        self.last_acks = last_acks
        self._removals = removals
        self.resignation = resignation
        self._admission = admission

    def complete_leaving(self, members: Sequence[MemberId], now: Millis) -> None:
        """Remove those of these members that asked to leave: they have handed over their replicas. The master leaves last."""
        others, leaves_itself = self.last_acks.split_leavers(members)
        if others:
            self.last_acks.send_farewell(others, self.resignation.time_limit(now))
            self._removals.remove(others, LEFT, now, reasons=dict.fromkeys(others, IT_LEFT))
        elif leaves_itself and self.last_acks.are_over(now):
            successors = self.resignation.resign(self.last_acks.own_departure(), now)
            if successors is not None:
                self._admission.leave_to(successors)

    def on_ack(self, sender: MemberId, message: MembersAck, now: Millis) -> None:
        """Note, on the master, which member has the view, or says that it is over."""
        if self.last_acks.on_ack(sender, message):
            self._admission.publish_anew(LEFT, now)

    def end(self) -> None:
        """End with this incarnation."""
        self.last_acks.end()
        self.resignation.end()
