"""On the master: whether every partition has as many replicas as the staying members allow, and since when not."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import HOLE, PartitionTable
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.eligibility import EligibleMembers
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.wire.table_events import FullyReplicated


def count_lacking(table: PartitionTable, wanted: int, leaving: Collection[MemberId]) -> int:
    """Return how many partitions have fewer replicas than wanted on other members than those `leaving`."""
    stays = [member not in leaving for member in table.members]
    if all(stays):  # the usual case, after each migration
        return sum([len(row) - row.count(HOLE) < wanted for row in table.rows])
    return sum(1 for row in table.rows if sum(1 for index in row if index != HOLE and stays[index]) < wanted)


class Redundancy:
    """Counts the partitions that miss replicas, and records when redundancy is restored."""

    def __init__(self, publication: TablePublication, eligible: EligibleMembers, outbox: Outbox) -> None:
        self._publication = publication
        self._eligible = eligible
        self._out = outbox
        self._looked_at: tuple[PartitionTable, int, tuple[MemberId, ...]] | None = None
        """The table, replica count and leaving members of the last check; a check reads every row."""
        self._missing = 0
        self._degraded_since: Millis | None = None

    def lacking(self) -> int:
        """Return how many partitions miss replicas on members that stay."""
        table, eligible = self._publication.table, self._eligible
        return count_lacking(table, eligible.wanted(), eligible.uncounted()) if table.is_assigned else 0

    def note(self, now: Millis) -> None:
        """Record when redundancy is restored: when every member knows it, not only the master, which can die."""
        table = self._publication.table
        if not table.is_assigned:
            return
        what = table, self._eligible.wanted(), tuple(self._eligible.uncounted())
        if self._looked_at is None or self._looked_at[0] is not table or self._looked_at != what:
            self._looked_at = what
            self._missing = count_lacking(*what)
        if self._missing and self._degraded_since is None:
            self._degraded_since = now
        elif not self._missing and self._degraded_since is not None and self._eligible.know_table():
            self._out.record(FullyReplicated(table.version, now - self._degraded_since))
            self._degraded_since = None
