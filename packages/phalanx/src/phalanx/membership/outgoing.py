"""The messages by which a member says how it sees the membership: lists, heartbeats, probes, explicit suspicions."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.departure import Departures
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.majority import Majority
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import (
    ExplicitSuspicion,
    Heartbeat,
    LifeProbe,
    MasterConfirmation,
    MembersUpdate,
    SuspicionReport,
)
from phalanx.wire.suspicion_events import MemberQuestioned, ViewsDiverged
from phalanx.wire.view_events import OutdatedViewHealed


class ViewPublisher:
    """Sends this member's view to others."""

    def __init__(self, local: LocalContext, state: MembershipState, majority: Majority, gone: GoneMembers) -> None:
        self._this = local.this
        self._out = local.out
        self._state = state
        self._majority = majority
        self._gone = gone

    def publish(self, skip: Collection[MemberId] = ()) -> None:
        """Send the whole view to each of its members, but some (CS-18)."""
        update = self.members_update()
        for member in update.view.members:
            if member != self._this and member not in skip:
                self._out.send(member, update)

    def accept_view(self, view_version: int, now: Millis) -> str:
        """Make the present view the stable one, on the master, because an operator says so. Return why it cannot;
        empty: it is.
        """
        view = self._state.joined()
        if view_version != view.version:
            return (
                f"the member list has version {view.version} by now, not {view_version}: look at it, and say it again"
            )
        self._majority.quorum.accept()
        self.publish()
        self._majority.renew(now)
        return ""

    def members_update(self) -> MembersUpdate:
        """Return the present view as this member sends it to others."""
        state = self._state
        return MembersUpdate(state.joined(), state.has_started, self._majority.quorum.footing, *self._gone.to_send())

    def farewell(self, view: MembersView) -> MembersUpdate:
        """Return the view without them for members that have left in good order; it has no footing."""
        former, departures = self._gone.to_send()
        return MembersUpdate(view, self._state.has_started, former=former, departures=departures)

    def handover(self, view: MembersView, own: Departures) -> MembersUpdate:
        """Return the last view of this member, a leaving master, with its vote, and what others are to note of its departure."""
        footing = self._majority.quorum.hand_over(view)
        former, departures = self._gone.to_send()
        return MembersUpdate(view, self._state.has_started, footing, former, (*departures, *own))

    def send(self, to: MemberId, update: MembersUpdate) -> None:
        """Send a list to one member."""
        self._out.send(to, update)

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Check, as the master, whether a member has the list."""
        if self._state.is_master:
            self._heal(sender, message.view_version)

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Check, in large clusters, whether a slave has the list; in others its heartbeat says it."""
        if self._state.watching.is_ring:
            self._heal(sender, message.view_version)

    def _heal(self, sender: MemberId, version: int) -> None:
        """Send the latest list to a member that has an older one than this master (EL-32)."""
        view = self._state.joined()
        if version < view.version:
            self._out.record(OutdatedViewHealed(sender, version, view.version))
            self._out.send(sender, self.members_update())

    def send_explicit_suspicion(self, peer: MemberId, version: int, maker: MemberId, what: str, rule: str) -> None:
        """Send an explicit suspicion: suspect me, as far as your view `version` by `maker` is concerned (CS-40)."""
        self._out.record(ViewsDiverged(peer, what, rule))
        is_forced_out = peer in self._gone.former.forced_out
        self._out.send(peer, ExplicitSuspicion(version, maker, self._state.view, is_forced_out))


class Heartbeats:
    """Sends heartbeats, questions whether members live, and reports of suspicions."""

    def __init__(self, local: LocalContext, state: MembershipState, suspicions: Suspicions, majority: Majority) -> None:
        self._local = local
        self._state = state
        self._suspicions = suspicions
        self._majority = majority

    def beat(self, now: Millis) -> None:
        """Send a heartbeat to each member that expects one, and a probe to each suspected member."""
        state, out = self._state, self._local.out
        view, suspected = state.joined(), self._suspicions.suspected
        is_stable = self._majority.tells_stable
        heartbeat = Heartbeat(view.version, view.maker, clock=self._local.read_clock(now), is_stable=is_stable)
        # A master that hands over is not in the others' list any more, and would be complained of.
        for member in state.watching.heartbeats_to if state.role is not Role.HANDING_OVER else ():
            if member not in suspected:
                to_master = member == state.master
                out.send(member, self._heartbeat_to(member, heartbeat.clock) if to_master else heartbeat)
        probe = LifeProbe(view.version, view.maker)
        for member in suspected:
            out.send(member, probe)

    def send(self, to: MemberId, clock: int = 0) -> None:
        """Send a heartbeat, which asks again whether the member lives if that is open: a question is lost with its
        connection.
        """
        self._local.out.send(to, self._heartbeat_to(to, clock, wants_answer=self._suspicions.is_questioned(to)))

    def _heartbeat_to(self, to: MemberId, clock: int, *, wants_answer: bool = False) -> Heartbeat:
        """Make a heartbeat. The master's lists the members that this one cannot reach; an empty list takes reports back."""
        state, view = self._state, self._state.joined()
        suspects: tuple[MemberId, ...] = ()
        suspected = self._suspicions.suspected
        if to == state.master and suspected and self._local.config.partial_resolution_heartbeats:
            # In a large cluster suspicions are reported one by one, to the member that has to act on them.
            suspects = tuple(sorted(suspected)) if not state.watching.is_ring else ()
        return Heartbeat(view.version, view.maker, wants_answer, clock, suspects, self._majority.tells_stable)

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Answer a member that asks with a heartbeat whether this one lives."""
        if message.wants_answer:
            self._answer(sender, now)

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Answer a slave that asks for a heartbeat of this master."""
        if message.wants_answer:
            self._answer(sender, now)

    def _answer(self, sender: MemberId, now: Millis) -> None:
        if sender not in self._suspicions.suspected:
            self.send(sender, self._local.read_clock(now))

    def question(self, suspects: Collection[MemberId], reported_by: MemberId, now: Millis) -> None:
        """Ask, in large clusters, members that another one suspects and this one does not watch whether they live."""
        if not self._state.watching.is_ring:
            return
        for suspect in suspects:
            if suspect != self._local.this and self._suspicions.question(suspect, now):
                self._local.out.record(MemberQuestioned(suspect, reported_by, "EL-45"))
                self.send(suspect)

    def report_suspects(self) -> None:
        """Report suspicions, in large clusters, to the oldest trusted member, which has to act on them."""
        state, suspected = self._state, self._suspicions.suspected
        if not state.watching.is_ring or state.view is None or not suspected or state.is_master:
            return
        acts = next(member for member in state.joined().members if member not in suspected)
        if acts != self._local.this:
            if acts not in state.watching.heartbeats_to:
                # It can have gone on without this member, and says so only in answer to a heartbeat, which names a view.
                self.send(acts)
            for suspect in sorted(suspected):
                self._local.out.send(acts, SuspicionReport(suspect, suspected[suspect]))

    def trusted_master(self) -> MemberId | None:
        """Return the master if it is another member and not suspected."""
        master = self._state.master
        return master if master != self._local.this and master not in self._suspicions.suspected else None
