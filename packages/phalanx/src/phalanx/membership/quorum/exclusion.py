"""Others went on without this member: does it come back to them, or go on without them?

It comes back to them, as a new member, if they are at least half of the members alive: a single member that could not
hear the others for a while must not remove them, and a small rest of a view must not split once more. Which members are
alive is not known at once (this member can have just woken up), so what the view does not decide is decided by the
members that speak.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView


class Exclusion:
    """A member said that it went on without this one; open until it is decided which side is larger.

    It ends at once if those that went on are half of the unsuspected members, otherwise at `decide_at`, or with the
    view.
    """

    def __init__(self, this: MemberId, decide_at: Millis) -> None:
        self.decide_at = decide_at
        self._speaking = {this}
        """This member, and the members that have since sent it a message as to a member of their view."""
        self._views: dict[MemberId, MembersView] = {}
        """Members that said that they went on, and their views."""

    def __repr__(self) -> str:
        return f"Exclusion(senders={sorted(self._views)}, speaking={sorted(self._speaking)})"

    @property
    def senders(self) -> list[MemberId]:
        return list(self._views)

    def add_view(self, sender: MemberId, view: MembersView) -> None:
        self._views[sender] = view

    def add_speaker(self, member: MemberId) -> None:
        self._speaking.add(member)

    def to_follow(self, unsuspected: Collection[MemberId], now: Millis) -> tuple[MemberId, MembersView] | None:
        """Return a member of the larger side, which went on, and its view; None: there is none, or not yet."""
        if decided := self._at_least_half_of(unsuspected):
            return decided
        return self._at_least_half_of(self._speaking.union(self._views)) if now >= self.decide_at else None

    def _at_least_half_of(self, members: Collection[MemberId]) -> tuple[MemberId, MembersView] | None:
        for sender, view in self._views.items():
            if 2 * sum(1 for member in members if member in view) >= len(members):
                return sender, view
        return None
