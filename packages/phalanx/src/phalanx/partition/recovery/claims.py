"""Which replicas a partition goes on with, by what the members that are back have read: a pure rule over their claims.

Of the holders by the row that counts, the one with the greatest position owns the partition: it has all that any of them acknowledged.
Those with an equal position are its backups at once; the others get what they lack like any new backup, and are in no row
before they have it.

What a side without the majority has owns a partition only if it has all that the holders by the row have (`common.lineage`); else it is
set aside, and merged as after a cut, as all that is left over and others have not:

1. C is cut off from A and B, and goes on alone, which raises the versions of its rows. 2. A and B acknowledge writes. 3. All lose power.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from phalanx.codec.hashing import children_of
from phalanx.common.ids import MemberId, divided_leader
from phalanx.common.lineage import is_prefix
from phalanx.common.table import Slots
from phalanx.partition.recovery.old_folders import leave_out_old
from phalanx.wire.table_messages import OwnerEpoch, StoredSide


class Claims(NamedTuple):
    """What a member has read from its folder."""

    member: MemberId
    formers: Collection[MemberId]
    """The incarnations that have written it."""
    positions: Mapping[int, OwnerEpoch]
    """By partition: the position of its replica; epoch 0: it was never given the partition."""
    is_old: bool = False
    """Whether others know of later writes to this folder."""
    lacks_majority: bool = False
    """Whether its last incarnation was, in the end, on a side without the majority."""


def choose_row(
    slots: Slots,
    partition: int,
    claims: Collection[Claims],
    confirming: int,
    back: Collection[MemberId] = (),
    *,
    is_accepted: bool = False,
) -> Slots | None:
    """Return the row with which a partition goes on that these members held; None: nobody who is here has all of it.

    `confirming`: the index of the last replica that confirms every write. `back`: former members of which nothing more comes, also where
    later incarnations have gone on with their folders. `is_accepted`: who has more than the holders that are here comes first also where
    others are absent, because else these would, who have less.

    1. A and B hold a partition, and end with C. 2. A comes back to D, which has no majority, and gives the partition to it. 3. They
    are cut off from each other, and both go on. 4. All come back. A's folder tells nothing of the A of the row any more.
    """
    present = {former: each for each in claims for former in each.formers}
    held = {
        present[former].member: (index, present[former].positions[partition])
        for index, former in enumerate(slots)
        if former is not None and former in present and partition in present[former].positions
    }
    named = [former for former in slots if former is not None]
    is_awaited = any(former not in present and former not in back for former in named[: confirming + 1])
    old = frozenset(each.member for each in claims if each.is_old)
    # One that does not confirm, and went on alone, can lack what the others have acknowledged.
    apart = {each.member for each in claims if each.lacks_majority}
    if not any(position.epoch for _, position in held.values()):
        # Nothing was acknowledged without one that confirms, and was never asked to; all of them had perhaps not heard of their row.
        has_all = len(held) == len(named)
        empty = [m for m, (index, _) in held.items() if has_all or (index <= confirming and m not in old | apart)]
        if later := _find_handed_over(partition, claims):
            return None if is_awaited and not (is_accepted and empty) else later
        return tuple(empty[:1]) or None
    stored = {
        member: (index, position)
        for member, (index, position) in held.items()
        if position.epoch and (index <= confirming or member not in apart)
    }
    held = leave_out_old(stored, old, is_awaited=is_awaited)
    if later := _find_later(partition, [position for _, position in held.values()], claims):
        return None if is_awaited and not is_accepted else later
    return _row_of(held) if any(index <= confirming for index, _ in held.values()) else None


def _find_later(partition: int, of: Collection[OwnerEpoch], claims: Collection[Claims]) -> Slots:
    """Return a row of those that were on sides without the majority, and have more than all that holders of a partition have.

    1. A ends, and B goes on without the majority. 2. B hands the partition over to C, which joins it. 3. All end, and come back.
    """
    later = [
        each
        for each in claims
        if each.lacks_majority
        and not each.is_old
        and (position := each.positions.get(partition)) is not None
        and all(_is_later(position, held) for held in of)
    ]
    return choose_greatest(partition, later)


def _find_handed_over(partition: int, claims: Collection[Claims]) -> Slots | None:
    """Return the row of the greatest replica, where it is of a side without the majority; None: it is not, or nobody has one.

    1. A ends, and B, the only holder of a partition, goes on without the majority. 2. B hands it over to C, which joins it, and leaves.
    3. All end, and come back. Of the others some can have what they held before B.
    """
    row = choose_greatest(partition, [each for each in claims if not each.is_old])
    apart = {each.member for each in claims if each.lacks_majority}
    return row if row and row[0] in apart else None


def has_later(partition: int, held: OwnerEpoch | None, claims: Collection[Claims]) -> bool:
    """Return whether anybody has all of a replica, and more. `held`: its position; None: nothing was stored in it."""
    of = held or OwnerEpoch(partition, 0, "", 0)
    return any(partition in each.positions and _is_later(each.positions[partition], of) for each in claims)


def _is_later(position: OwnerEpoch, held: OwnerEpoch) -> bool:
    return position.seq > held.seq and is_prefix(held.lineage, held.seq, position.lineage, position.seq)


def choose_greatest(partition: int, claims: Collection[Claims]) -> Slots:
    """Return a row of the members that have the greatest replica of a partition; empty: nobody has one."""
    found = {each.member: (0, each.positions[partition]) for each in claims if partition in each.positions}
    found = {member: place for member, place in found.items() if place[1].epoch}
    return _row_of(found) if found else ()


def positions_in(side: StoredSide, partition_count: int) -> dict[int, OwnerEpoch]:
    """Return the position of each replica, by partition; epoch 0: its incarnations were never given the partition.

    Who has not heard of a division divides its replicas when it does: then each part has this position.
    """
    table = side.table
    before = table.partition_count if table is not None else partition_count

    def leader_of(leader: str) -> str:
        return leader if partition_count == before else divided_leader(leader, before)

    found = {
        child: OwnerEpoch(child, each.epoch, leader_of(each.leader), each.seq, each.lineage)
        for each in side.positions
        for child in children_of(each.partition, partition_count, before)
    }
    if table is None and side.had_table:
        return found  # what it was given was in a table that it has no more
    # A backup gets its first replica when the owner asks it; an owner has one as soon as it has the table.
    for partition in range(partition_count):
        if partition not in found and (table is None or table.owner(partition % before) not in side.formers):
            found[partition] = OwnerEpoch(partition, 0, "", 0)
    return found


def _row_of(held: Mapping[MemberId, tuple[int, OwnerEpoch]]) -> Slots:
    """Return the new row: the holder with the greatest position, and those that are equal to it."""

    def rank(member: MemberId) -> tuple[int, int, int]:
        index, position = held[member]
        return position.epoch, position.seq, -index

    ruler = max(held, key=rank)
    of = held[ruler][1]
    equal = [member for member in held if member != ruler and _are_equal(held[member][1], of)]
    return (ruler, *sorted(equal, key=lambda member: held[member][0]))


def _are_equal(position: OwnerEpoch, other: OwnerEpoch) -> bool:
    """Return whether two replicas hold the same: no epoch that one of them has not heard of has brought a write."""
    is_same = (position.epoch, position.leader, position.seq) == (other.epoch, other.leader, other.seq)
    has_same_writes = position.seq == other.seq and is_prefix(position.lineage, position.seq, other.lineage, other.seq)
    return is_same or has_same_writes
