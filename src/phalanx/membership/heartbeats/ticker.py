"""What a member sends by the clock: heartbeats, confirmations of its master, and what reopens broken connections.

A suspected member gets no heartbeat (CS-38), a suspected master no confirmation (CS-39), so two that suspect each other
would stay apart for ever: each asks the other with a probe, and its answer proves that the way there and back is open
again (1. nothing of B's reaches A, which suspects B and falls silent; 2. B suspects A; 3. the way is open again). In large clusters heartbeats
go to the neighbours on the ring only, suspicions are told to the member that has to act on them, and the master is
confirmed so much rarer that its load does not grow with the cluster; it answers each confirmation with a heartbeat.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.versions import FIRST_RELEASE
from phalanx.membership.lease_exchange import ask_for_lease, renew_lease
from phalanx.membership.outgoing import heartbeat_to, send_heartbeat
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import (
    Heartbeat,
    LeaveRequest,
    LifeProbe,
    LiteRequest,
    MasterConfirmation,
    SuspicionReport,
)


class Ticker:
    """The regular messages of one member."""

    def __init__(self, state: MembershipState) -> None:
        self._state = state
        self._out = state.out
        self._next_heartbeat: Millis | None = None
        """None: not joined yet."""
        self._next_confirmation = 0
        self._confirmed: MemberId | None = None
        """The master that this member confirmed last; a new master is confirmed at the next tick."""
        self._asked_for_version = 0
        """The version of the newest list that a heartbeat named and that this member has requested from its master."""

    def next_deadline(self) -> Millis:
        """Return the next regular tick, or the time to look at suspicions."""
        return self._state.suspicions.next_deadline(self._next_heartbeat or 0)

    def note_told(self) -> None:
        """Note that the driver is told now when to come back."""
        self._state.suspicions.note_told(self._next_heartbeat or 0)

    def begin(self, now: Millis) -> None:
        """This member has joined: it speaks at once."""
        if self._next_heartbeat is None:
            self._next_heartbeat = now

    def on_time(self, now: Millis) -> bool:
        """Whether it was time for a heartbeat."""
        state = self._state
        is_due = self._next_heartbeat is not None and now >= self._next_heartbeat
        if is_due:
            self._next_heartbeat = now + state.config.heartbeat_interval_ms
            self._tick(now)
        for member in state.suspicions.to_reconnect(now):
            send_heartbeat(state, member)
        return is_due

    def _tick(self, now: Millis) -> None:
        state = self._state
        view, suspected = state.joined(), state.suspicions.suspected
        state.gone.note_time(now)
        if state.is_master:
            renew_lease(state, now)
        is_stable = state.is_master and state.quorum.is_stable
        heartbeat = Heartbeat(view.version, view.maker, clock=state.read_clock(now), is_stable=is_stable)
        # Who hands the mastership over is in the others' list no more, and would be complained of.
        for member in state.watching.heartbeats_to if state.role is not Role.HANDING_OVER else ():
            if member not in suspected:
                to_master = member == state.master
                self._out.send(member, heartbeat_to(state, member, heartbeat.clock) if to_master else heartbeat)
        probe = LifeProbe(view.version, view.maker)
        for member in suspected:
            self._out.send(member, probe)
        master = state.master
        if master is None or master == state.this or master in suspected:
            pass
        elif now >= self._next_confirmation or master != self._confirmed:
            self._confirm(master, now)
            if state.wants_to_leave:
                self._out.send(master, LeaveRequest())
            if state.wants_lite is not None:
                self._out.send(master, LiteRequest(state.wants_lite))
        if state.watching.is_ring:
            self._report_suspects()

    def _confirm(self, master: MemberId, now: Millis) -> None:
        state = self._state
        view = state.joined()
        self._confirmed = master
        config = state.config
        pause_ms = config.confirmation_interval_ms * state.watching.pace
        # In a large cluster, too, a lease must be renewed before it is over.
        self._next_confirmation = now + (min(pause_ms, config.lease_ms // 4) if config.lease_ms else pause_ms)
        wants_answer = state.watching.is_ring and master not in state.watching.watched
        release = state.release if view.known_releases().get(state.this, FIRST_RELEASE) != state.release else None
        confirmation = MasterConfirmation(
            view.version, view.maker, state.table_news.version, wants_answer, state.read_clock(now), release,
            state.gone.told_to_master(view),
        )  # fmt: skip
        self._out.send(master, confirmation)
        ask_for_lease(state, master, now)

    def _report_suspects(self) -> None:
        """Tell the member that has to act: the master, or, if it is suspected too, who would follow it."""
        state = self._state
        suspected = state.suspicions.suspected
        if not suspected or state.is_master:
            return
        acts = next(member for member in state.joined().members if member not in suspected)
        if acts != state.this:
            if acts not in state.watching.heartbeats_to:
                # It may have gone on without this member, and can tell it so only by the view that a heartbeat names.
                send_heartbeat(state, acts)
            for suspect in sorted(suspected):
                self._out.send(acts, SuspicionReport(suspect, suspected[suspect]))

    def report_now(self) -> None:
        """Report new suspicions at once: large clusters do not wait for the tick."""
        if self._state.watching.is_ring and self._state.view is not None:
            self._report_suspects()

    def on_newer_version(self, version: int, now: Millis) -> None:
        """A heartbeat names a list newer than this member's: its master is told what it has, and sends the latest."""
        state = self._state
        if state.watching.is_ring and state.role is Role.SLAVE and version > self._asked_for_version:
            self._asked_for_version = version
            if state.master is not None and state.master not in state.suspicions.suspected:
                self._confirm(state.master, now)

    def answer(self, sender: MemberId, now: Millis) -> None:
        """The sender asked whether this member lives."""
        if sender not in self._state.suspicions.suspected:
            send_heartbeat(self._state, sender, self._state.read_clock(now))
