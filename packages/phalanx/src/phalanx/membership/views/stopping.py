"""How members stop as they are, within the list, and come back with their votes and what their folders have (DU-58).

1. A, B and C are told to stop one after another, and each leaves the list. 2. C, the last one, alone has the majority: A and B could
not go on without it. So when more than half stop, nobody leaves the list: the last stable one stays that of all, and any majority
of it is enough to go on.

The master tells them to end, and ends last itself: while it is there, nobody takes them out of the list and acknowledges writes
that they do not have.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.machine.facts import StopsDue
from phalanx.machine.local_context import LocalContext
from phalanx.membership.incarnation import Incarnation
from phalanx.membership.state import MembershipState
from phalanx.membership.views.removals import IT_STOPPED, Removals
from phalanx.wire.join_events import ClusterStops
from phalanx.wire.messages import StopOrder

STOPPED = "DU-58"


class Stopping:
    """The members that were told to end, on the master, and the end of this member."""

    def __init__(
        self, local: LocalContext, state: MembershipState, incarnation: Incarnation, removals: Removals
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._incarnation = incarnation
        self._removals = removals
        self._ordered: set[MemberId] = set()
        """Members that were told to end, and are in the list."""
        self._waiting_for: set[MemberId] = set()
        """Those of them that have not said that they do."""
        self._until: Millis | None = None
        """Until when this master waits for that; None: it waits for nobody."""

    def __repr__(self) -> str:
        return f"Stopping({sorted(self._ordered)}, waiting_for={sorted(self._waiting_for)})"

    def stop(self, due: StopsDue, now: Millis) -> None:
        """Let members end as they are, as the master."""
        view, this = self._state.joined(), self._local.this
        new = [member for member in due.members if member not in self._ordered]
        if new:
            if due.is_whole:
                self._local.out.record(ClusterStops(due.members, len(view.data_members or view.members)))
            self._ordered.update(new)
            self._waiting_for.update(member for member in new if member != this)
            self._until = now + self._local.config.join_acknowledgement_ms
            for member in new:
                self.repeat(member)
        self._end_if_over(now)

    def repeat(self, member: MemberId) -> None:
        """Tell a member that is to end, perhaps again: it can have missed it."""
        if member in self._ordered and member != self._local.this:
            self._local.out.send(member, StopOrder())

    def is_ending(self, member: MemberId) -> bool:
        """Return whether this member, the master, has told another one to end, and ends behind it: then it is no news that it is gone."""
        return self._until is not None and member in self._ordered and self._local.this in self._ordered

    def on_stop_order(self, sender: MemberId, message: StopOrder, now: Millis) -> None:
        """End, because the master says so; or note, as the master, that a member does."""
        if sender in self._waiting_for:
            self._waiting_for.discard(sender)
            self._end_if_over(now)
        elif sender == self._state.master and self._state.view is not None:
            self._local.out.send(sender, StopOrder())
            self._incarnation.stop()

    def on_view(self, members: Collection[MemberId]) -> None:
        """Forget members that are not in the list any more."""
        self._ordered.intersection_update(members)
        self._waiting_for.intersection_update(members)

    def ends_instead(self, suspects: Collection[MemberId]) -> bool:
        """Return whether this member, the master, ends instead of removing members that it has told to end."""
        if self._local.this not in self._ordered or self._ordered.isdisjoint(suspects):
            return False
        self._incarnation.stop()
        return True

    def next_deadline(self) -> Millis | None:
        return self._until

    def on_time(self, now: Millis) -> None:
        if self._until is not None and now >= self._until:
            self._end_if_over(now)

    def _end_if_over(self, now: Millis) -> None:
        """End last, or go on without those that have ended, when all have said that they do, or the time is over."""
        if self._until is None or (self._waiting_for and now < self._until):
            return
        ended = sorted(self._ordered - self._waiting_for)
        is_last = self._local.this in self._ordered
        leads = self._state.is_master
        self.end()
        if is_last and leads:
            self._incarnation.stop()
        elif ended and leads:
            self._removals.remove(ended, STOPPED, now, reasons=dict.fromkeys(ended, IT_STOPPED))

    def end(self) -> None:
        """End with this incarnation."""
        self._ordered.clear()
        self._waiting_for.clear()
        self._until = None
