"""What a member learns from signs of life: heartbeats, answers to probes, confirmations, and leases asked for and granted."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.heartbeats.ticker import Ticker
from phalanx.membership.lease_exchange import ask_for_lease, grant_lease, note_voter, renew_lease
from phalanx.membership.merge.divergence import Divergence
from phalanx.membership.partial.resolution import Resolution
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.views.administration import Administration
from phalanx.membership.views.cluster_version import ClusterVersion
from phalanx.wire.messages import (
    Heartbeat,
    LeaseGrant,
    LeaseRequest,
    LifeAnswer,
    LifeProbe,
    MasterConfirmation,
    ViewIsStable,
)


class LivenessDispatch:
    """Dispatch an incoming heartbeat to the failure detector, the lease and the confirmations."""

    def __init__(
        self,
        state: MembershipState,
        administration: Administration,
        divergence: Divergence,
        resolution: Resolution,
        ticker: Ticker,
        cluster_version: ClusterVersion,
    ) -> None:
        self._state = state
        self._administration = administration
        self._divergence = divergence
        self._resolution = resolution
        self._ticker = ticker
        self._cluster_version = cluster_version
        self._out = state.out

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        state = self._state
        view = state.view
        if view is None:
            return
        if sender not in state.members:
            self._divergence.on_stranger(sender, message)
            return
        state.suspicions.heard(sender, now, "CS-51 CS-52")
        self._divergence.heard(sender)
        state.observe_clock(message.clock, now)
        if state.is_master:
            self._administration.heal(sender, message.view_version)
            if not state.watching.is_ring:
                self._resolution.on_report(sender, message.suspects)
        elif sender == state.master:
            state.suspicions.confirmed(sender, now)
            if message.is_stable:
                state.quorum.is_told_stable(message.view_version, message.view_maker)
        if message.wants_answer:
            self._ticker.answer(sender, now)
        if message.view_version > view.version:
            self._ticker.on_newer_version(message.view_version, now)
        self._administration.repeat_hand_over(sender)

    def on_view_is_stable(self, sender: MemberId, message: ViewIsStable) -> None:
        if sender == self._state.master:
            self._state.quorum.is_told_stable(message.version, message.maker)

    def on_life_probe(self, sender: MemberId, message: LifeProbe, now: Millis) -> None:
        if sender in self._state.members:
            self._out.send(sender, LifeAnswer())
        elif self._state.view is not None:
            self._divergence.on_stranger(sender, message)

    def on_life_answer(self, sender: MemberId, message: LifeAnswer, now: Millis) -> None:
        state = self._state
        if sender in state.suspicions.suspected:
            state.suspicions.heard(sender, now, "CS-51 it answers" if sender == state.master else "CS-52 it answers")

    def on_master_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        if self._state.role is not Role.MASTER:
            return
        is_member = sender in self._state.members
        if is_member:
            self._cluster_version.on_confirmation(sender, message, now)
        self._administration.on_confirmation(sender, message, now)
        if is_member:
            self._state.observe_clock(message.clock, now)
            if message.wants_answer:
                self._ticker.answer(sender, now)

    def on_lease_request(self, sender: MemberId, message: LeaseRequest, now: Millis) -> None:
        state = self._state
        if not state.is_master or sender not in state.members:
            return
        view, echo = state.joined(), message.echo
        if not state.quorum.is_removal_committed and (message.view_version, message.view_maker) != (
            view.version,
            view.maker,
        ):
            # It may not know yet who was removed, and may count with them once its promise is over.
            echo = 0
        state.lease.on_request(sender, message.clock, echo)
        if echo:
            note_voter(state, sender, message.view_version, message.view_maker)
        renew_lease(state, now)
        grant_lease(state, sender, now)

    def on_lease_grant(self, sender: MemberId, message: LeaseGrant, now: Millis) -> None:
        state = self._state
        if state.role is not Role.SLAVE or sender != state.master:
            return
        if state.lease.on_grant(sender, message.stamp, message.clock, message.granted_ms):
            ask_for_lease(state, sender, now)
