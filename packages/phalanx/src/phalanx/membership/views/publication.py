"""Views that were published and that not all members have acknowledged yet (docs/protocol/joining.md).

The master answers joiners when all members that existed before have acknowledged the view that admits them, or when the
time for that is over: a slow member delays a join, it does not prevent it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView


class Publication:
    """One view's acknowledgements, and the joiners that wait for them."""

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
        return f"Publication(ver:{self.view.version}, waiting_for={sorted(self.waiting_for)}, joiners={self.joiners})"

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


class Publications:
    """The publications that are still waited for, oldest first."""

    def __init__(self) -> None:
        self._open: list[Publication] = []

    def __repr__(self) -> str:
        return repr(self._open)

    @property
    def is_waiting(self) -> bool:
        return bool(self._open)

    def wait(self, publication: Publication) -> None:
        self._open.append(publication)

    def renew(self, joiner: MemberId, request_id: int) -> bool:
        """Answer a waiting joiner that has asked again by its latest request's id. Return whether it waits."""
        for publication in self._open:
            if joiner in publication.joiners:
                publication.joiners[joiner] = request_id
                return True
        return False

    def on_ack(self, member: MemberId, version: int) -> None:
        for publication in self._open:
            publication.on_ack(member, version)

    def next_deadline(self) -> Millis | None:
        return min(publication.deadline for publication in self._open) if self._open else None

    def take_ended(self, members: Collection[MemberId], now: Millis) -> list[Publication]:
        """Remove and return the publications that every present member has acknowledged, or whose time is over."""
        for publication in self._open:
            publication.keep_only(members)
        ended = [publication for publication in self._open if publication.is_over(now)]
        if ended:
            self._open = [publication for publication in self._open if publication not in ended]
        return ended

    def clear(self) -> None:
        self._open.clear()
