"""How members become lite members, which hold no data, and data members again."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.state import MembershipState
from phalanx.membership.wishes import OwnWishes
from phalanx.wire.join_events import LiteChanged, LiteChangeStarted


class LiteChanges:
    """Decides on the master which members become lite or hold data, and returns the views that say so."""

    def __init__(self, local: LocalContext, state: MembershipState, duties: MasterDuties, wishes: OwnWishes) -> None:
        self._local = local
        self._state = state
        self._duties = duties
        self._wishes = wishes
        self._again_at: Millis = 0
        """When this master repeats its own operator's request."""

    @property
    def again_at(self) -> Millis | None:
        """When this master repeats its own operator's request; None: there is none."""
        return self._again_at if self._wishes.lite_now is not None else None

    def on_time(self, now: Millis) -> MembersView | None:
        """Repeat, as the master, its own operator's request; others repeat theirs by themselves."""
        if self._wishes.lite_now is not None and now >= self._again_at:
            return self.on_wanted(self._local.this, self._wishes.lite_now, now)
        return None

    def on_wanted(self, member: MemberId, lite: bool, now: Millis) -> MembersView | None:
        """Let a member hold data, at once, or no data, as soon as others hold its replicas."""
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
            self._local.out.record(LiteChangeStarted(member, to_hand_over))
        return None

    def on_handed_over(self, member: MemberId) -> MembersView | None:
        """Make a member lite that has handed over its replicas for that."""
        duties = self._duties
        if member not in duties.demoting or not duties.others_hold(member, self._state.joined()):
            return None
        self._end_demotion(member)
        return self._change(member, lite=True) if member not in duties.leaving else None

    def _end_demotion(self, member: MemberId) -> None:
        """Stop moving a member's replicas away: it has become lite, or stays a data member."""
        self._duties.demoting.discard(member)
        self._state.tell_change()

    def _change(self, member: MemberId, *, lite: bool) -> MembersView:
        new = self._state.joined().with_lite(self._local.this, member, lite=lite)
        self._local.out.record(LiteChanged(member, lite, new.version))
        return new
