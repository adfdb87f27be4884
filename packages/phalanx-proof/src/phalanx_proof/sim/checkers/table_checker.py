"""Checks the partition tables that members installed, and follows who holds each partition in sync.

* At each member versions only grow.
* No table names a member that holds no data.
* Members of one cluster never disagree about the owner of a partition at one of its versions; members of one master never
  disagree about the settings of maps.
* A row follows from the previous one by a migration that was ordered for exactly that row, and that leaves no fewer
  replicas than there were or should be. Otherwise no replica of a living member is taken out of it, and no partition goes
  to others while a replica in sync is a member.

The line of a partition is the sequence of its rows, as somebody had them first: a master, or the destination of a
migration, which commits before the master does. A write that was acknowledged can be missing only if, somewhere on this
line after it, all replicas in sync had left the cluster that went on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from functools import partial
from typing import Any

from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable, Replicas, Slots
from phalanx.common.view import MembersView
from phalanx.wire.join_events import LeaveStarted, LiteChanged, LiteChangeStarted
from phalanx.wire.restart_events import ClusterRestarted, HoldersGivenUp
from phalanx.wire.table_events import (
    MigrationCommitted,
    MigrationCopied,
    MigrationStarted,
    PartitionLost,
    PartitionsDivided,
    TableInstalled,
    TableSearchEnded,
)
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.checkers.founded_clusters import FoundedClusters
from phalanx_proof.sim.checkers.partition_rows import RowTransition, TableStep, row_after, row_without
from phalanx_proof.sim.checkers.row_owners import RowOwners


class TableChecker(Checker):
    """Watches the tables of all members."""

    def __init__(
        self, findings: Findings, partitions: int, backups: int, *, has_sides: bool = False, restarts: bool = False
    ) -> None:
        """`has_sides`: several sides of a cut go on for long; there is then no one line, and only each member's own
        tables are judged. `restarts`: a process brings back what the one before it at its address has held.
        """
        self._findings = findings
        self._has_sides = has_sides
        self._restarts = restarts
        self._gone: list[tuple[int, Millis, Millis]] = []
        """Parts that nobody held any more but members whose folders were put back, or that an operator has given up, and from when to when
        all that was written can be gone."""
        self._power_cuts: list[tuple[Millis, Millis]] = []
        """When everybody lost power, behind the time from which on everything can be gone that was written."""
        self.begun_empty: Container[int] = ()
        """Partitions, by their numbers before any division, that began empty at some time. Their owner sets it."""
        self.failed_disks: Mapping[MemberId, Millis] = {}
        """Members whose disks have failed, which get no replicas. Their owner sets it."""
        self.clusters = FoundedClusters()
        self._wanted = backups + 1
        self.lines: list[list[TableStep]] = [[] for _ in range(partitions)]
        """The line of each partition. Where clusters had different counts one after another: of each part that belongs
        to one partition in all of them."""
        self._first_count = partitions
        self._counts: dict[MemberId, int] = {}
        """Master that has divided the partitions to how many there are."""
        self.installed: dict[MemberId, list[tuple[Millis, PartitionTable]]] = {}
        self._settings: dict[tuple[MemberId, int], tuple[MapPlan, MemberId]] = {}
        """Master and version of the settings of maps to these settings, and who had them first."""
        self._seen: dict[tuple[int, int], list[TableStep]] = {}
        """Partition and its version to the rows that had it."""
        self._owners = RowOwners(findings)
        self._ordered: dict[tuple[int, int], list[MigrationStarted]] = {}
        """Partition and its version to the migrations that masters ordered for it."""
        self._adopted: dict[MemberId, tuple[int, ...]] = {}
        """New master to the partitions whose replicas it adopted, in the present input."""
        self._restarting: set[MemberId] = set()
        """Masters that have brought back a cluster in the present input."""
        self._dividing: set[MemberId] = set()
        """Masters that have divided the partitions in the present input."""
        self._divided: set[tuple[int, int]] = set()
        """Partition and the version that its division gave it, or can have given it: one input can bring more versions."""
        self._staying_then: dict[tuple[int, int], int] = {}
        """Partition and its version to how many members were to stay when its migration was decided: its destination was ready, or
        a replica was cleared."""
        self._left: set[MemberId] = set()
        """Members that wanted to leave; one that crashes meanwhile does not stay either."""
        self._demoted: set[MemberId] = set()
        """Members that are to become lite, or have; until they hold data again by their own wish."""
        self._apart: set[tuple[int, int, Slots]] = set()
        """Partition, version and row of clusters that others have founded: nothing that they have acknowledged is on any line."""
        self._last_words: dict[tuple[int, int, Slots], Millis] = {}
        """Partition, version and row that a member had first in the input with which it left, to the time."""
        self._lost: dict[MemberId, list[int]] = {}
        """Master to the partitions that it found lost, in the present input."""
        self._members: dict[MemberId, tuple[MemberId, ...]] = {}
        """Member to the members of its view."""
        self._members_then: dict[MemberId, tuple[MemberId, ...]] = {}
        """The same, when the member last installed a table: in the same input it can have installed a newer view after
        that."""

    def _divide(self, count: int) -> None:
        """Note that somebody has divided the partitions into so many: each part inherits all that is known of its origin."""
        before, parts = len(self.lines), math.lcm(len(self.lines), count)
        self.lines = [list(self.lines[part % before]) for part in range(parts)]
        spread = partial(_spread, before=before, parts=parts)
        self._seen = spread(self._seen, list)
        self._ordered = spread(self._ordered, list)
        self._owners.divide(spread)
        self._staying_then = spread(self._staying_then, int)
        self._gone = [(part, since, at) for p, since, at in self._gone for part in range(p, parts, before)]
        self._divided = {(part, version) for p, version in self._divided for part in range(p, parts, before)}

    def _parts(self, partition: int, count: int) -> range:
        """Return the lines that belong to a partition of a table with so many partitions."""
        return range(partition, len(self.lines), count)

    def on_event(self, recorded: ObservedEvent) -> None:
        member, event, _, view, leaving = recorded
        self._left.update(leaving)
        self._owners.on_event(member, event)
        if isinstance(event, MigrationStarted):
            for part in self._parts(event.partition, self._count_at(member)):
                self._ordered.setdefault((part, event.partition_version), []).append(event)
        elif isinstance(event, MigrationCommitted) and event.destination is None and view is not None:
            for part in self._parts(event.partition, self._count_at(member)):
                # It is in the table now, before what the same input brings after it.
                self._staying_then[part, event.partition_version] = self._staying(view, self._members.get(member))
        elif isinstance(event, MigrationCopied) and view is not None:
            for part in self._parts(event.partition, self._count_at(member)):
                # The member that gets the order can be without the news of a removal that the master knows.
                known = self._members.get(view.master)
                self._staying_then[part, event.partition_version] = self._staying(view, known)
        elif isinstance(event, LeaveStarted):
            self._left.add(event.leaver)  # it can have crashed since it told the master
        elif isinstance(event, LiteChangeStarted):
            self._demoted.add(event.subject)
        elif isinstance(event, LiteChanged) and not event.lite:
            self._demoted.discard(event.subject)
        elif isinstance(event, TableSearchEnded):
            self._adopted[member] = event.adopted
        elif isinstance(event, ClusterRestarted):
            self._restarting.add(member)
        elif isinstance(event, PartitionsDivided):
            self._divide(event.after)
            self._counts[member] = event.after
            self._dividing.add(member)
        elif isinstance(event, HoldersGivenUp):
            self._on_given_up(event, self._count_at(member), recorded.now)
        elif isinstance(event, PartitionLost):
            self._lost.setdefault(member, []).append(event.partition)
        elif isinstance(event, ViewInstalled):
            self._members[member] = event.members
        elif isinstance(event, TableInstalled) and member in self._members:
            self._members_then[member] = self._members[member]

    def _on_given_up(self, event: HoldersGivenUp, count: int, now: Millis) -> None:
        """Note that all that was written to partitions so far can be gone: an operator said that their last owners do not come back."""
        given_up = self._holders(event.holders)
        for part in (part for partition in event.partitions for part in self._parts(partition, count)):
            owner = next((step.replicas[:1] for step in reversed(self.lines[part]) if step.replicas), ())
            if self._holders(owner) <= given_up:
                self._gone.append((part, 0, now))

    def _count_at(self, member: MemberId) -> int:
        history = self.installed.get(member)
        return self._counts.get(member) or (history[-1][1].partition_count if history else len(self.lines))

    def on_table(
        self,
        member: MemberId,
        table: PartitionTable,
        view: MembersView | None,
        alive: Collection[MemberId],
        now: Millis,
        master: MemberId | None = None,
    ) -> None:
        """Judge a table that a member has installed, which follows this master.

        Who has a row first made it, or was told to commit it.
        """
        history = self.installed.setdefault(member, [])
        before = history[-1][1] if history else None
        if member in self._dividing and before is not None:
            self._dividing.discard(member)
            for part in range(len(self.lines)):
                old_version = before.versions[part % before.partition_count]
                version = table.versions[part % table.partition_count]
                self._divided.update((part, between) for between in range(old_version + 1, version + 1))
        # Before anything is assigned a master gives the settings that the cluster begins with.
        if before is not None and before.version >= table.version > 0:
            self._findings.add(now, "tables only move on", f"{member}: {before.version}, then {table.version}")
        self._check_settings(member, table, master, now)
        masters = self.installed.get(master or member, history)
        # A new view is told at once, and tables when they are synced (DU-05): others can follow in that order.
        is_overtaken = bool(masters) and masters[-1][1].version > table.version
        for each in table.members if view is not None and view.traits and not is_overtaken else ():
            if view is not None and view.traits_of(each).lite:
                self._findings.add(now, "lite members hold nothing", f"{each}, by table {table.version} of {member}")
        changed = self._changed(before, table, member, now)
        history.append((now, table))
        if self._has_sides:
            return
        if self._restarts and table.version and self.clusters.note_table(member, view):
            parts = ((p, part) for p in changed for part in self._parts(p, table.partition_count))
            self._apart.update((part, table.versions[p], table.slots(p)) for p, part in parts)
            return
        adopted, lost = self._adopted.pop(member, ()), self._lost.pop(member, ())
        restarts = member in self._restarting
        self._restarting.discard(member)
        count = table.partition_count
        for partition, part in [(p, part) for p in changed for part in self._parts(p, count)]:
            self._owners.check(part, member, table, view, alive, now)
            if view is None:
                self._last_words.setdefault((part, table.versions[partition], table.slots(partition)), now)
            elif not self._note_seen(part, member, table, is_master=view.master == member):
                old: tuple[Slots, int] = ((), 0)
                # What was lost or adopted and divided in one input was told of by the number before.
                named = {partition}
                if before is not None:
                    parent = partition % before.partition_count
                    old = before.slots(parent), before.versions[parent]
                    named.add(parent)
                if (before is None or not before.version) and self.lines[part]:
                    # Its first table, and what it was told to commit, came as one input: others had the row before.
                    earlier = [s for s in self.lines[part] if s.version < table.versions[partition]]
                    old = (earlier[-1].slots, earlier[-1].version) if earlier else old
                is_adopted, is_lost = not named.isdisjoint(adopted), not named.isdisjoint(lost)
                # Its master can have gone on to a newer view, which this member has yet to get.
                gone_on = self._members.get(master, view.members) if master is not None else view.members
                staying = frozenset(view.members).intersection(gone_on)
                if restarts:
                    # A master can have ended that alone knew which of them held what: they can lack what it wrote until then.
                    staying = frozenset(each for each in staying if self._had_table(each, member))
                self._add_row(part, member, *old, table, view, staying, now, is_adopted, is_lost)

    def _check_settings(self, member: MemberId, table: PartitionTable, master: MemberId | None, now: Millis) -> None:
        if master is None:
            return
        settings, first = self._settings.setdefault((master, table.maps.version), (table.maps, member))
        if settings != table.maps:
            story = (
                f"version {table.maps.version} by {master}: {settings.maps} at {first}, {table.maps.maps} at {member}"
            )
            self._findings.add(now, "all members have one master's settings of maps", story)

    def _changed(
        self, before: PartitionTable | None, table: PartitionTable, member: MemberId, now: Millis
    ) -> list[int]:  # fmt: skip
        if before is not None and before.partition_count > table.partition_count and before.version:
            self._findings.add(now, "tables only move on", f"{member}: partitions were joined together")
            return []
        if before is None or not before.version:
            return [partition for partition, version in enumerate(table.versions) if version]
        times = table.partition_count // before.partition_count
        versions = list(zip(before.versions * times, table.versions, strict=True))
        for partition, (old, new) in enumerate(versions):
            if new < old:
                self._findings.add(now, "rows only move on", f"{member}: partition {partition} at {old}, then at {new}")
        return [partition for partition, (old, new) in enumerate(versions) if new != old]

    def _note_seen(self, part: int, member: MemberId, table: PartitionTable, *, is_master: bool) -> bool:
        """Tell whether somebody had this row before; then mark it as published."""
        partition = part % table.partition_count
        slots = table.slots(partition)
        for step in self._seen.get((part, table.versions[partition]), ()):
            if step.slots == slots:
                step.is_published = step.is_published or step.maker != member
                if is_master:
                    step.makers.add(member)
                return True
        return False

    def _add_row(
        self,
        part: int,
        member: MemberId,
        old: Slots,
        since: int,
        table: PartitionTable,
        view: MembersView,
        remaining: frozenset[MemberId],
        now: Millis,
        is_adopted: bool,
        is_lost: bool,
    ) -> None:
        """Check a row that nobody had before, and add it to its line."""
        partition = part % table.partition_count
        version, slots = table.versions[partition], table.slots(partition)
        before: Replicas = tuple(each for each in old if each is not None)
        rows = self._reached(part, old, since, version, remaining)
        origins = [(path.migrated, path.repaired) for path in rows if (path.version, path.slots) == (version, slots)]
        migrated = any(is_migrated for is_migrated, _ in origins) and not is_lost
        # What one input brought about is seen at once: migrations, and after them perhaps a repair.
        kept = [
            path.slots
            for path in rows
            if not any(m is not None and m not in slots and m in remaining for m in path.slots)
        ]
        is_commit = migrated or (bool(kept) and old not in kept and not is_lost)
        step = TableStep(now, version, slots, member, view, before, is_commit=is_commit)
        story = (
            f"partition {partition} version {version}: {old}, then at {member} {slots}, with the view {view.members}"
        )
        line = self.lines[part]
        self._seen.setdefault((part, version), []).append(step)
        if line and version < line[-1].version and view.master in line[-1].makers and view.master != member:
            # One input of a master brought about several rows, and others see each: this is one before its last.
            place = next(index for index, later in enumerate(line) if later.version > version)
            line.insert(place, step)
            return
        if migrated and all(each == (True, False) for each in origins):
            staying = self._staying(view, self._members_then.get(member))
            # The commit was sent to the destination behind that: nobody can call it back for one who joins now.
            staying = min(staying, self._staying_then.get((part, since), staying))
            available = sum(1 for each in before if each in view)
            # An administrator can have set fewer backups.
            wanted = min(available, self._wanted, table.maps.depth + 1, max(staying, 1))
            if len(step.replicas) < wanted and len(step.replicas) < self._wanted_then(part, since):
                self._findings.add(now, "a migration leaves no fewer replicas", story)
        elif not is_adopted and not kept:
            self._findings.add(now, "no replica of a living member is taken out", story)
        if line and line[-1].is_published and not is_commit:
            held_by = line[-1].replicas
            holding = [m for m in held_by if m in view and self._had_table(m, member)]
            if holding and not any(each in step.replicas for each in held_by):
                text = f"{story}; the line was at {held_by}"
                self._findings.add(now, "replicas in sync are not passed over", text)
        line.append(step)

    def _wanted_then(self, part: int, version: int) -> int:
        """Return the fewest replicas that there are to be by the tables by which masters ordered migrations of a row: a destination can
        commit before it has that table."""
        ordered = {event.table_version for event in self._ordered.get((part, version), ())}
        tables = (table for history in self.installed.values() for _, table in history if table.version in ordered)
        return min((table.maps.depth + 1 for table in tables), default=self._wanted)

    def _had_table(self, holder: MemberId, maker: MemberId) -> bool:
        """Return whether a member had a table before the one that the maker has now. Else it was never told what it holds:
        who admitted it was lost before it answered, and it can found another cluster.
        """
        before = self.installed.get(holder, [])[: -1 if holder == maker else None]
        return any(table.version for _, table in before)

    def _staying(self, view: MembersView, known: Collection[MemberId] | None = None) -> int:
        """Return how many members of the view hold data and are to stay. `known`: of these only."""
        gone = self._left | self._demoted | self.failed_disks.keys()
        return sum(1 for each in view.data_members if each not in gone and (known is None or each in known))

    def _reached(
        self, part: int, old: Slots, since: int, version: int, staying: Collection[MemberId]
    ) -> list[RowTransition]:  # fmt: skip
        """List the rows that can follow from the row before: by migrations that were ordered for exactly such a row, by
        repairs, and by migrations that were rolled back.
        """
        paths = [RowTransition(since, old, migrated=False, repaired=False)]
        for path in paths:
            at, row = path.version, path.slots
            if at >= version:
                continue
            orders = self._ordered.get((part, at), [])
            results = [result for result in (row_after(row, order) for order in orders) if result != row]
            paths += [RowTransition(at + 1, result, migrated=True, repaired=path.repaired) for result in results]
            if (part, at + 1) in self._divided:
                paths.append(path._replace(version=at + 1))
            if orders:
                paths.append(path._replace(version=at + 2))
            repaired = row_without(row, staying)
            if repaired != row:
                paths += [RowTransition(at + by, repaired, path.migrated, repaired=True) for by in (1, 2)]
        return paths

    def on_power_cut(self, since: Millis, now: Millis) -> None:
        self._power_cuts.append((since, now))

    # --- questions -------------------------------------------------------------------------------------------------

    def owner_between(self, part: int, begin: Millis, end: Millis) -> MemberId | None:
        """Return who owned a part during the whole time, by its line; None: nobody, or the owner changed."""
        line = self.lines[part]
        at_begin = next((step for step in reversed(line) if step.at <= begin), None)
        if at_begin is None or any(begin < step.at <= end for step in line):
            return None
        return at_begin.replicas[0] if at_begin.replicas else None

    def owners_known(
        self, parts: Collection[int], members: Collection[MemberId], begin: Millis, end: Millis
    ) -> list[MemberId | None]:
        """List the owners of these parts, each once, by the tables that these members had during a time."""
        tables: list[PartitionTable] = []
        for member in dict.fromkeys(members):
            history = self.installed.get(member, [])
            tables += [table for at, table in history if at <= begin][-1:]
            tables += [table for at, table in history if begin < at <= end]
        return list(dict.fromkeys(t.owner(part % t.partition_count) for t in tables for part in parts))

    def holders_since(self, part: int, member: MemberId, at: Millis) -> Set[MemberId]:
        """Return who held a part by the table that a member had at a time, and who has got a copy of theirs since."""
        known = [table for since, table in self.installed.get(member, []) if since <= at]
        holders = set(known[-1].replicas(part % known[-1].partition_count) if known else ())
        for step in self.lines[part]:
            if step.at >= at and step.is_commit and not holders.isdisjoint(step.before):
                holders.update(step.replicas)
        return holders

    def on_folder_gone(self, member: MemberId, others: Collection[MemberId], since: Millis, now: Millis) -> None:
        """Note that what a process wrote after a time is not what the next one finds. `others`: the members that run."""
        mine, theirs = self._holders([member]), self._holders(others)
        for part, line in enumerate(self.lines):
            holders = self._holders(line[-1].replicas) if line else frozenset[str]()
            if not (holders - mine) & theirs:
                self._gone.append((part, since, now))

    def may_be_lost(self, part: int, replier: MemberId, begin: Millis, end: Millis) -> bool:
        """Tell whether all replicas that had an acknowledged write left the cluster that went on.

        Of processes that bring back what they held: or whether the partition began empty although one of their folders had it.
        The replier acknowledged the write by a table that it had installed between begin and end.
        """
        if self._restarts and part % self._first_count in self.begun_empty:
            return True
        if any(begin <= at and end >= since for since, at in self._power_cuts):
            return True
        if any(part == gone and begin <= at and end >= since for gone, since, at in self._gone):
            return True
        history = self.installed.get(replier, [])
        earlier = [table for at, table in history if at <= begin][-1:]
        tables = earlier + [table for at, table in history if begin < at <= end]
        return any(self._line_breaks(part, table) for table in tables)

    def _line_breaks(self, part: int, table: PartitionTable) -> bool:
        line = self.lines[part]
        partition = part % table.partition_count
        version, slots = table.versions[partition], table.slots(partition)
        starts = [i for i, step in enumerate(line) if (step.version, step.slots) == (version, slots)]
        said_at = self._last_words.get((part, version, slots))
        if not starts and (part, version, slots) in self._apart:
            return True
        if not starts and said_at is not None:
            # Nobody else had this row: what was confirmed by it is where its replicas are.
            holding = self._holders(each for each in slots if each is not None)
            return not any(holding & self._holders(step.view) for step in line if step.at > said_at)
        return bool(starts and line[starts[0]].replicas) and self._breaks_after(line, starts[0], [line[starts[0]]])

    def _breaks_after(self, line: list[TableStep], index: int, held: list[TableStep]) -> bool:
        """Tell whether the line comes to a row of which nobody had the write. `held`: the rows up to that one whose replicas had it."""
        for later in range(index + 1, len(line)):
            step = line[later]
            view = self._holders(step.view)
            known = next(
                (row for row in reversed(held) if row.version < step.version and self._is_known(row, view)), None
            )
            had = self._holders(known.replicas) if known is not None else frozenset[str]()
            if had & self._holders(step.replicas) or (step.is_commit and had & self._holders(step.before)):
                if not step.is_published and self._breaks_after(line, later, held):
                    return True
                held = [*held, step]
            elif not (had or self._holders(held[-1].replicas)) & view and not (self._restarts and step.version == 1):
                return True  # nobody begins without them where their folders have the data
        return False

    def _is_known(self, row: TableStep, view: Set[str]) -> bool:
        """Tell whether members with this view can know an older row: it is not of another side of a cut.

        1. B is cut off, and A's row is without it. 2. B and C, which know nothing of that, commit the migration that A had ordered: what it
        moves is without what A acknowledges alone. 3. When they know, their row names A until their majority knows, too.
        """
        return not self._holders(row.view).isdisjoint(view)

    def _holders(self, members: Iterable[MemberId]) -> Set[str]:
        """Return these members; of processes that bring back what they held, their addresses."""
        return frozenset(address_of(member) if self._restarts else member for member in members)


def _spread(
    known: Mapping[tuple[int, int], Any], copy: Callable[[Any], Any], *, before: int, parts: int
) -> dict[tuple[int, int], Any]:
    """Return what is known of each partition and version for all of its parts, each with a copy of its own."""
    return {(part, version): copy(value) for (p, version), value in known.items() for part in range(p, parts, before)}


def check_zones(table: PartitionTable, zones: Mapping[MemberId, str], findings: Findings, now: Millis) -> None:
    """Check at rest that replicas are spread over the zones of data members as evenly as the sizes of the zones allow."""
    sizes = Counter(zones.values())
    for partition in range(table.partition_count):
        held = Counter(zones[member] for member in table.replicas(partition) if member in zones)
        with_room = [held[zone] for zone, size in sizes.items() if held[zone] < size]
        if with_room and max(held.values(), default=0) > min(with_room) + 1:
            story = f"partition {partition}: {table.replicas(partition)}, of zones {dict(zones)}"
            findings.add(now, "replicas are kept in different zones", story)
