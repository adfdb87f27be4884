"""Knows what former incarnations brought back: what only such a one did can show when it is merged, and need not before."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.merge_events import MergeEnded, MergeStarted
from phalanx.wire.view_events import MajorityChanged
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.table_checker import TableChecker


class MergeStarts(Checker):
    """When what former incarnations held began to be merged."""

    def __init__(self, tables: TableChecker) -> None:
        self._tables = tables
        self._since: dict[MemberId, Millis] = {}
        """Former incarnation to when that began first."""
        self._until: dict[MemberId, Millis] = {}
        """Former incarnation to when all that was sent of it was taken."""
        self._majorities: dict[MemberId, list[tuple[Millis, bool]]] = {}
        """Member to when its side lost or got the majority, and whether it has it then."""

    def on_event(self, recorded: ObservedEvent) -> None:
        if isinstance(recorded.event, MergeStarted):
            self._since.setdefault(recorded.event.former, recorded.now)
        elif isinstance(recorded.event, MergeEnded) and recorded.event.sent:
            self._until[recorded.event.former] = recorded.now
        elif isinstance(recorded.event, MajorityChanged):
            self._majorities.setdefault(recorded.member, []).append((recorded.now, recorded.event.has_majority))

    def show_late(self, part: int, begin: Millis, end: Millis, replier: MemberId | None, at: Millis) -> bool:
        """Tell whether what another owner than the replier did between two times can show by a merge until a time."""
        formers = [former for former, since in self._since.items() if since <= at and former != replier]
        return any(former in self._tables.owners_known([part], [former], begin, end) for former in formers)

    def may_be_void(self, part: int, begin: Millis, end: Millis, replier: MemberId, at: Millis) -> bool:
        """Tell whether what was acknowledged between two times can be void by a time, but for the entries: a side without the majority gave it,
        and what an owner of that side held is merged, which brings no events, and one of two counts.

        1. A and C hold p. A crashes, then C: B leads alone. 2. C comes back to B with its folder, and p goes on there. 3. All crash, and A and B
        restart, which are the majority: p is A's.
        """
        return self._lacks_majority(replier, end) and self.show_late(part, begin, end, None, at)

    def merged_at(self, part: int, replier: MemberId, answered_at: Millis) -> Millis:
        """Return when an owner has at the latest what the replier had acknowledged, if a side without the majority gave it, and what a holder of
        that side had is merged; -1: it is not, and each owner has it.

        1. A and B hold p, and are cut from each other: each goes on alone, without the majority. 2. Both end, and restart: p is B's, which has
        written more. 3. A sends what it had, and B answers meanwhile.

        1. A and B hold p, and B ends. 2. C joins A, gets a copy, and A ends. 3. C ends, and all restart: p is B's, and C sends what it had.
        """
        if not self._lacks_majority(replier, answered_at):
            return -1
        holders = self._tables.holders_since(part, replier, answered_at)
        return max((self._until.get(each, -1) for each in holders), default=-1)

    def _lacks_majority(self, member: MemberId, at: Millis) -> bool:
        known = [has_majority for since, has_majority in self._majorities.get(member, []) if since <= at]
        return bool(known) and not known[-1]
