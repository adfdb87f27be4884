"""On the master: what becomes of partitions that members with failed disks hold.

1. Where another replica is on a working disk, its member becomes the owner: it changes places with the one whose disk has failed.
   Nothing else moves meanwhile, because callers wait.
2. Members with working disks get what they lack, and those with failed ones hold nothing in the end (`eligibility`). Until
   then, and where there are too few others, a replica without a disk stays: in memory, it is better than none.

A member with a failed disk leaves by itself when it holds nothing (`Node`).
"""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Slots
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.eligibility import EligibleMembers
from phalanx.wire.disk_events import OneDisk


def find_exchanges(rows: Sequence[Slots], eligible: EligibleMembers) -> dict[int, Slots]:
    """Return the rows whose owner's disk has failed, by partition, with the hottest backup on a working disk in its place."""
    failed, changed = eligible.failed, dict[int, Slots]()
    for partition, slots in enumerate(rows):
        if not slots or slots[0] not in failed:
            continue
        works = [index for index, member in enumerate(slots) if member is not None and member not in failed]
        works.sort(key=lambda index: (slots[index] in eligible.leaving, index))
        if works:
            row = list(slots)
            row[0], row[works[0]] = row[works[0]], row[0]
            changed[partition] = tuple(row)
    return changed


class DiskRedundancy:
    """Records when partitions that have several replicas are on one disk, because the disks of other holders have failed."""

    def __init__(self, eligible: EligibleMembers, outbox: Outbox) -> None:
        self._eligible = eligible
        self._out = outbox
        self._holders: tuple[MemberId, ...] = ()
        """The members whose replicas were in memory only when that was recorded last."""

    def note(self, table: PartitionTable) -> None:
        """Record when it begins, ends, or concerns other members."""
        failed, holders, partitions = self._eligible.failed, set[MemberId](), 0
        for partition in range(table.partition_count) if failed or self._holders else ():
            row = table.replicas(partition)
            without = failed.intersection(row)
            if without and len(row) - len(without) == 1:
                partitions += 1
                holders |= without
        named = tuple(sorted(holders))
        if named != self._holders:
            self._holders = named
            self._out.record(OneDisk(bool(named), partitions, named))
