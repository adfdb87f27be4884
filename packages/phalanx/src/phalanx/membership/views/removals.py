"""How the master removes members: those that it suspects or that leave, and those that others cannot reach."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from phalanx.common.evacuation import Link
from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.membership.detect.suspicion import Suspicions
from phalanx.membership.join.gone_members import GoneMembers
from phalanx.membership.master_duties import MasterDuties
from phalanx.membership.outgoing import ViewPublisher
from phalanx.membership.state import MembershipState
from phalanx.membership.views.admission import Admission
from phalanx.wire.view_events import MemberRemoved

IT_LEFT = "it left"
"""Why members are removed that have handed over their replicas."""
IT_STOPPED = "it stopped, and comes back"
"""Why members are removed that have ended within the list."""


class Removals:
    """Publishes views without some members."""

    def __init__(
        self, local: LocalContext, state: MembershipState, suspicions: Suspicions, admission: Admission
    ) -> None:  # fmt: skip
        self._local = local
        self._state = state
        self._suspicions = suspicions
        self._admission = admission

    def remove(
        self, gone: Sequence[MemberId], rule: str, now: Millis, *, reasons: Mapping[MemberId, str] | None = None
    ) -> MembersView:
        """Publish a view without some members, and return the view before.

        The removed members are not told: those that live send something, and are answered then (CS-42). `reasons`: why
        each goes; without a reason it is suspected.
        """
        before = self._state.joined()
        new = before.with_change(self._local.this, frozenset(gone), ())
        for member in gone:
            why = (reasons or {}).get(member) or self._suspicions.suspected.get(member, "")
            self._local.out.record(MemberRemoved(member, new.version, why, rule))
        self._admission.publish(new, "CS-11 removed", now)
        return before

    def note_broken(self, links: Collection[Link], now: Millis) -> None:
        """Note links that members must prove before they come back, because they are removed for them."""
        self._admission.note_broken(links, now)


class ForcedRemovals:
    """Removes members that the master reaches, because others cannot reach them."""

    def __init__(self, duties: MasterDuties, removals: Removals, gone: GoneMembers, publisher: ViewPublisher) -> None:
        self.duties = duties
        self._removals = removals
        self._gone = gone
        self._publisher = publisher

    def remove(self, reasons: Mapping[MemberId, str], links: Collection[Link], rule: str, now: Millis) -> None:
        """Remove members, each for a reason. They come back when these links are whole."""
        self._removals.note_broken(links, now)
        if not reasons:
            return
        before = self._removals.remove(list(reasons), rule, now, reasons=reasons)
        self._gone.former.forced_out.update(dict.fromkeys(reasons))
        for member in reasons:
            # It reaches this master: the sooner it knows, the sooner it stops acting as an owner.
            what = "told a member that was removed so"
            self._publisher.send_explicit_suspicion(member, before.version, before.maker, what, "PD-04")
