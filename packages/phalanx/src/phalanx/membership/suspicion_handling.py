"""What follows from suspicions: removal on the master, elsewhere a claim or a report."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.membership.claim.succession import Succession
from phalanx.membership.outgoing import Heartbeats
from phalanx.membership.role import Role
from phalanx.membership.state import MembershipState
from phalanx.membership.views.removals import Removals


class SuspicionHandling:
    """Acts on the suspects that failure detectors and messages named."""

    def __init__(
        self, state: MembershipState, removals: Removals, succession: Succession, heartbeats: Heartbeats
    ) -> None:
        self._state = state
        self._removals = removals
        self._succession = succession
        self._heartbeats = heartbeats

    def act_on(self, suspects: list[MemberId], now: Millis) -> None:
        """Act on new suspicions: the master removes; a slave claims where it suspects every older member, and reports."""
        state = self._state
        if not suspects or state.view is None:
            return
        if state.is_master:
            self._removals.remove(suspects, "CS-35", now)
        elif state.role in (Role.SLAVE, Role.CLAIMING):
            self._succession.leave_out(suspects, now)
            self._heartbeats.report_suspects()
