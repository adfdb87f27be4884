"""Acknowledgements of views: which members have yet to acknowledge a view that was published (docs/protocol/joining.md).

The master answers joiners when all members that existed before have acknowledged the view that admits them, or when the
time for that is over: a slow member delays a join, it does not prevent it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView


class PendingView:
    """One view, the members that have yet to acknowledge it, and the joiners that wait for them."""

    def __init__(
        self, view: MembersView, waiting_for: Iterable[MemberId], deadline: Millis, joiners: dict[MemberId, int]
    ) -> None:
        self.view = view
        self.waiting_for = set(waiting_for)
        self.deadline = deadline
        self.joiners = joiners
        """The admitted members and the ids of their requests."""
        self._members: Collection[MemberId] = ()
        """The members of the view that was checked last; kept because each of thousands of acknowledgements asks."""

    def __repr__(self) -> str:
        return f"PendingView(ver:{self.view.version}, waiting_for={sorted(self.waiting_for)}, joiners={self.joiners})"

    def on_ack(self, member: MemberId, version: int) -> None:
        """Note that a member has installed this version, or a newer one."""
        if version >= self.view.version:
            self.waiting_for.discard(member)

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Stop waiting for members that left: their acknowledgement will not come."""
        if members is not self._members:
            self._members = members
            self.waiting_for.intersection_update(members)

    def is_over(self, now: Millis) -> bool:
        """Return whether all members have acknowledged, or the time is over."""
        return not self.waiting_for or now >= self.deadline


class PendingViews:
    """The views that were published and that not all members have acknowledged yet, oldest first."""

    def __init__(self) -> None:
        self._pending: list[PendingView] = []

    def __repr__(self) -> str:
        return repr(self._pending)

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    def add(self, pending: PendingView) -> None:
        """Wait for the acknowledgements of one more view."""
        self._pending.append(pending)

    def renew(self, joiner: MemberId, request_id: int) -> bool:
        """Answer a waiting joiner that has asked again by its latest request's id. Return whether it waits."""
        for pending in self._pending:
            if joiner in pending.joiners:
                pending.joiners[joiner] = request_id
                return True
        return False

    def on_ack(self, member: MemberId, version: int) -> None:
        for pending in self._pending:
            pending.on_ack(member, version)

    def next_deadline(self) -> Millis | None:
        return min(pending.deadline for pending in self._pending) if self._pending else None

    def take_ended(self, members: Collection[MemberId], now: Millis) -> list[PendingView]:
        """Remove and return the views that every present member has acknowledged, or whose time is over."""
        for pending in self._pending:
            pending.keep_only(members)
        ended = [pending for pending in self._pending if pending.is_over(now)]
        if ended:
            self._pending = [pending for pending in self._pending if pending not in ended]
        return ended

    def clear(self) -> None:
        self._pending.clear()
