"""Where a partition misses replicas and its owner cannot reach the member that should hold one, another takes its place.

1. B, the backup of O's partition, dies, and D should be the backup in its stead. 2. The master reaches D, and so D is a
member; O does not. 3. Were D ordered again and again, O would hold the partition alone for as long as that lasts, with
E beside it that has room. A stand-in is balanced as well as can be; when D may be reached again, the targets are worked
out anew, and the replica moves there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Slots


def with_substitutes(
    table: PartitionTable,
    target: Sequence[Sequence[MemberId | None]],
    members: Sequence[MemberId],
    wanted: int,
    unreachable: Collection[tuple[MemberId, MemberId]],
) -> dict[int, Slots]:
    """Partition to its target with the least loaded other members in the place of some.

    `members`: who may be given replicas; `wanted`: how many replicas each partition should have; `unreachable`: pairs
    of an owner and a destination.
    """
    loads = Counter(member for row in target for member in row if member is not None)
    changed: dict[int, Slots] = {}
    for partition, row in enumerate(target):
        owner = table.owner(partition)
        if owner is None or table.replica_count(partition) >= wanted:
            continue
        held_by = table.replicas(partition)
        slots = list(row)
        for index, member in enumerate(row):
            if member is None or member in held_by or (owner, member) not in unreachable:
                continue
            others = [m for m in members if m not in held_by and m not in slots and (owner, m) not in unreachable]
            if others:
                slots[index] = stand_in = min(others, key=lambda m: loads[m])
                loads.subtract({member: 1, stand_in: -1})
                changed[partition] = tuple(slots)
    return changed
