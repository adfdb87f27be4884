"""The table with which a cluster goes on that was switched off: a pure rule over what its members have read from their folders.

The newest row of each partition counts that a side with the majority has given; what its holders have decides who gets it
(`partition.recovery.claims`). Without the majority of the last stable view nothing goes on but by an operator's word.

Members of the former cluster are named by the incarnations that have written the folders. Each row gets a version above
all that any former master can have given, so that no epoch is used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.quorum import combine_records, find_lacking
from phalanx.common.table import PartitionTable, TableRow, holders_of
from phalanx.partition.recovery.claims import Claims, choose_row, positions_in
from phalanx.partition.recovery.old_folders import find_old, find_without_vote
from phalanx.partition.recovery.repair import confirming_index
from phalanx.wire.table_messages import StoredSide

VERSION_STEP = 1 << 20
"""A restart raises the version of each row, and of the settings of maps, by this, times the number of its view: a master gives fewer while
a view lasts that some member has not heard of.

1. Master A makes the table of a restart, and ends before others have it. 2. They restart without A, in a view with a greater number, from
the same folders: their rows must not have the versions of A's, which come back with A's folder.
"""


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
    clusters: tuple[tuple[MemberId, ...], ...] = ()
    """Where members have read the folders of several clusters: those of each. Empty: of one."""


def plan_restart(
    sides: Mapping[MemberId, StoredSide],
    others: Collection[MemberId] = (),
    number: int = 1,
    *,
    is_accepted: bool = False,
) -> Restart:
    """Return how the cluster of these members can go on.

    `sides`: present members to what each has read, at least one. `others`: for whom those vote that are present, and have read nothing.
    `number`: that of the view, which no earlier majority of theirs has had. `is_accepted`: an operator lets it go on without those that are absent.

    1. A has data, and admits B and C. 2. A ends before they have its table, and comes back: their votes are not in their folders.
    """
    footing = combine_records(side.history.footing for side in sides.values())
    without_vote, old = find_without_vote(sides, footing), find_old(sides, footing)
    voters = frozenset(side.history.voter for member, side in sides.items() if member not in without_vote).union(others)
    left = {voter for side in sides.values() for voter in side.history.footing.left}
    latest = max((footing.stable, *footing.pending), key=lambda view: view.number)
    without_majority = find_lacking(footing, voters | left)
    wanted = dict.fromkeys([*latest.voters, *(without_majority.voters if without_majority is not None else ())])
    absent = tuple(voter for voter in wanted if voter not in voters | left)
    # Folders of two clusters have no majority in common.
    clusters = _find_clusters(sides)
    lacks_majority = bool(clusters) or without_majority is not None
    newest = _newest_rows([side for side in sides.values() if not side.lacks_majority]) or _newest_rows(
        [*sides.values()]
    )
    if newest is None:
        return Restart(None, {}, absent, lacks_majority, without_vote=without_vote, clusters=clusters)
    rows, lacking = {}, {}
    claims = [
        Claims(member, side.formers, positions_in(side, newest.partition_count), member in old, side.lacks_majority)
        for member, side in sides.items()
    ]
    above, step = _versions_above(newest, sides.values(), claims), VERSION_STEP * max(number, 1)
    back, confirming = _find_back(sides, without_vote, left), confirming_index(newest)
    for partition in range(newest.partition_count):
        _, _, birth, dormant = newest.row(partition)
        slots = newest.slots(partition) or dormant
        if not slots:
            continue
        row = choose_row(slots, partition, claims, confirming, back, is_accepted=is_accepted)
        if row is None and not dormant:
            lacking[partition] = tuple(former for former in slots if former is not None)[: confirming + 1]
        rows[partition] = TableRow(row or (), above[partition] + step, birth, slots if row is None else ())
    absent_holders = _find_absent_holders(newest, sides.values(), back)
    maps = _with_decided(newest.maps, sides, rows.values())
    table = newest.with_rows(rows).with_maps(_settings_above(maps, sides.values(), step))
    return Restart(table, lacking, absent, lacks_majority, absent_holders, without_vote, clusters)


def _find_clusters(sides: Mapping[MemberId, StoredSide]) -> tuple[tuple[MemberId, ...], ...]:
    """Return the members that have read the folders of each cluster, if there are several; empty: there is one."""
    found: dict[MemberId, list[MemberId]] = {}
    for member, side in sides.items():
        found.setdefault(side.history.footing.root, []).append(member)
    return tuple(map(tuple, found.values())) if len(found) > 1 else ()


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


def _with_decided(maps: MapPlan, sides: Mapping[MemberId, StoredSide], rows: Collection[TableRow]) -> MapPlan:
    """Return these settings of maps, and the contents of maps that sides without the majority have decided, if every partition goes on with
    what a member of theirs has.

    1. A ends, and B goes on without the majority. 2. B decides the content of a map, tells the job so, and puts it in its place in one
    partition after another. 3. B ends, too, and both come back. By A's settings nothing is decided, and B's replicas rule: those that have
    the content already, and those that have not.

    A partition that goes on with what others have, or waits for them, can have later writes, which a replacement would remove. So both sides
    count then as after a cut: what such a side has there is merged.
    """
    plans = {member: side.table.maps for member, side in sides.items() if side.table is not None}
    for plan in sorted(plans.values(), key=lambda each: each.version, reverse=True):
        for content in plan.contents:
            known, decided = maps.content_of(content.map), content.decided_stamp
            # Of one that is decided and one that is in its place, the second is ahead.
            if (decided, content.stamp) <= (known.decided_stamp, known.stamp):
                continue
            having = [each for each, of in plans.items() if of.content_of(content.map).decided_stamp >= decided]
            if all(any(each in row.slots for each in having) for row in rows):
                maps = maps.with_content_in(plan, content.map)
    return maps


def _settings_above(maps: MapPlan, sides: Collection[StoredSide], step: int) -> MapPlan:
    """Return these settings of maps, in a version that no other ones have had.

    1. A and B wait for others. A, the master, ends, and B, which has read nothing, leads and has the settings that it was started with.
    2. A comes back. 3. B goes on with those of A's folder: who has B's first ones must not take these for the same.
    """
    known = [maps.version, *(side.table.maps.version for side in sides if side.table is not None)]
    return msgspec.structs.replace(maps, version=max(known) + step)
