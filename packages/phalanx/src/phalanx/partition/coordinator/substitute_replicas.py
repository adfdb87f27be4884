"""Choose substitutes where a partition misses replicas, or is to miss one, and its owner cannot reach the member that should hold one.

1. B, the backup of O's partition, dies, and D should replace it. 2. The master reaches D, so D is a member; but O does
not reach D. 3. If the master ordered D again and again, O alone would hold the partition all that time, although E has
room. So E takes the replica. Substitutes are balanced as well as possible. When D can be reachable again, the targets
are planned again, and the replica moves there. What a member holds that wants to leave counts as missing: it would wait for D, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Slots
from phalanx.partition.row_steps import plan_steps


def with_substitutes(
    table: PartitionTable,
    target: Sequence[Sequence[MemberId | None]],
    members: Sequence[MemberId],
    wanted: int,
    unreachable: Collection[tuple[MemberId, MemberId]],
    leaving: Collection[MemberId] = (),
) -> dict[int, Slots]:
    """Return the changed targets by partition: the least loaded members replace those that the owner cannot reach.

    `members`: those that can be given replicas; `wanted`: how many replicas each partition should have; `unreachable`:
    pairs of an owner and a destination; `leaving`: members that hand over all that they hold.
    """
    free = [member for member in members if member not in leaving]
    loads = Counter(member for row in target for member in row if member is not None)
    changed: dict[int, Slots] = {}
    for partition, row in enumerate(target):
        owner = table.owner(partition)
        held_by = table.replicas(partition)
        if owner is None or sum(member not in leaving for member in held_by) >= wanted:
            continue
        slots = list(row)
        # A member can lose its replica on the way to its new index, and get it again then.
        steps = plan_steps(table.slots(partition), tuple(row))
        copied_to = {step.destination for step in steps if step.destination_current_index < 0}
        for index, member in enumerate(row):
            if member is None or member not in copied_to or (owner, member) not in unreachable:
                continue
            others = [m for m in free if m not in held_by and m not in slots and (owner, m) not in unreachable]
            if others:
                slots[index] = stand_in = min(others, key=lambda m: loads[m])
                loads.subtract({member: 1, stand_in: -1})
                changed[partition] = tuple(slots)
    return changed
