"""Which members this one expects to hear, and which older members it trusts."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.outgoing import Heartbeats
from phalanx.membership.state import MembershipState
from phalanx.membership.view_change import ViewChange
from phalanx.wire.messages import Heartbeat, LifeAnswer, MasterConfirmation


class PeerWatch:
    """Applies suspicions to the present view."""

    def __init__(
        self, local: LocalContext, state: MembershipState, suspicions: Suspicions, heartbeats: Heartbeats
    ) -> None:  # fmt: skip
        self._this = local.this
        self._config = local.config
        self._state = state
        self._suspicions = suspicions
        self._heartbeats = heartbeats

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Judge the members of the view, and expect heartbeats of those that are watched."""
        self._suspicions.watch(self._state.members, self._state.watching.watched, now)
        self.expect_confirmations(now)

    def expect_confirmations(self, now: Millis) -> None:
        """Expect confirmations of all slaves, as the master; answers of the master, as a slave of a large cluster (CS-29)."""
        state = self._state
        expected: Collection[MemberId] = ()
        if state.is_master:
            expected = state.joined().others(self._this)
        elif state.watching.is_ring and state.master is not None and state.master not in state.watching.watched:
            expected = (state.master,)
        # Two rare confirmations can be lost with their connections. A limit in proportion to their rarity would let a member
        # that only the master does not hear stay for minutes.
        config, rarer = self._config, state.watching.pace - 1
        timeout_ms = config.confirmation_timeout_ms + 2 * rarer * config.confirmation_interval_ms
        self._suspicions.expect_confirmations(expected, timeout_ms, now)

    def on_heartbeat(self, sender: MemberId, message: Heartbeat, now: Millis) -> None:
        """Take a heartbeat as a sign of life, and the master's, in a large cluster, as its answer."""
        self._suspicions.note_alive(sender, now, "CS-51 CS-52")
        if not self._state.is_master and sender == self._state.master:
            self._suspicions.note_confirmation(sender, now)

    def on_confirmation(self, sender: MemberId, message: MasterConfirmation, now: Millis) -> None:
        """Note that a slave follows this master."""
        self._suspicions.note_confirmation(sender, now)

    def on_life_answer(self, sender: MemberId, message: LifeAnswer, now: Millis) -> None:
        """End the suspicion of a member that answers a probe."""
        if sender in self._suspicions.suspected:
            is_master = sender == self._state.master
            self._suspicions.note_alive(sender, now, "CS-51 it answers" if is_master else "CS-52 it answers")

    def note_alive(self, sender: MemberId, now: Millis, rule: str) -> None:
        """Take a message of a member as a sign of life."""
        self._suspicions.note_alive(sender, now, rule)

    def trusted_older_than(self, member: MemberId) -> tuple[MemberId, ...]:
        """Return the members older than this one that are not suspected."""
        older = self._state.joined().older_than(member)
        return tuple(each for each in older if each not in self._suspicions.suspected)

    def is_in_doubt(self, member: MemberId, now: Millis) -> bool:
        """Return whether the member can be dead, and it will soon be known."""
        return self._suspicions.is_in_doubt(member, now)

    def question(self, suspects: Collection[MemberId], reported_by: MemberId, now: Millis) -> None:
        """Ask, in large clusters, members that another one suspects whether they live."""
        self._heartbeats.question(suspects, reported_by, now)
