"""Checks the partition tables that members installed, and follows who holds each partition in sync.

* At each member versions only grow.
* Members of one cluster never disagree about who owns a partition at one of its versions.
* No replica of a living member is taken out while the partition has too few, and no partition goes to others while a
  replica in sync is a member.

The line of a partition is the sequence of its replicas in the tables that masters made. A write that was acknowledged
may be missing only if, somewhere on this line after it, all replicas in sync had left the cluster that went on.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Replicas
from phalanx.common.view import MembersView
from phalanx.sim.checkers.findings import Findings


class Step:
    """One row of a partition, as a master decided it."""

    __slots__ = ("at", "is_published", "maker", "replicas", "version", "view")

    def __init__(self, at: Millis, version: int, replicas: Replicas, maker: MemberId, view: MembersView) -> None:
        self.at = at
        self.version = version
        self.replicas = replicas
        self.maker = maker
        self.view = view.members
        """The master's view then."""
        self.is_published = len(view.members) == 1
        """Whether another member has installed it: what a master told nobody before it died binds nobody."""


class TableChecker:
    """Watches the tables of all members."""

    def __init__(self, findings: Findings, partitions: int, backups: int) -> None:
        self._findings = findings
        self._wanted = backups + 1
        self.lines: list[list[Step]] = [[] for _ in range(partitions)]
        """Of each partition its line."""
        self.installed: dict[MemberId, list[tuple[Millis, PartitionTable]]] = {}
        self._seen: dict[int, list[PartitionTable]] = {}
        """Table version to the tables that had it."""
        self._owners: dict[tuple[int, int], dict[MemberId | None, list[MemberId]]] = {}
        """Partition and its version to the owner, and who installed a table that says so."""

    def on_table(
        self, member: MemberId, table: PartitionTable, view: MembersView | None, alive: set[MemberId], now: Millis
    ) -> None:
        """A member has installed a table. Who has one that was not seen before, made it."""
        same_version = self._seen.setdefault(table.version, [])
        is_made_here = not any(seen is table or seen == table for seen in same_version)
        if is_made_here:
            same_version.append(table)
        history = self.installed.setdefault(member, [])
        if history and history[-1][1].version >= table.version:
            before = history[-1][1].version
            self._findings.add(now, "tables only move on", f"{member}: {before}, then {table.version}")
        changed = self._changed(history[-1][1] if history else None, table)
        history.append((now, table))
        for partition in changed:
            self._check_owner(partition, member, table, view, alive, now)
            if view is None:
                continue
            if not is_made_here:
                self._note_published(partition, table)
            else:
                self._extend_line(partition, member, table, view, now)
                if len(history) > 1:
                    self._check_removal(partition, member, history[-2][1].replicas(partition), table, view, now)

    def _changed(self, before: PartitionTable | None, table: PartitionTable) -> list[int]:
        if before is None:
            return list(range(table.partition_count))
        return [p for p, version in enumerate(table.versions) if version != before.versions[p]]

    def _check_owner(
        self, partition: int, member: MemberId, table: PartitionTable, view: MembersView | None, alive: set[MemberId],
        now: Millis,
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

    def _extend_line(
        self, partition: int, member: MemberId, table: PartitionTable, view: MembersView, now: Millis
    ) -> None:
        line = self.lines[partition]
        replicas = table.replicas(partition)
        if line and line[-1].is_published:
            before = line[-1].replicas
            story = f"partition {partition}: {before}, then by {member} {replicas}, with the view {view.members}"
            if before and not any(each in replicas for each in before) and any(each in view for each in before):
                self._findings.add(now, "replicas in sync are not passed over", story)
        line.append(Step(now, table.versions[partition], replicas, member, view))

    def _check_removal(
        self, partition: int, member: MemberId, before: Replicas, table: PartitionTable, view: MembersView, now: Millis
    ) -> None:
        """Against the master's own table before: one that an earlier master told nobody of cannot bind it."""
        replicas = table.replicas(partition)
        removed = [each for each in before if each not in replicas and each in view]
        if removed and len(replicas) < min(self._wanted, len(view.members)):
            story = f"partition {partition}: {before}, then by {member} {replicas}, with the view {view.members}"
            self._findings.add(now, "no replica of a living member is taken out", story)

    def _note_published(self, partition: int, table: PartitionTable) -> None:
        version, replicas = table.versions[partition], table.replicas(partition)
        for step in reversed(self.lines[partition]):
            if (step.version, step.replicas) == (version, replicas):
                step.is_published = True
                return

    # --- questions -------------------------------------------------------------------------------------------------

    def owner_between(self, partition: int, begin: Millis, end: Millis) -> MemberId | None:
        """Who was the owner during a whole time by the line; None if that changed, or if there was none."""
        line = self.lines[partition]
        at_begin = next((step for step in reversed(line) if step.at <= begin), None)
        if at_begin is None or any(begin < step.at <= end for step in line):
            return None
        return at_begin.replicas[0] if at_begin.replicas else None

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
        version, replicas = table.versions[partition], table.replicas(partition)
        starts = [i for i, step in enumerate(line) if (step.version, step.replicas) == (version, replicas)]
        return bool(starts and replicas) and self._breaks_after(line, starts[0], replicas)

    def _breaks_after(self, line: list[Step], index: int, holding: Replicas) -> bool:
        for later in range(index + 1, len(line)):
            step = line[later]
            if any(each in step.replicas for each in holding):
                if not step.is_published and self._breaks_after(line, later, holding):
                    return True
                holding = step.replicas
            elif not any(each in step.view for each in holding):
                return True
        return False
