"""Knows what former incarnations brought back: what only such a one did can show when it is merged."""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.merge_events import MergeStarted
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.table_checker import TableChecker


class MergeStarts(Checker):
    """When what former incarnations held began to be merged."""

    def __init__(self, tables: TableChecker) -> None:
        self._tables = tables
        self._since: dict[MemberId, Millis] = {}
        """Former incarnation to when that began first."""

    def on_event(self, recorded: ObservedEvent) -> None:
        if isinstance(recorded.event, MergeStarted):
            self._since.setdefault(recorded.event.former, recorded.now)

    def show_late(self, part: int, begin: Millis, end: Millis, replier: MemberId | None, at: Millis) -> bool:
        """Tell whether what another owner than the replier did between two times can show by a merge until a time."""
        formers = [former for former, since in self._since.items() if since <= at and former != replier]
        return any(former in self._tables.owners_known([part], [former], begin, end) for former in formers)
