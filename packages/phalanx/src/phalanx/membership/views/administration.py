"""The periodic work of the master, and what it does when others have its views (docs/protocol/membership.md)."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.membership.state import MembershipState
from phalanx.membership.views.admission import Admission
from phalanx.membership.views.leaving import Leaving
from phalanx.membership.views.lite_changes import LiteChanges
from phalanx.wire.messages import LiteRequest, MembersAck


class Administration:
    """Admission, leaving and publication by this member while it is the master."""

    def __init__(
        self,
        state: MembershipState,
        admission: Admission,
        leaving: Leaving,
        lite_changes: LiteChanges,
    ) -> None:
        self._state = state
        self._admission = admission
        self._leaving = leaving
        self._lite_changes = lite_changes
        self._next_publication: Millis | None = None
        """When this master publishes the same view again; None: it is not the master yet."""

    def __repr__(self) -> str:
        return f"Administration({self._admission}, hand_over={self._leaving.resignation.hand_over})"

    def follow(self, now: Millis) -> None:
        """Publish the view periodically from now on, if this member is the master: it has just sent its view to all."""
        if self._state.is_master and self._next_publication is None:
            self._next_publication = self._admission.next_publication(now)

    def next_deadline(self) -> Millis | None:
        earliest, hand_over = self._admission.pending_views.next_deadline(), self._leaving.resignation.hand_over
        if hand_over is not None and (earliest is None or hand_over.deadline < earliest):
            earliest = hand_over.deadline
        if not self._state.is_master:
            return earliest
        again_at, acks_until = self._lite_changes.again_at, self._leaving.last_acks.due_at
        for deadline in (self._next_publication, again_at, acks_until):
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def on_time(self, now: Millis) -> None:
        """End waits for acknowledgements and hand-overs whose time is over, and publish the view periodically (CS-19)."""
        self._admission.answer_joiners(now)
        self._leaving.resignation.end_if_over(now)
        if not self._state.is_master:
            return
        self._publish_lite(self._lite_changes.on_time(now), now)
        self._leaving.last_acks.on_time(now)
        if self._next_publication is not None and now >= self._next_publication:
            self._next_publication = self._admission.next_publication(now)
            self._admission.send_view()

    def on_members_ack(self, sender: MemberId, message: MembersAck, now: Millis) -> None:
        """Note that a member has a view, and continue what waited for that."""
        self._admission.on_ack(sender, message)
        if self._state.is_master:
            self._leaving.on_ack(sender, message, now)
        self._admission.answer_joiners(now)
        self._leaving.resignation.on_ack(sender, message, now)

    def on_lite_request(self, sender: MemberId, message: LiteRequest, now: Millis) -> None:
        if self._state.is_master and sender in self._state.members:
            self.on_lite_wanted(sender, message.lite, now)

    def on_lite_wanted(self, member: MemberId, lite: bool, now: Millis) -> None:
        """Follow, as the master, a member's request to be lite, or to hold data."""
        self._publish_lite(self._lite_changes.on_wanted(member, lite, now), now)

    def complete_leaving(self, members: Sequence[MemberId], now: Millis) -> None:
        """Complete the leaving, or the demotion, of members that have handed over their replicas. The master leaves last."""
        for member in members:
            self._publish_lite(self._lite_changes.on_handed_over(member), now)
        self._leaving.complete_leaving(members, now)

    def _publish_lite(self, view: MembersView | None, now: Millis) -> None:
        if view is not None:
            self._admission.publish(view, "PX-02", now)

    def end(self) -> None:
        """End with this incarnation."""
        self._admission.end()
        self._leaving.end()
