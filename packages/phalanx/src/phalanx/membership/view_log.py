"""What the log of a member says of its cluster: the view, which views are stable, and whom the cluster awaits."""

from __future__ import annotations

import msgspec

from phalanx.common.departure import Departures
from phalanx.common.ids import MemberId
from phalanx.common.quorum import QuorumRecord
from phalanx.common.view import MembersView
from phalanx.membership.join.departure_record import DepartureRecord
from phalanx.membership.majority import Majority
from phalanx.membership.state import MembershipState
from phalanx.wire.disk_records import ViewRecord


class ViewLog:
    """Makes the records of views."""

    def __init__(
        self, this: MemberId, state: MembershipState, majority: Majority, departures: DepartureRecord
    ) -> None:  # fmt: skip
        self._this = this
        self._state = state
        self._quorum = majority.quorum
        self._departures = departures
        self._logged: tuple[MembersView | None, QuorumRecord | None, int, Departures] = None, None, 0, ()
        """What `take_record` has returned last, how many votes of those that have left that had, and whom it awaited."""

    def __repr__(self) -> str:
        return f"ViewLog({self._logged})"

    def take_record(self) -> ViewRecord | None:
        """Return what the log has to say of the view, and of which views are stable; None: nothing new since the last call.

        1. A starts alone, then B and C join: the list of the three becomes stable. 2. All end. 3. If the logs of B and C
        still call the list of A alone the last stable one, they wait for A, although they are the majority.
        """
        view, quorum = self._state.view, self._quorum
        if quorum.handed_over is not None:
            return self._take_handed_over(*quorum.handed_over)
        known = view, quorum.footing, len(quorum.left), self._departures.kept
        if view is None or known == self._logged:
            return None
        self._logged = known
        return self._record(view)

    def _take_handed_over(self, view: MembersView, footing: QuorumRecord) -> ViewRecord | None:
        """Return what the log has to say when others count this member's vote; None: it has said so.

        1. A, the master of A, B, C, D and E, leaves, and only B and C get its last list. 2. A is killed, and starts again, with D and E. 3.
        B and C, with the vote that they got, and A, D and E were a majority each. If A knows of that list, it needs its majority, too.

        Where A had votes of others, it has none any more: they can be too many for that list.
        """
        if self._logged[:2] == (view, footing):
            return None
        self._logged = view, footing, 0, self._departures.kept
        voter = self._quorum.voter if footing.left == (self._quorum.voter,) else MemberId("")
        known = msgspec.structs.replace(footing, left=())
        return ViewRecord(view, known, voter, self._this, self._departures.kept)

    def last_record(self) -> ViewRecord | None:
        """Return what the log has to say of the view with which this incarnation has ended; None: it had none."""
        view = self._state.last_view
        return self._record(view) if view is not None else None

    def _record(self, view: MembersView) -> ViewRecord:
        quorum = self._quorum
        return ViewRecord(view, quorum.footing_with_departures(), quorum.voter, self._this, self._departures.kept)
