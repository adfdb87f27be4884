"""Checks that who leaves takes no data along while a member stays that could hold it.

A partition is lost when all that the table names are gone. If one of them had been let go, in good order, then others should
have taken its replicas before. They need not where nobody stays: where all others leave too, or hold no data.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.rules import RECORDED_AS
from phalanx.sim.checkers.findings import Findings
from phalanx.wire.events import Event, MemberRemoved, PartitionLost


class LeaveChecker:
    """Watches whom masters let go, and what is lost."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._stayed: dict[MemberId, list[MemberId]] = {}
        """Member that was let go to those that stayed then, and hold data."""

    def on_event(
        self, event: Event, leaving: Collection[MemberId], view: MembersView | None, now: Millis
    ) -> None:  # fmt: skip
        """A member has recorded a fact. `leaving`: the members that were asked to leave; `view`: the member's view now."""
        if isinstance(event, MemberRemoved) and RECORDED_AS.get(event.rule) == "PX-01":
            members = view.data_members if view is not None else ()
            self._stayed[event.removed] = [each for each in members if each not in leaving and each != event.removed]
        elif isinstance(event, PartitionLost):
            for holder in event.replicas:
                if stayed := self._stayed.get(holder):
                    story = (
                        f"partition {event.partition} was lost with {holder}, which was let go while {stayed} stayed"
                    )
                    self._findings.add(now, "who leaves takes nothing along", story)
