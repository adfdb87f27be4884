"""How members become lite members, which hold no data, and data members again."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.state import MembershipState
from phalanx.membership.wishes import OwnWishes
from phalanx.wire import events


class LiteChanges:
    """Decides on the master what follows from what operators want of members, and returns the views that say it."""

    def __init__(self, local: LocalContext, state: MembershipState, duties: MasterDuties, wishes: OwnWishes) -> None:
        self._local = local
        self._state = state
        self._duties = duties
        self._wishes = wishes
        self._again_at: Millis = 0
        """When this master asks itself again to hold data, or none, as its operator wants it."""

    @property
    def again_at(self) -> Millis | None:
        """When this master asks itself again; None: its operator wants nothing of it."""
        return self._again_at if self._wishes.lite is not None else None

    def on_time(self, now: Millis) -> MembersView | None:
        """Ask again, as the master, for what its operator wants of it; others repeat their request by themselves."""
        if self._wishes.lite is not None and now >= self._again_at:
            return self.on_wanted(self._local.this, self._wishes.lite, now)
        return None

    def on_wanted(self, member: MemberId, lite: bool, now: Millis) -> MembersView | None:
        """Let a member hold data, at once, or none, as soon as others hold what it has: its operator wants it."""
        view, duties = self._state.joined(), self._duties
        if member == self._local.this:
            self._again_at = now + self._local.config.confirmation_interval_ms
        if not lite:
            if member in duties.demoting:
                self._end_demotion(member)
            return self._change(member, lite=False) if view.traits_of(member).lite else None
        if member not in duties.demoting and not view.traits_of(member).lite and duties.others_hold(member, view):
            duties.demoting.add(member)
            self._state.tell_change()
            to_hand_over = duties.replicas_to_hand_over(member, view)
            self._local.out.record(events.LiteChangeStarted(member, to_hand_over))
        return None

    def on_handed_over(self, member: MemberId) -> MembersView | None:
        """Make a member lite that has handed over what it held, if it has done so for that."""
        duties = self._duties
        if member not in duties.demoting or not duties.others_hold(member, self._state.joined()):
            return None
        self._end_demotion(member)
        return self._change(member, lite=True) if member not in duties.leaving else None

    def _end_demotion(self, member: MemberId) -> None:
        """End to move its replicas away: a member has become lite, or will stay a data member."""
        self._duties.demoting.discard(member)
        self._state.tell_change()

    def _change(self, member: MemberId, *, lite: bool) -> MembersView:
        new = self._state.joined().with_lite(self._local.this, member, lite=lite)
        self._local.out.record(events.LiteChanged(member, lite, new.version))
        return new
