"""Members that went: where they can be (`former_members`), how they went (`departure_record`), and what is told of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from phalanx.common.config import NodeConfig
from phalanx.common.departure import Departure, Departures, HowGone
from phalanx.common.former_incarnation import Former, FormerIncarnation
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.versions import PROTOCOL_VERSION, Release
from phalanx.common.view import MembersView
from phalanx.membership.join.departure_record import DepartureRecord
from phalanx.membership.join.former_members import FormerMembers, lasting_minutes
from phalanx.membership.view_change import ViewChange
from phalanx.wire.messages import JoinRequest


class GoneMembers:
    """What one member knows of those that went: two records of the same views, told together."""

    def __init__(self, this: MemberId, config: NodeConfig) -> None:
        self._this = this
        self._config = config
        self.former = FormerMembers(this, config)
        self.departures = DepartureRecord(this, config)

    def __repr__(self) -> str:
        return f"GoneMembers({list(self.former.addresses)}, {self.departures})"

    def note_time(self, now: Millis) -> None:
        """Note the time: others get the remaining times in minutes."""
        self.former.looked_at = self.departures.looked_at = now

    def to_send(self) -> tuple[Former, Departures]:
        """Return what this member sends to other members of the cluster."""
        return self.former.to_send(), self.departures.to_send()

    def to_send_master(self, view: MembersView) -> Departures | None:
        """Return what a slave sends its master with each confirmation, as long as the cluster version can be raised."""
        return self.departures.to_send() if view.cluster_version < PROTOCOL_VERSION else None

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Note the members that went with a new view, and take over what its master knows."""
        before = change.before.members if change.before is not None else ()
        self.former.on_view(before, change.view.members, now)
        if change.told is not None:
            self.departures.learn(change.told.departures, now)

    def learn_from_joiner(self, request: JoinRequest, now: Millis) -> None:
        """Take over what a joiner's process knows from an incarnation before."""
        self.former.remember(request.known, now)
        self.departures.learn(request.departures, now)

    def leave_out(
        self, seen: Mapping[MemberId, Release], view: MembersView, members: Collection[MemberId], now: Millis
    ) -> None:
        """Note members that a claim leaves out, and that can be alive: some were never in a list of this member."""
        self.former.forget_members(seen, view.members, now)
        for member, release in seen.items():
            if member not in view and member not in members:
                self.departures.note(member, HowGone.CUT_OFF, release.newest, now)

    def come_back(self, past: FormerIncarnation, now: Millis) -> None:
        """Take over what the incarnation before this one knew."""
        self.former.remember([address_of(member) for member in (*past.ask_first, *past.members)], now)
        self.former.learn(past.former, now)
        self.departures.learn(past.departures, now)

    def to_carry(self, view: MembersView | None) -> tuple[Former, Departures]:
        """Return what the next incarnation is to know: the members of the present view can go on without it."""
        former, known = self.to_send()
        if view is None:
            return former, known
        minutes = lasting_minutes(self._config)
        others = (item for item in view.all_releases().items() if item[0] != self._this)
        going_on = (Departure(member, minutes, HowGone.CUT_OFF, release.newest) for member, release in others)
        return former, (*known, *going_on)
