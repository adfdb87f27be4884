"""On the master: bring back a cluster that was switched off, when enough of it is here.

It goes on at once when all voters of its last stable view are here, and who took over from some without the majority; and after a grace
when the majority of the voters is, so that members which start a moment later keep their replicas. Each partition also needs a holder that has all of it. Until
then nothing is served, and time alone changes nothing: who is missing can have writes that nobody else has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.restart_wait import RestartWait
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.partition.recovery.restart import Restart, plan_restart
from phalanx.wire.restart_events import ClusterRestarted, ClustersMixed, FolderIsOld, RestartWaits
from phalanx.wire.table_messages import RestartAwaited, StoredSide

SENT_FROM_VERSION = 9
"""The cluster version from which members know `RestartAwaited`."""

NO_WAIT = RestartWait((), 0, lacks_majority=False, seen_ms=0)


class Restarting:
    """Decides when a cluster goes on with what its members have read from their folders."""

    def __init__(
        self,
        local: LocalContext,
        missing_voters: Callable[[], tuple[MemberId, ...] | None] = lambda: None,
        has_table: Callable[[], bool] = lambda: False,
        view_number: Callable[[], int | None] = lambda: 1,
    ) -> None:
        """`missing_voters`, `has_table`, `view_number`: as in `QuorumState`."""
        self._missing_voters, self.has_table, self._view_number = missing_voters, has_table, view_number
        self._out = local.out
        self._this = local.this
        self._grace_ms = local.config.restart_grace_ms
        self._has_enough_since: Millis | None = None
        """Since when it could go on without those that are missing; None: it cannot."""
        self._is_accepted = False
        """Whether an operator has said that it goes on without the majority."""
        self._retry_ms = local.config.retry_interval_ms
        self.wait: RestartWait | None = None
        """For whom the cluster waits, and why; None: it does not wait."""
        self._last_sent: RestartWait | None = None
        """What was sent to the other members last."""
        self._tell_again_at: Millis = 0
        self._named_old: frozenset[MemberId] = frozenset()
        """The members of which it was said that their folders are old."""
        self._made_of: tuple[object, ...] = ()
        """What `_plan` is made of; empty: there is none."""
        self._plan = Restart(None, {}, (), False)

    def __repr__(self) -> str:
        return f"Restarting({self.wait}, since={self._has_enough_since})"

    @property
    def waits_for(self) -> tuple[MemberId, ...]:
        """Return the former members for which the cluster waits, as far as they are known; empty: it does not wait."""
        return self.wait.members if self.wait is not None else ()

    def forget(self) -> None:
        """Forget everything: the cluster goes on, or another member leads."""
        self._has_enough_since = None
        self._is_accepted, self._made_of = False, ()
        self.wait = self._last_sent = None

    def accept(self) -> None:
        """Go on without those that are missing, as an operator says: what only they have stays dormant."""
        self._is_accepted, self._made_of = True, ()

    def tell(self, view: MembersView, now: Millis) -> None:
        """Tell the other members for whom the cluster waits: at once when that changes, and again and again, for those that join."""
        if self.wait is None or (self.wait == self._last_sent and now < self._tell_again_at):
            return
        self._last_sent, self._tell_again_at = self.wait, now + self._retry_ms
        for member in view.others(self._this) if view.speaks(SENT_FROM_VERSION) else ():
            self._out.send(member, RestartAwaited(self.wait))

    def consider(
        self, sides: Mapping[MemberId, StoredSide], now: Millis, others: Collection[MemberId] = ()
    ) -> Restart | None:
        """Return how the cluster goes on; None: it waits. `others`: as in `plan_restart`."""
        missing, number = self._missing_voters(), self._view_number()
        if number is None:
            # 1. A, B and C are back, and A makes the table before B and C have synced the view. 2. The power fails. 3. B and C, of which no
            # folder has that view, restart in another one of the same number, and would give A's versions to other rows.
            return None
        made_of = tuple(sides.items()), others, missing, number
        plan, is_new = self._plan, made_of != self._made_of
        if is_new:  # a plan looks at every partition, and a cluster can wait for days
            plan = plan_restart(sides, others, number, is_accepted=self._is_accepted)
            plan = self._plan = _with_missing(plan, missing)
            self._made_of = made_of
            self._tell_old(plan, sides)
        if (plan.lacks_majority or plan.lacking) and not self._is_accepted:
            self._has_enough_since = None
            if is_new:
                self._wait(plan, sides)
            return None
        absent = tuple(dict.fromkeys([*plan.absent_voters, *plan.absent_holders]))
        if absent and not self._is_accepted:
            if self._has_enough_since is None:
                self._has_enough_since = now
            if now - self._has_enough_since < self._grace_ms:
                if is_new:
                    self._wait(plan, sides)
                return None
        self.forget()
        if plan.table is not None:
            self._out.record(ClusterRestarted(plan.table.version, tuple(sides), absent))
        return plan

    def await_table(self, away: Collection[MemberId], partition_count: int) -> bool:
        """Wait where nobody is here who has read a table: for voters of the last stable view, or for whoever has one. Return False if
        there is nobody to wait for. `away`: members whose folders have what they held.

        1. C, which is new, joins A, which waits for B. 2. A ends. 3. Were C and others that have come the majority by then, they would
        begin everything empty.
        """
        missing, has_table = self._missing_voters(), self.has_table()
        if missing is None and not has_table:
            return False
        lacking = partition_count if has_table else 0
        # A member can be known by the incarnation for which its process votes, and by the last one.
        known = {address_of(each): each for each in (*(away if has_table else ()), *(missing or ()))}
        self._note(RestartWait(tuple(known.values()), lacking, missing is not None, seen_ms=0))
        return True

    def _tell_old(self, plan: Restart, sides: Mapping[MemberId, StoredSide]) -> None:
        """Say once of each member that its folder is an old one."""
        for member, start in plan.without_vote.items():
            if member not in self._named_old:
                self._out.record(FolderIsOld(member, sides[member].start, start))
        self._named_old = frozenset(plan.without_vote)

    def _wait(self, plan: Restart, sides: Mapping[MemberId, StoredSide]) -> None:
        seen_ms = max(side.seen_ms for side in sides.values())
        if plan.clusters:
            self._note(RestartWait((), 0, True, seen_ms, plan.clusters))
            return
        # Whoever is here can lack what others have of a partition, and can have left its vote to those that stayed.
        here = {each for side in sides.values() for each in (*side.formers, *side.incarnations, side.history.voter)}
        rows = [[former for former in row if former not in here] or row for row in plan.lacking.values()]
        voters = [voter for voter in plan.absent_voters if voter not in here]
        # A member can be known by the incarnation that held data, and by the one for which its process votes.
        holders = {former for row in rows for former in row}
        known = {address_of(each): each for each in (*sorted(voters), *sorted(holders), *sorted(plan.absent_holders))}
        waits_for = tuple(known[address] for address in sorted(known))
        self._note(RestartWait(waits_for, len(plan.lacking), plan.lacks_majority, seen_ms))

    def _note(self, wait: RestartWait) -> None:
        """Note for whom the cluster waits, and record it whenever these are others."""
        before, self.wait = self.wait or NO_WAIT, wait
        if (wait.members, wait.clusters) != (before.members, before.clusters):
            self._record(wait)

    def _record(self, wait: RestartWait) -> None:
        if wait.clusters:
            one, *others = wait.clusters
            self._out.record(ClustersMixed(one, tuple(member for each in others for member in each)))
        else:
            self._out.record(RestartWaits(wait.members, wait.lacking, wait.lacks_majority))


def _with_missing(plan: Restart, missing: tuple[MemberId, ...] | None) -> Restart:
    """Return a plan that waits for these voters, too. `missing`: of a view that became stable since the folders were read; None: the majority
    is here.

    1. B and C of A, B and C come back, and wait for A. D and E join them, and that list is stable. 2. C is cut off from these, and A comes
    back to it. 3. By what they have read they are the majority. So are B, D and E, when their processes start again.
    """
    if missing is None:
        return plan
    return plan._replace(lacks_majority=True, absent_voters=tuple(dict.fromkeys([*plan.absent_voters, *missing])))
