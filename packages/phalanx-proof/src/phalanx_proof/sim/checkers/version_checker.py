"""Checks that a cluster which comes back from its folders uses no version of a row again (DU-26).

The version of each row is above all that any member has ever installed, also on sides of which nobody is back. What a master has made
counts when it has synced it: before that nobody has heard of it, nor of a write that rests on it. A side that goes on by an operator's
word alone can have used the same ones: after such a word nothing is judged.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.restart_events import ClusterRestarted
from phalanx.wire.view_events import ViewAccepted
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings

NEW = "a restart uses no version of a row again"


class Made(NamedTuple):
    """A table that a master has made, and perhaps not synced."""

    log: ReplicaLog
    lsn: int
    versions: tuple[int, ...]

    @property
    def waits(self) -> bool:
        """Whether it is not synced, and is to be."""
        return self.log.is_on and self.log.synced_lsn < self.lsn


class VersionChecker(Checker):
    """Watches the tables of all members."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._greatest: dict[int, tuple[int, ...]] = {}
        """By number of partitions: the greatest version of each row that has been used."""
        self._made: list[Made] = []
        """Tables that count when they are synced."""
        self._restarting: set[MemberId] = set()
        """Masters that have yet to install the first table of a restart."""
        self._is_judged = True
        self._checked = 0

    def counts(self) -> dict[str, int]:
        return {"versions after restarts": self._checked}

    def on_event(self, recorded: ObservedEvent) -> None:
        if isinstance(recorded.event, ViewAccepted):
            self._is_judged = False
        elif isinstance(recorded.event, ClusterRestarted):
            self._restarting.add(recorded.member)

    def on_table(self, member: MemberId, table: PartitionTable, now: Millis, made_in: ReplicaLog | None = None) -> None:
        """Judge the first table of a restart, and note the versions of each table. `made_in`: the log of its master, if this one is it."""
        self._note_synced()
        if member in self._restarting:
            self._restarting.discard(member)
            self._judge(member, table, now)
        if made_in is not None and made_in.is_on:
            self._made.append(Made(made_in, made_in.last_lsn, table.versions))
        else:
            self._note(table.versions)

    def _note_synced(self) -> None:
        """Let tables count that have been synced meanwhile, or can have been told because their disk has failed."""
        for each in self._made:
            if not each.waits:
                self._note(each.versions)
        self._made = [each for each in self._made if each.waits]

    def _note(self, versions: tuple[int, ...]) -> None:
        count = len(versions)
        self._greatest[count] = tuple(map(max, self._greatest.get(count, (0,) * count), versions))

    def _judge(self, member: MemberId, table: PartitionTable, now: Millis) -> None:
        for partition in range(table.partition_count if self._is_judged else 0):
            if not table.slots(partition) and partition not in table.dormant:
                continue
            used = max(
                (of[partition % count] for count, of in self._greatest.items() if table.partition_count % count == 0),
                default=0,
            )
            self._checked += 1
            if table.versions[partition] <= used:
                story = (
                    f"partition {partition} has version {table.versions[partition]} at {member}, and {used} was used"
                )
                self._findings.add(now, NEW, story)
