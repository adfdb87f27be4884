"""On the master: members that stop, and come back with what they have in their folders (DU-38).

A member that stops keeps its replicas until it goes, and copies nothing. Where another member that stays has one, that one becomes
the owner: they exchange their places. What only members that stop hold is copied first, as for members that leave, but where
there are to be no backups, or nobody stays: that is dormant until they are back.

If more than half stop, nothing moves any more: all end together, and the table stays as it is (DU-58).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Slots
from phalanx.machine.facts import StopWish
from phalanx.partition.coordinator.eligibility import EligibleMembers

STOP_TOGETHER_MS: Millis = 5_000
"""Members that are told to stop within this time stop together: for so long each of them stays, also when it has nothing to do."""
STOPS_AT_MOST_MS: Millis = 10_000
"""Members that stop together wait for so long until everybody has the table and no migration is under way."""


def plan_exchanges(
    rows: Sequence[Slots], eligible: EligibleMembers, assigned: Callable[[], Sequence[Slots]], backups: int
) -> list[Slots]:
    """Return what each row is to become while members stop. `assigned`: says how all replicas are shared by those that stay."""
    stopping, leaving = eligible.stopping, frozenset(eligible.leaving)
    is_needed = [not stays_safe(row, stopping, leaving, backups) for row in rows]
    shares: Sequence[Slots] = assigned() if any(is_needed) else ()
    return [
        _with_stopping(shares[partition], row, stopping, backups)
        if is_needed[partition]
        else _with_staying_owner(row, leaving, eligible.failed)
        for partition, row in enumerate(rows)
    ]


def stays_safe(row: Slots, stopping: Collection[MemberId], leaving: Collection[MemberId], backups: int) -> bool:
    """Return whether a row needs no copy because members go: one that stays has a replica, or one that stops comes back with the only one."""
    held = [member for member in row if member is not None]
    if any(member in leaving and member not in stopping for member in held):
        return False
    return not held or any(member not in leaving for member in held) or not backups


def _with_stopping(share: Slots, row: Slots, stopping: Collection[MemberId], backups: int) -> Slots:
    """Return a share in which members that stop keep what they hold, as far as those that stay are too few."""
    keep = [member for member in row if member in stopping and member not in share]
    return (*share, *keep[: max(0, backups + 1 - len(share))])


def _with_staying_owner(row: Slots, leaving: Collection[MemberId], failed: Collection[MemberId]) -> Slots:
    if not row or row[0] not in leaving:
        return row
    staying = [index for index, member in enumerate(row) if member is not None and member not in leaving]
    if not staying:
        return row
    place = min(staying, key=lambda index: (row[index] in failed, index))
    changed = list(row)
    changed[0], changed[place] = changed[place], changed[0]
    return tuple(changed)


class StoppingMembers:
    """What members that stop still have to do, and when they can end."""

    def __init__(self, eligible: EligibleMembers) -> None:
        self.eligible = eligible
        self.wish = StopWish()
        self._counted: tuple[PartitionTable | None, tuple[MemberId, ...]] = None, ()
        """The table and the members that leave of which `_to_do` is."""
        self._to_do: dict[MemberId, int] = {}

    def __repr__(self) -> str:
        return f"StoppingMembers({self.wish})"

    @property
    def together_until(self) -> Millis:
        """Return until when others can still be told to stop, too."""
        return self.wish.asked_at + STOP_TOGETHER_MS

    def to_hand_over(self, member: MemberId, table: PartitionTable) -> int:
        """Return how many replicas others must take over, or own, before a member can stop."""
        leaving = tuple(self.eligible.leaving)
        if self._counted[0] is not table or self._counted[1] != leaving:
            self._counted, self._to_do = (table, leaving), self._count(table, leaving)
        return self._to_do.get(member, 0)

    def _count(self, table: PartitionTable, leaving: Collection[MemberId]) -> dict[MemberId, int]:
        stopping, backups, found = self.eligible.stopping, table.maps.depth, dict[MemberId, int]()
        if not self.eligible.staying():
            return found
        for partition in range(table.partition_count):
            row = table.slots(partition)
            is_safe = stays_safe(row, stopping, leaving, backups)
            stays = any(member is not None and member not in leaving for member in row)
            for member in row if not is_safe else row[:1] if stays else ():
                if member in stopping:
                    found[member] = found.get(member, 0) + 1
        return found

    def may_stop_together(self, now: Millis, *, is_settled: bool, data_members: Collection[MemberId]) -> bool:
        """Return whether all that stop can end as they are. `is_settled`: everybody has the table, and no migration is under way."""
        if not self.wish.is_whole:
            return False
        does_everybody_stop = self.eligible.stopping.issuperset(data_members)
        if now < self.together_until and not does_everybody_stop:
            return False
        return is_settled or now >= self.wish.asked_at + STOPS_AT_MOST_MS
