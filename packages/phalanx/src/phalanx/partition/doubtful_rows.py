"""Which partitions a member owns by rows that the majority is not known to have: it acknowledges no write of them (DU-64).

1. Master M moves a partition from S to C, and tells C alone. 2. C acknowledges writes. 3. The power fails, and M and C come back late. The
others are the majority, and by their tables S owns the partition.

Without the majority nobody waits: what such a side gives does not count in a restart. The master says with its tables which version the
majority has, and to members that hold answers (`TableAck.holds_answers`) as soon as that grows.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable
from phalanx.partition.recovery.repair import confirming_index


class DoubtfulRows:
    """The partitions that one member owns, as far as the majority perhaps does not have their rows."""

    def __init__(self, this: MemberId) -> None:
        self._this = this
        self.majority_version: int | None = None
        """The version of the master's table that the majority has; None: nobody waits for it."""
        self._since: dict[int, int] = {}
        """Partition to the first version of the master's table that has its row."""

    def __repr__(self) -> str:
        return f"DoubtfulRows({self._since}, majority_version={self.majority_version})"

    @property
    def partitions(self) -> frozenset[int]:
        """Return these partitions."""
        return frozenset(self._since)

    def note_majority(self, version: int | None, table: PartitionTable, installed_version: int) -> None:
        """Note which version the majority has. `table`: the installed one, of this version of the master's.

        Where nobody has waited until now, the majority perhaps has none of the rows: a side without it gave them.
        """
        if self.majority_version is None and version is not None:
            self._doubt(table, range(len(table.rows)), installed_version)
        self.majority_version = version
        self._since = {p: since for p, since in self._since.items() if version is not None and since > version}

    def follow(self, before: PartitionTable, table: PartitionTable, installed_version: int) -> None:
        """Follow a table that was installed in the place of another one."""
        if self.majority_version is None or installed_version <= self.majority_version:
            return
        if before.partition_count != table.partition_count:
            self._since.clear()
            self._doubt(table, range(len(table.rows)), installed_version)
            return
        versions = zip(before.versions, table.versions, strict=True)
        changed = [p for p, (old, new) in enumerate(versions) if old != new]
        self._doubt(table, [p for p in changed if p in self._since or _drops(before, table, p)], installed_version)

    def confirm(self, partitions: Collection[int], table: PartitionTable, installed_version: int) -> None:
        """Note that rows which this member has committed by itself are in the master's table from now on."""
        if self.majority_version is not None and installed_version > self.majority_version:
            self._doubt(table, partitions, installed_version)

    def _doubt(self, table: PartitionTable, partitions: Collection[int], version: int) -> None:
        for partition in partitions:
            if table.owner(partition) == self._this:
                self._since[partition] = version
            else:
                self._since.pop(partition, None)


def _drops(before: PartitionTable, table: PartitionTable, partition: int) -> bool:
    """Return whether a replica that confirmed every write perhaps does not do so any more. One step of a migration can only add some.

    1. S and B hold a partition. 2. D gets B's place, and with S acknowledges writes. 3. S, D and the master come back late. By the tables of
    the others B has all.
    """
    if table.versions[partition] != before.versions[partition] + 1 or table.owner(partition) != before.owner(partition):
        return True
    old, new = before.slots(partition), table.slots(partition)
    return not set(old[: confirming_index(before) + 1]) <= set(new[: confirming_index(table) + 1])
