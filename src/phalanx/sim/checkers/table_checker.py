"""Checks the partition tables that members installed, and follows who holds each partition in sync.

* At each member versions only grow.
* No table names a member that holds no data.
* Members of one cluster never disagree about who owns a partition at one of its versions.
* A row follows from the one before it by a migration that was ordered for exactly that row, and which leaves no fewer
  replicas than there were or should be; or else no replica of a living member is taken out of it, and no partition goes
  to others while a replica in sync is a member.

The line of a partition is the sequence of its rows, as somebody had them first: a master, or the destination of a
migration, which commits before the master does. A write that was acknowledged may be missing only if, somewhere on this
line after it, all replicas in sync had left the cluster that went on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Replicas, Slots
from phalanx.common.view import MembersView
from phalanx.sim.checkers.findings import Findings
from phalanx.wire.events import (
    Event,
    MigrationStarted,
    PartitionLost,
    TableInstalled,
    TableSearchEnded,
    ViewInstalled,
)


class Step:
    """One row of a partition, as somebody had it first."""

    __slots__ = ("at", "before", "is_commit", "is_published", "maker", "replicas", "slots", "version", "view")

    def __init__(
        self, at: Millis, version: int, slots: Slots, maker: MemberId, view: MembersView, before: Replicas, *,
        is_commit: bool,
    ) -> None:  # fmt: skip
        self.at = at
        self.version = version
        self.slots = slots
        self.replicas: Replicas = tuple(member for member in slots if member is not None)
        self.maker = maker
        self.view = view.members
        """The maker's view then."""
        self.before = before
        """The replicas in the maker's row before."""
        self.is_commit = is_commit
        """Whether a migration led here: then the new replicas hold what the old ones held."""
        self.is_published = len(view.members) == 1
        """Whether another member has installed it: what a master told nobody before it died binds nobody."""


class Path(NamedTuple):
    """A row that may have come about from another one, and how."""

    version: int
    slots: Slots
    migrated: bool
    repaired: bool


class TableChecker:
    """Watches the tables of all members."""

    def __init__(self, findings: Findings, partitions: int, backups: int) -> None:
        self._findings = findings
        self._wanted = backups + 1
        self.lines: list[list[Step]] = [[] for _ in range(partitions)]
        """Of each partition its line."""
        self.installed: dict[MemberId, list[tuple[Millis, PartitionTable]]] = {}
        self._seen: dict[tuple[int, int], list[Step]] = {}
        """Partition and its version to the rows that had it."""
        self._owners: dict[tuple[int, int], dict[MemberId | None, list[MemberId]]] = {}
        """Partition and its version to the owner, and who installed a table that says so."""
        self._ordered: dict[tuple[int, int], list[MigrationStarted]] = {}
        """Partition and its version to the migrations that masters ordered for it."""
        self._adopted: dict[MemberId, tuple[int, ...]] = {}
        """New master to the partitions whose replicas it took from what they follow, in the input that is going on."""
        self._left: set[MemberId] = set()
        """Members that wanted to leave; one that crashes meanwhile does not stay either."""
        self._last_words: dict[tuple[int, int, Slots], Millis] = {}
        """Partition, version and row that a member had first in the input with which it left, to when."""
        self._lost: dict[MemberId, list[int]] = {}
        """Master to the partitions that it found lost, in the input that is going on."""
        self._members: dict[MemberId, tuple[MemberId, ...]] = {}
        """Of each member those of its view."""
        self._members_then: dict[MemberId, tuple[MemberId, ...]] = {}
        """The same, when it last installed a table: in one input it may have installed a newer view behind it."""

    def on_event(self, member: MemberId, event: Event, leaving: Collection[MemberId]) -> None:
        """A member has recorded a fact; these members were asked to leave."""
        self._left.update(leaving)
        if isinstance(event, MigrationStarted):
            self._ordered.setdefault((event.partition, event.partition_version), []).append(event)
        elif isinstance(event, TableSearchEnded):
            self._adopted[member] = event.adopted
        elif isinstance(event, PartitionLost):
            self._lost.setdefault(member, []).append(event.partition)
        elif isinstance(event, ViewInstalled):
            self._members[member] = event.members
        elif isinstance(event, TableInstalled) and member in self._members:
            self._members_then[member] = self._members[member]

    def on_table(
        self,
        member: MemberId,
        table: PartitionTable,
        view: MembersView | None,
        alive: Collection[MemberId],
        now: Millis,
    ) -> None:
        """A member has installed a table. Who has a row that was not seen before, made it, or was told to commit it."""
        history = self.installed.setdefault(member, [])
        before = history[-1][1] if history else None
        if before is not None and before.version >= table.version:
            self._findings.add(now, "tables only move on", f"{member}: {before.version}, then {table.version}")
        for each in table.members if view is not None and view.traits else ():
            if view is not None and view.traits_of(each).lite:
                self._findings.add(now, "lite members hold nothing", f"{each}, by table {table.version} of {member}")
        changed = self._changed(before, table, member, now)
        history.append((now, table))
        adopted, lost = self._adopted.pop(member, ()), self._lost.pop(member, ())
        for partition in changed:
            self._check_owner(partition, member, table, view, alive, now)
            if view is None:
                self._last_words.setdefault((partition, table.versions[partition], table.slots(partition)), now)
            elif not self._note_seen(partition, member, table):
                old = (before.slots(partition), before.versions[partition]) if before is not None else ((), 0)
                told = partition in adopted, partition in lost
                self._add_row(partition, member, *old, table, view, now, *told)

    def _changed(
        self, before: PartitionTable | None, table: PartitionTable, member: MemberId, now: Millis
    ) -> list[int]:  # fmt: skip
        if before is None:
            return [partition for partition, version in enumerate(table.versions) if version]
        versions = list(zip(before.versions, table.versions, strict=True))
        for partition, (old, new) in enumerate(versions):
            if new < old:
                self._findings.add(now, "rows only move on", f"{member}: partition {partition} at {old}, then at {new}")
        return [partition for partition, (old, new) in enumerate(versions) if new != old]

    def _check_owner(
        self, partition: int, member: MemberId, table: PartitionTable, view: MembersView | None,
        alive: Collection[MemberId], now: Millis,
    ) -> None:  # fmt: skip
        owners = self._owners.setdefault((partition, table.versions[partition]), {})
        owner = table.owner(partition)
        owners.setdefault(owner, []).append(member)
        if len(owners) == 1 or view is None:
            return
        for other, holders in owners.items():
            against = [each for each in holders if other != owner and each in alive and each in view.members]
            if against:
                story = f"partition {partition} version {table.versions[partition]}: {owner} at {member}, {other} at {against}"
                self._findings.add(now, "one owner per partition and version", story)

    def _note_seen(self, partition: int, member: MemberId, table: PartitionTable) -> bool:
        """Whether somebody had this row before; then it is published now."""
        slots = table.slots(partition)
        for step in self._seen.get((partition, table.versions[partition]), ()):
            if step.slots == slots:
                step.is_published = step.is_published or step.maker != member
                return True
        return False

    def _add_row(
        self,
        partition: int,
        member: MemberId,
        old: Slots,
        since: int,
        table: PartitionTable,
        view: MembersView,
        now: Millis,
        is_adopted: bool,
        is_lost: bool,
    ) -> None:
        """A row that nobody had before."""
        version, slots = table.versions[partition], table.slots(partition)
        before: Replicas = tuple(each for each in old if each is not None)
        rows = self._reached(partition, old, since, version, view)
        ways = [(path.migrated, path.repaired) for path in rows if (path.version, path.slots) == (version, slots)]
        migrated = any(way[0] for way in ways) and not is_lost
        # What one input brought about is seen at once: migrations, and after them perhaps a repair.
        kept = [
            path.slots for path in rows if not any(m is not None and m not in slots and m in view for m in path.slots)
        ]
        is_commit = migrated or (bool(kept) and old not in kept and not is_lost)
        step = Step(now, version, slots, member, view, before, is_commit=is_commit)
        story = (
            f"partition {partition} version {version}: {old}, then at {member} {slots}, with the view {view.members}"
        )
        line = self.lines[partition]
        self._seen.setdefault((partition, version), []).append(step)
        if line and version < line[-1].version and line[-1].maker == view.master != member:
            # One input of a master brought about several rows, and others see each: this is one before its last.
            place = next(index for index, later in enumerate(line) if later.version > version)
            line.insert(place, step)
            return
        if migrated and all(way == (True, False) for way in ways):
            known = self._members_then.get(member, view.members)
            staying = sum(1 for each in view.data_members if each not in self._left and each in known)
            available = sum(1 for each in before if each in view)
            if len(step.replicas) < min(available, self._wanted, max(staying, 1)):
                self._findings.add(now, "a migration leaves no fewer replicas", story)
        elif not is_adopted and not kept:
            self._findings.add(now, "no replica of a living member is taken out", story)
        if line and line[-1].is_published and not is_commit:
            held_by = line[-1].replicas
            if held_by and not any(each in step.replicas for each in held_by) and any(m in view for m in held_by):
                text = f"{story}; the line was at {held_by}"
                self._findings.add(now, "replicas in sync are not passed over", text)
        line.append(step)

    def _reached(self, partition: int, old: Slots, since: int, version: int, view: MembersView) -> list[Path]:
        """The row before, and where migrations that were ordered for exactly such a row, repairs and migrations that
        were rolled back lead from it.
        """
        paths = [Path(since, old, migrated=False, repaired=False)]
        for path in paths:
            at, row = path.version, path.slots
            if at >= version:
                continue
            orders = self._ordered.get((partition, at), [])
            results = [result for result in (_result(row, order) for order in orders) if result != row]
            paths += [Path(at + 1, result, migrated=True, repaired=path.repaired) for result in results]
            if orders:
                paths.append(path._replace(version=at + 2))
            repaired = _without(row, view)
            if repaired != row:
                paths += [Path(at + by, repaired, path.migrated, repaired=True) for by in (1, 2)]
        return paths

    # --- questions -------------------------------------------------------------------------------------------------

    def owner_between(self, partition: int, begin: Millis, end: Millis) -> MemberId | None:
        """Who was the owner during a whole time by the line; None if that changed, or if there was none."""
        line = self.lines[partition]
        at_begin = next((step for step in reversed(line) if step.at <= begin), None)
        if at_begin is None or any(begin < step.at <= end for step in line):
            return None
        return at_begin.replicas[0] if at_begin.replicas else None

    def owners_told(
        self, partitions: Collection[int], members: Collection[MemberId], begin: Millis, end: Millis
    ) -> list[MemberId | None]:
        """Whom the tables that these members had during a time name as owners of these partitions, each once."""
        tables: list[PartitionTable] = []
        for member in dict.fromkeys(members):
            history = self.installed.get(member, [])
            tables += [table for at, table in history if at <= begin][-1:]
            tables += [table for at, table in history if begin < at <= end]
        return list(dict.fromkeys(table.owner(partition) for table in tables for partition in partitions))

    def may_be_lost(self, partition: int, replier: MemberId, begin: Millis, end: Millis) -> bool:
        """Whether all replicas that had an acknowledged write left the cluster that went on.

        The write was acknowledged by the replier, by a table that it had installed between begin and end.
        """
        history = self.installed.get(replier, [])
        earlier = [table for at, table in history if at <= begin][-1:]
        tables = earlier + [table for at, table in history if begin < at <= end]
        return any(self._line_breaks(partition, table) for table in tables)

    def _line_breaks(self, partition: int, table: PartitionTable) -> bool:
        line = self.lines[partition]
        version, slots = table.versions[partition], table.slots(partition)
        starts = [i for i, step in enumerate(line) if (step.version, step.slots) == (version, slots)]
        said_at = self._last_words.get((partition, version, slots))
        if not starts and said_at is not None:
            # Nobody else had this row: what was confirmed by it is where its replicas are.
            return not any(each in step.view for step in line if step.at > said_at for each in slots)
        return bool(starts and line[starts[0]].replicas) and self._breaks_after(
            line, starts[0], line[starts[0]].replicas
        )

    def _breaks_after(self, line: list[Step], index: int, holding: Replicas) -> bool:
        for later in range(index + 1, len(line)):
            step = line[later]
            goes_on = any(each in step.replicas for each in holding)
            if goes_on or (step.is_commit and any(each in step.before for each in holding)):
                if not step.is_published and self._breaks_after(line, later, holding):
                    return True
                holding = step.replicas
            elif not any(each in step.view for each in holding):
                return True
        return False


def check_zones(table: PartitionTable, zones: Mapping[MemberId, str], findings: Findings, now: Millis) -> None:
    """At rest replicas are spread over the zones of the members that hold data as evenly as the zones' sizes allow."""
    sizes = Counter(zones.values())
    for partition in range(table.partition_count):
        held = Counter(zones[member] for member in table.replicas(partition) if member in zones)
        with_room = [held[zone] for zone, size in sizes.items() if held[zone] < size]
        if with_room and max(held.values(), default=0) > min(with_room) + 1:
            story = f"partition {partition}: {table.replicas(partition)}, of zones {dict(zones)}"
            findings.add(now, "replicas are kept in different zones", story)


def _result(slots: Slots, order: MigrationStarted) -> Slots:
    """What a migration makes of a row."""
    indexes = (
        order.source_current_index, order.source_new_index, order.destination_current_index, order.destination_new_index,
    )  # fmt: skip
    length = max(len(slots), *(index + 1 for index in indexes))
    row: list[MemberId | None] = [*slots, *[None] * (length - len(slots))]
    if any(row[at] != who for who, at in ((order.source, indexes[0]), (order.destination, indexes[2])) if at >= 0):
        return slots
    for left in (order.source_current_index, order.destination_current_index):
        if left >= 0:
            row[left] = None
    for member, taken in (
        (order.source, order.source_new_index),
        (order.destination, order.destination_new_index),
    ):
        if taken >= 0:
            row[taken] = member
    while row and row[-1] is None:
        row.pop()
    return tuple(row)


def _without(slots: Slots, view: MembersView) -> Slots:
    """The row without members that have left, the hottest of the others as the owner."""
    row = [member if member in view else None for member in slots]
    if row and row[0] is None:
        hottest = next((index for index, member in enumerate(row) if member is not None), 0)
        row[0], row[hottest] = row[hottest], row[0]
    while row and row[-1] is None:
        row.pop()
    return tuple(row)
