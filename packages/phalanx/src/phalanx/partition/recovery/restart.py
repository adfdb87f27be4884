"""The table with which a cluster goes on that was switched off: a pure rule over what its members have read from their folders.

The newest row of each partition counts that a side with the majority has given. Of its holders that are back, the one with the greatest
position owns the partition: it has all that any of them acknowledged. Those with an equal position are its backups at once; the
others get what they lack like any new backup, and are in no row before they have it.

A side without the majority can have gone on alone. What it has owns a partition only if it has all that the holders of the newest row
have (`common.lineage`); else it is set aside, and merged as after a cut, as all that is left over and others have not:

1. C is cut off from A and B, and goes on alone, which raises the versions of its rows. 2. A and B acknowledge writes. 3. All lose power.

Members of the former cluster are named by the incarnations that have written the folders. Each row gets a version above
all that any former master can have given, so that no epoch is used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from phalanx.codec.hashing import children_of
from phalanx.common.ids import MemberId, divided_leader
from phalanx.common.lineage import is_prefix
from phalanx.common.map_plan import MapPlan
from phalanx.common.quorum import combine_records, find_lacking
from phalanx.common.table import PartitionTable, Slots, TableRow, holders_of
from phalanx.partition.recovery.old_folders import find_old, find_without_vote, leave_out_old
from phalanx.partition.recovery.repair import confirming_index
from phalanx.wire.table_messages import OwnerEpoch, StoredSide

VERSION_STEP = 1 << 20
"""A restart raises the version of each row, and of the settings of maps, by this: a master gives fewer while a view lasts that some member has not heard of."""


class Restart(NamedTuple):
    """What is known of a cluster that is to go on."""

    table: PartitionTable | None
    """The table with which it goes on, once it can: partitions of `lacking` are dormant in it; None: nobody had one."""
    lacking: dict[int, tuple[MemberId, ...]]
    """Partition to the former holders of which one must come back, because none that is here has all of it."""
    absent_voters: tuple[MemberId, ...]
    """Voters of the last view that is or can be stable, and that are not back."""
    lacks_majority: bool
    """Whether a majority of a view that is or can be stable is not back."""
    absent_holders: tuple[MemberId, ...] = ()
    """Members that are not back, and by newer rows, of sides without the majority, hold partitions: they can have more than those here."""
    without_vote: Mapping[MemberId, int] = {}
    """Members whose folder is older than others know, with the start that these know of it."""


def plan_restart(sides: Mapping[MemberId, StoredSide], *, is_accepted: bool = False) -> Restart:
    """Return how the cluster of these members can go on.

    `sides`: present members to what each has read, at least one. `is_accepted`: an operator lets it go on without those that are absent.
    """
    footing = combine_records(side.history.footing for side in sides.values())
    without_vote, old = find_without_vote(sides, footing), find_old(sides, footing)
    voters = frozenset(side.history.voter for member, side in sides.items() if member not in without_vote)
    left = {voter for side in sides.values() for voter in side.history.footing.left}
    latest = max((footing.stable, *footing.pending), key=lambda view: view.number)
    without_majority = find_lacking(footing, voters | left)
    wanted = dict.fromkeys([*latest.voters, *(without_majority.voters if without_majority is not None else ())])
    absent = tuple(voter for voter in wanted if voter not in voters | left)
    # Folders of two clusters have no majority in common.
    are_apart = len({side.history.footing.root for side in sides.values()}) > 1
    lacks_majority = are_apart or without_majority is not None
    newest = _newest_rows([side for side in sides.values() if not side.lacks_majority]) or _newest_rows(
        [*sides.values()]
    )
    if newest is None:
        return Restart(None, {}, absent, lacks_majority, without_vote=without_vote)
    rows, lacking = {}, {}
    claims = [
        Claims(member, side.formers, positions_in(side, newest.partition_count), member in old, side.lacks_majority)
        for member, side in sides.items()
    ]
    above = _versions_above(newest, sides.values(), claims)
    back, confirming = _find_back(sides, without_vote, left), confirming_index(newest)
    for partition in range(newest.partition_count):
        _, _, birth, dormant = newest.row(partition)
        slots = newest.slots(partition) or dormant
        if not slots:
            continue
        row = choose_row(slots, partition, claims, confirming, back, is_accepted=is_accepted)
        if row is None and not dormant:
            lacking[partition] = tuple(former for former in slots if former is not None)[: confirming + 1]
        rows[partition] = TableRow(row or (), above[partition] + VERSION_STEP, birth, slots if row is None else ())
    absent_holders = _find_absent_holders(newest, sides.values(), back)
    table = newest.with_rows(rows).with_maps(_settings_above(newest.maps, sides.values()))
    return Restart(table, lacking, absent, lacks_majority, absent_holders, without_vote)


def _find_back(
    sides: Mapping[MemberId, StoredSide], without_vote: Collection[MemberId], left: Collection[MemberId]
) -> frozenset[MemberId]:
    """Return former members of which nothing more comes: their folders are here, or they have left in good order (`left`).

    1. A and B hold a partition, and B ends. 2. C joins A, which hands over to it, and leaves for good. 3. C ends. 4. B and C come back.
    """
    present = [side for member, side in sides.items() if member not in without_vote]
    back = frozenset(each for side in present for each in (side.history.voter, *side.incarnations))
    # One that stops leaves in good order, too, and its folder has what it held. Perhaps it has another name there than among voters.
    keeps = {each for side in sides.values() for each in side.awaited} - back
    return back if keeps else back.union(left)


def _find_absent_holders(
    newest: PartitionTable, sides: Collection[StoredSide], back: Collection[MemberId]
) -> tuple[MemberId, ...]:
    """Return who holds partitions by rows that sides without the majority have given since, and of whom nothing is here (`back`).

    1. A and B hold a partition, and A ends. 2. C and D join B, which hands over to D, and leaves. 3. All end, and A and C come back. A
    has what it had when it ended.
    """
    later = _newest_rows([side for side in sides if side.lacks_majority])
    if later is None or later.partition_count != newest.partition_count:
        return ()
    rows = later.newer_rows(newest).values()
    holders = holders_of((row.slots or row.dormant)[: confirming_index(later) + 1] for row in rows)
    present = {former for side in sides for former in side.formers}
    return tuple(member for member in holders if member not in present and member not in back)


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
    if not any(position.epoch for _, position in held.values()):
        later = None if is_awaited else _find_handed_over(partition, claims)
        if later is None and len(held) == len(named):
            return (present[named[0]].member,)  # none of them had heard of its first table: nothing was ever stored
        return later
    old = frozenset(each.member for each in claims if each.is_old)
    # One that does not confirm, and went on alone, can lack what the others have acknowledged.
    apart = {each.member for each in claims if each.lacks_majority}
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


def _newest_rows(sides: Collection[StoredSide]) -> PartitionTable | None:
    """Return the table with the newest row of each partition that any of them has installed; None: none has one."""
    found = [side.table for side in sides if side.table is not None]
    if not found:
        return None
    most = max(table.partition_count for table in found)
    tables = [table for table in found if table.partition_count == most]
    table = max(tables, key=lambda each: each.version)
    for each in tables:
        if newer := each.newer_rows(table):
            table = table.with_rows(newer)
        table = table.with_maps(each.maps)
        table = table.with_losses(table.losses.united_with(each.losses))
    return table


def _versions_above(
    newest: PartitionTable, sides: Collection[StoredSide], claims: Collection[Claims]
) -> tuple[int, ...]:
    """Return, by partition, the greatest version or epoch that any of them knows: also sides that do not count have used theirs."""
    known = [newest.versions]
    for side in sides:
        if side.table is not None and side.table.partition_count == newest.partition_count:
            known.append(side.table.versions)
    epochs = [
        max((each.positions[p].epoch for each in claims if p in each.positions), default=0)
        for p in range(newest.partition_count)
    ]
    return tuple(map(max, zip(*known, epochs, strict=True)))


def _settings_above(maps: MapPlan, sides: Collection[StoredSide]) -> MapPlan:
    """Return these settings of maps, in a version that no other ones have had.

    1. A and B wait for others. A, the master, ends, and B, which has read nothing, leads and has the settings that it was started with.
    2. A comes back. 3. B goes on with those of A's folder: who has B's first ones must not take these for the same.
    """
    known = [maps.version, *(side.table.maps.version for side in sides if side.table is not None)]
    return msgspec.structs.replace(maps, version=max(known) + VERSION_STEP)


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
