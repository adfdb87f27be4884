"""On the master: bring back a cluster that was switched off, when enough of it is here.

It goes on at once when all voters of its last stable view are here, and after a grace when the majority of them is, so
that members which start a moment later keep their replicas. Each partition also needs a holder that has all of it. Until
then nothing is served, and time alone changes nothing: who is missing can have writes that nobody else has.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.machine.local_context import LocalContext
from phalanx.partition.recovery.restart import Restart, plan_restart
from phalanx.wire.table_events import ClusterRestarted, FolderIsOld, RestartWaits
from phalanx.wire.table_messages import StoredSide


class Restarting:
    """Decides when a cluster goes on with what its members have read from their folders."""

    def __init__(self, local: LocalContext) -> None:
        self._out = local.out
        self._grace_ms = local.config.restart_grace_ms
        self._has_enough_since: Millis | None = None
        """Since when it could go on without those that are missing; None: it cannot."""
        self._is_accepted = False
        """Whether an operator has said that it goes on without the majority."""
        self.is_waiting = False
        self._named_old: frozenset[MemberId] = frozenset()
        """The members of which it was said that their folders are old."""
        self.waits_for: tuple[MemberId, ...] = ()
        """The former members for which the cluster waits, as far as they are known; empty: it does not wait."""
        self._sides: tuple[tuple[MemberId, StoredSide], ...] = ()
        """Those that `_plan` is made of; empty: there is none."""
        self._plan = Restart(None, {}, (), False)

    def __repr__(self) -> str:
        return f"Restarting(waits_for={list(self.waits_for)}, since={self._has_enough_since})"

    def forget(self) -> None:
        """Forget everything: the cluster goes on, or another member leads."""
        self._has_enough_since = None
        self._is_accepted, self.is_waiting = False, False
        self.waits_for, self._sides = (), ()

    def accept(self) -> None:
        """Go on without those that are missing, as an operator says: what only they have stays dormant."""
        self._is_accepted = True

    def consider(self, sides: Mapping[MemberId, StoredSide], now: Millis) -> Restart | None:
        """Return how the cluster goes on; None: it waits."""
        plan, is_new = self._plan, tuple(sides.items()) != self._sides
        if is_new:  # a plan looks at every partition, and a cluster can wait for days
            plan = self._plan = plan_restart(sides)
            self._sides = tuple(sides.items())
            self._tell_old(plan, sides)
        if (plan.lacks_majority or plan.lacking) and not self._is_accepted:
            self._has_enough_since = None
            if is_new:
                self._wait(plan)
            return None
        if plan.absent_voters and not self._is_accepted:
            if self._has_enough_since is None:
                self._has_enough_since = now
            if now - self._has_enough_since < self._grace_ms:
                if is_new:
                    self._wait(plan)
                return None
        self.forget()
        if plan.table is not None:
            self._out.record(ClusterRestarted(plan.table.version, tuple(sides), plan.absent_voters))
        return plan

    def _tell_old(self, plan: Restart, sides: Mapping[MemberId, StoredSide]) -> None:
        """Say once of each member that its folder is an old one."""
        for member, start in plan.without_vote.items():
            if member not in self._named_old:
                self._out.record(FolderIsOld(member, sides[member].start, start))
        self._named_old = frozenset(plan.without_vote)

    def _wait(self, plan: Restart) -> None:
        holders = {former for row in plan.lacking.values() for former in row}
        self.is_waiting = True
        # A member can be known by the incarnation that held data, and by the one for which its process votes.
        known = {address_of(each): each for each in (*sorted(plan.absent_voters), *sorted(holders))}
        waits_for = tuple(known[address] for address in sorted(known))
        if waits_for != self.waits_for:
            self.waits_for = waits_for
            self._out.record(RestartWaits(waits_for, len(plan.lacking), plan.lacks_majority))
