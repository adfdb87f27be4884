"""Move the partitions that are held only by members about to be removed.

Members that cannot reach some others still reach the master, and the master removes them when the staying members hold
everything. A partition is *endangered* if its owner goes and no staying backup is sure to have every confirmed write:
only the hottest backups, which confirm the writes of every map, are sure to; where one of them is missing, no colder
one replaces it.

Each endangered partition gets an owner that stays and that the present owner reaches: an ordinary migration of
ownership. So no departing member owns data that no other member has, and this does not happen: 1. O is removed and has
not heard of it yet. 2. A caller puts k. 3. O confirms it alone. (It cannot: another member owns the partition, or must
confirm too, and that one does not answer a removed member.)

The ownership moves when all backups are in step, and a backup that the owner does not reach never is. So such backups
are first replaced by members that the owner reaches; then the ownership moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from phalanx.common.evacuation import Evacuation
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Slots
from phalanx.machine.outbox import Outbox
from phalanx.wire.suspicion_events import EvacuationEnded, EvacuationStarted


def find_endangered(table: PartitionTable, kept: Collection[MemberId], among: Iterable[int] | None = None) -> list[int]:
    """Return the partitions (`among` these; None: all) that can lose confirmed writes if only `kept` members stay."""
    confirming = min(count.synchronous for count in table.maps.backup_counts)
    stays = {member: member in kept for member in table.members}
    endangered = []
    for partition in range(table.partition_count) if among is None else among:
        # 1. B, of the row O, B, C, is gone, and D gets a copy for its place. 2. Until then O alone is sure to have what was
        # confirmed: C can lack it, for example because it does not reach O, which is why O is to be removed.
        slots = table.slots(partition)
        if slots and not any(member is not None and stays[member] for member in slots[: confirming + 1]):
            endangered.append(partition)
    return endangered


def plan_evacuation(
    table: PartitionTable,
    kept: Collection[MemberId],
    takers: Sequence[MemberId],
    are_apart: Callable[[MemberId, MemberId], bool],
    doubtful: Collection[tuple[MemberId, MemberId]] = (),
    full: Collection[MemberId] = (),
) -> dict[int, Slots]:
    """Return the target of each endangered partition, without those that no member can take.

    `takers`: members that stay and can be given replicas, in the order that breaks ties; `are_apart`: whether no data
    goes between two members; for the worst case: `doubtful`: owners and takers between whom it has failed; `full`:
    members without memory for replicas that they do not hold.
    """
    loads = Counter(owner for owner in table.owners() if owner is not None)
    targets: dict[int, Slots] = {}
    for partition in find_endangered(table, kept):
        slots = table.slots(partition)
        owner = slots[0]
        if owner is None:
            continue
        reached = [member for member in takers if not are_apart(owner, member)]
        if not reached:
            continue
        # A backup has the data. Else prefer a member that reaches the other replicas: they confirm its writes until the
        # view changes.
        others = [member for member in slots[1:] if member is not None]
        cost = {
            member: (
                (owner, member) in doubtful,
                member in full and member not in others,
                member not in others,
                sum(are_apart(member, o) for o in others),
            )
            for member in reached
        }
        reached.sort(key=lambda member: (cost[member], loads[member]))
        taker = reached[0]
        loads[taker] += 1
        if any(are_apart(owner, other) for other in others):
            targets[partition] = _with_backups(slots, [member for member in reached if member not in others], are_apart)
        else:
            targets[partition] = _with_owner(slots, taker, are_apart)
    return targets


def _with_backups(slots: Slots, spare: list[MemberId], are_apart: Callable[[MemberId, MemberId], bool]) -> Slots:
    """Return the row with substitutes for the backups that the owner does not reach; the owner stays."""
    owner, row, left = slots[0], list(slots), iter(spare)
    for index, member in enumerate(slots[1:], start=1):
        if owner is not None and member is not None and are_apart(owner, member):
            row[index] = next(left, None)
    return _cut(row)


def _cut(row: list[MemberId | None]) -> Slots:
    """Return the row without holes at its end."""
    while row and row[-1] is None:
        row.pop()
    return tuple(row)


def _with_owner(slots: Slots, taker: MemberId, are_apart: Callable[[MemberId, MemberId], bool]) -> Slots:
    """Return the row with the taker as owner; the former owner replaces it, or a backup that it does not reach."""
    owner, row = slots[0], list(slots)
    row[0] = taker
    if taker in slots[1:]:
        row[slots.index(taker, 1)] = owner
        return tuple(row)
    for index, member in enumerate(slots[1:], start=1):
        if member is not None and are_apart(taker, member):
            row[index] = owner if owner not in row else None
    return _cut(row)


class EvacuationProgress:
    """On the master: the progress of one evacuation; it lasts as long as its order."""

    def __init__(self, outbox: Outbox) -> None:
        self._out = outbox
        self.order: Evacuation | None = None
        """The present order; None: there is none."""
        self._began_at: Millis | None = None
        """When something to move was first found for this order; None: not yet."""
        self._halfway: set[int] = set()
        """Partitions whose ownership moves when the backups that the owner does not reach have substitutes."""

    def __repr__(self) -> str:
        return f"EvacuationProgress({self.order})"

    def take(self, order: Evacuation | None, table: PartitionTable, now: Millis) -> bool:
        """Take another order, or None. Return False if it is the present one. `table`: before any member left."""
        if order is self.order:
            return False
        if self.order is not None and self._began_at is not None:
            left = tuple(find_endangered(table, self.order.kept))
            ended = EvacuationEnded(self.order.removed, left, now - self._began_at, table.version)
            self._out.record(ended)
        self.order, self._began_at = order, None
        self._halfway.clear()
        return True

    def is_halfway(self, partition: int) -> bool:
        """Return whether the partition's next target can be planned when it has reached this one."""
        return partition in self._halfway

    def targets(
        self,
        table: PartitionTable,
        takers: Sequence[MemberId],
        doubtful: Collection[tuple[MemberId, MemberId]],
        full: Collection[MemberId],
        now: Millis,
    ) -> list[Slots]:
        """Return the target of every partition during the evacuation: nothing else moves meanwhile."""
        rows = [table.slots(partition) for partition in range(table.partition_count)]
        order = self.order
        if order is None:
            return rows
        changes = plan_evacuation(table, order.kept, takers, order.are_apart, doubtful, full)
        if self._began_at is None and (endangered := len(find_endangered(table, order.kept))):
            self._began_at = now
            self._out.record(EvacuationStarted(order.removed, endangered, endangered - len(changes), order.until))
        self._halfway = {partition for partition, row in changes.items() if row[0] == rows[partition][0]}
        for partition, row in changes.items():
            rows[partition] = row
        return rows
