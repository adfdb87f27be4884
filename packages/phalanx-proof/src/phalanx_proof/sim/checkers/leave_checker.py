"""Checks that who leaves takes no data along while a member stays that could hold it.

A partition is lost when all that the table names are gone. If one of them had been let go, in good order, then others should
have taken its replicas before. They need not where nobody stays: where all others leave too, or hold no data.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.rules import is_leave
from phalanx.wire.join_events import LiteChanged
from phalanx.wire.table_events import PartitionLost
from phalanx.wire.view_events import MemberRemoved, ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings


class LeaveChecker(Checker):
    """Watches which members masters let go, and what is lost."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._stayed: dict[MemberId, list[MemberId]] = {}
        """Member that was let go to those that stayed then, and held data."""
        self._installed: set[MemberId] = set()
        """All members of lists so far."""
        self._lite: set[MemberId] = set()
        """Members that have become lite."""

    def on_event(self, recorded: ObservedEvent) -> None:
        _, event, now, view, leaving = recorded
        if isinstance(event, MemberRemoved) and is_leave(event.rule):
            members = view.data_members if view is not None else ()
            # The view is that after the input. Within it, somebody can have been let go before another one joined, or became
            # a data member again: of these nobody stayed.
            held = self._installed - self._lite - {event.removed, *leaving}
            self._stayed[event.removed] = [each for each in members if each in held]
        elif isinstance(event, ViewInstalled):
            self._installed.update(event.members)
        elif isinstance(event, LiteChanged):
            (self._lite.add if event.lite else self._lite.discard)(event.subject)
        elif isinstance(event, PartitionLost):
            for holder in event.replicas:
                if stayed := self._stayed.get(holder):
                    story = (
                        f"partition {event.partition} was lost with {holder}, which was let go while {stayed} stayed"
                    )
                    self._findings.add(now, "who leaves takes nothing along", story)
