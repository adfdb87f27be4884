"""Checks that a replica that nobody gets is cleared only after its owner has been asked: a dead owner answers nobody.

Who holds what cannot tell it. The owner can crash right behind its answer, and then nobody holds anything, as if the crash
had come a moment later. But an owner that had ended before the master began can have said nothing.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.migration import MigrationKind
from phalanx.wire.table_events import MigrationCommitted, MigrationStarted
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings


class ClearChecker(Checker):
    """Watches what masters clear, and which processes end."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._ended: dict[MemberId, Millis] = {}
        self._begun: dict[tuple[MemberId, int, int], tuple[MemberId, Millis]] = {}
        """Master, partition and its version, to the owner of a replica that is to be cleared, and since when."""
        self.checked = 0
        """Replicas that were cleared."""

    def on_process_ended(self, member: MemberId, how: str, now: Millis) -> None:
        self._ended.setdefault(member, now)

    def counts(self) -> dict[str, int]:
        return {"replicas cleared": self.checked}

    def on_event(self, recorded: ObservedEvent) -> None:
        """Judge what a master clears."""
        master, event, now = recorded.member, recorded.event, recorded.now
        if not isinstance(event, MigrationStarted | MigrationCommitted) or event.kind != MigrationKind.CLEAR:
            return
        key = master, event.partition, event.partition_version
        if isinstance(event, MigrationStarted):
            self._begun[key] = event.owner, now
            return
        if key not in self._begun:
            return
        owner, since = self._begun.pop(key)
        self.checked += 1
        ended = self._ended.get(owner)
        if ended is not None and ended < since:
            story = f"partition {event.partition}: {owner}, which ended at {ended}, was its owner when {event.source} was to lose its replica at {since}"
            self._findings.add(now, "a replica is cleared while its owner lives", story)
