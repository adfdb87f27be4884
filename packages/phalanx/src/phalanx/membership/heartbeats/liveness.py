"""Dispatch signs of life: heartbeats, probes, and confirmations of the master."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.local_context import LocalContext
from phalanx.membership.merge.divergence import Divergence
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.wire.messages import Heartbeat, LifeAnswer, LifeProbe, MasterConfirmation, ReachAnswer, ReachProbe


class HeartbeatTaker(Protocol):
    """A rule that follows the heartbeats of members of the view."""

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Handle a heartbeat of a member."""


class ConfirmationTaker(Protocol):
    """A rule by which a master follows the confirmations of its slaves."""

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Handle a confirmation of a member."""


class HeartbeatDispatch:
    """Dispatches heartbeats."""

    def __init__(
        self, local: LocalContext, state: MembershipState, divergence: Divergence, takers: Sequence[HeartbeatTaker]
    ) -> None:
        """`takers`: the rules that follow heartbeats of members, in the order in which they get them."""
        self._local = local
        self._state = state
        self._divergence = divergence
        self._takers = takers

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Give a member's heartbeat to each rule that follows heartbeats, and a stranger's to `Divergence`."""
        if self._state.view is None:
            return
        if sender not in self._state.members:
            self._divergence.on_stranger(sender, message)
            return
        self._local.observe_clock(message.clock, now)
        for taker in self._takers:
            taker.on_heartbeat(sender, message, now)

    def on_life_probe(self, sender: MemberId, message: LifeProbe, now: Millis) -> None:
        """Answer a member that suspects this one; give a stranger's probe to `Divergence`."""
        if sender in self._state.members:
            self._local.out.send(sender, LifeAnswer())
        elif self._state.view is not None:
            self._divergence.on_stranger(sender, message)

    def on_reach_probe(self, sender: MemberId, message: ReachProbe) -> None:
        """Answer a joiner that has to show that it reaches this member, which can be a joiner itself."""
        if self._state.role is not Role.OVER:
            self._local.out.send(sender, ReachAnswer(message.request_id))


class ConfirmationDispatch:
    """Dispatches confirmations of the master."""

    def __init__(
        self, local: LocalContext, state: MembershipState, divergence: Divergence, takers: Sequence[ConfirmationTaker]
    ) -> None:
        """`takers`: the rules that follow confirmations, in the order in which they get them."""
        self._local = local
        self._state = state
        self._divergence = divergence
        self._takers = takers

    def on_master_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Give a slave's confirmation (CS-28) to each rule that follows them, and a stranger's to `Divergence`."""
        if self._state.role is not Role.MASTER:
            return
        if sender not in self._state.members:
            self._divergence.on_stranger_confirmation(sender, message)
            return
        self._local.observe_clock(message.clock, now)
        for taker in self._takers:
            taker.on_confirmation(sender, message, now)
