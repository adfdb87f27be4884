"""How members went that a new view does not contain (PX-44)."""

from __future__ import annotations

from phalanx.common.departure import HowGone
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.join.departure_record import DepartedFolder
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.view_change import ViewChange


class DepartureJudge:
    """Notes how members went that are not in the next view."""

    def __init__(self, gone: GoneMembers, duties: MasterDuties, suspicions: Suspicions) -> None:
        self._gone = gone
        self._duties = duties
        self._suspicions = suspicions

    def on_view(self, change: ViewChange, now: Millis) -> None:
        """Note how each member went that is not in the next view, from what is known before the view is followed."""
        before, view = change.before, change.view
        if change.seen and before is not None:
            self._gone.leave_out(change.seen, view, before.members, now)
        self._gone.departures.on_view(view, now)
        if before is None:
            return
        self._gone.former.count_lost(before, view, self._duties.leaving | self._duties.without_disk)
        staying, stores = frozenset(view.members), dict(before.stores)
        told = {each.member: each for each in change.told.departures} if change.told is not None else {}
        for member, release in before.all_releases().items():
            if member not in staying:
                lite, start = before.traits_of(member).lite, stores.get(member)
                stops = member in self._duties.stopping or (member in told and told[member].returns)
                took_nothing = (self._duties.has_asked(member) and not stops) or lite
                if not stops:
                    how = self._how_gone(member, view)
                else:  # what it held is in its folder, if it held something
                    how = HowGone.LEFT if lite or start is None else HowGone.CUT_OFF
                store = start.store if start is not None and how is not HowGone.LEFT and not lite else ""
                folder = DepartedFolder(store, stops)
                self._gone.departures.note(member, how, release.newest, now, took_nothing=took_nothing, folder=folder)

    def _how_gone(self, member: MemberId, view: MembersView) -> HowGone:
        # Who hands the mastership over makes the view without itself.
        if member == view.maker or member in self._duties.departing:
            return HowGone.LEFT
        return HowGone.ENDED if member in self._suspicions.deserted else HowGone.CUT_OFF
