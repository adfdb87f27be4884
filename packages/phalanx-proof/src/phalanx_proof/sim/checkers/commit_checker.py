"""Checks each commit of a migration when somebody has its row for the first time, by what the members hold at that moment.

* The destination has the row before anybody else: nobody gives a replica to a member that must not have it.
* The destination holds what the owner holds: everything where it becomes the owner, otherwise all but the writes that are on
  their way.
* Where a new owner answers, the previous owner does not answer any more.

A commit is a row that names a member newly, or at a hotter index, while the previous owner is alive and has the previous
row. Rows that follow from departures are not commits: their owner is gone, or nobody is named newly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable, Slots
from phalanx.common.view import MembersView
from phalanx_proof.sim.checkers.checker import Checker
from phalanx_proof.sim.checkers.findings import Findings

Entries = Mapping[str, Mapping[bytes, bytes]]


class Held(NamedTuple):
    """What one member holds of one partition."""

    epoch: int
    seq: int
    entries: Entries
    answers: bool
    """Whether it serves requests for the partition as the owner."""


class Peek(NamedTuple):
    """What one living member has at one moment."""

    view: MembersView | None
    table: PartitionTable
    held: Mapping[int, Held]


class CommitChecker(Checker):
    """Watches the first appearance of each row."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._seen: dict[tuple[int, int, int, Slots], None] = {}
        """Rows that somebody has had: count of partitions, partition, version, row."""
        self._last: dict[MemberId, PartitionTable] = {}
        self.checked = 0
        """Commits that were looked at."""

    def counts(self) -> dict[str, int]:
        return {"commits looked at": self.checked}

    def new_commits(self, member: MemberId, table: PartitionTable, view: MembersView | None) -> list[tuple[int, Slots]]:
        """Return the rows that this member has first and that a migration can have made: each partition, and its row
        before.
        """
        before, count = self._last.get(member), table.partition_count
        self._last[member] = table
        if before is not None and before.partition_count != count:
            before = None  # What was divided is where it was.
        found = []
        for partition, version in enumerate(table.versions):
            if before is not None and before.versions[partition] == version:
                continue
            slots = table.slots(partition)
            key = count, partition, version, slots
            if key in self._seen:
                continue
            self._seen[key] = None
            if view is not None and before is not None and before.versions[partition] == version - 1:
                old = before.slots(partition)
                if old and old[0] in view and _given_to(old, slots):
                    found.append((partition, old))
        return found

    def check(
        self, member: MemberId, partition: int, old: Slots, peeks: Mapping[MemberId, Peek], now: Millis
    ) -> None:  # fmt: skip
        """Check one of the new commits. `peeks`: what all living members hold now."""
        here = peeks[member]
        version, slots = here.table.versions[partition], here.table.slots(partition)
        owner = old[0]
        source = peeks.get(owner) if owner is not None else None
        if source is None or source.view is None or member not in source.view:
            return
        if source.table.partition_count != here.table.partition_count:
            return
        if source.table.versions[partition] not in (version, version - 1):
            return
        self.checked += 1
        story = f"partition {partition} version {version}: {old}, then {slots}, first at {member}"
        taker = _given_to(old, slots)[0]
        if taker != member:
            # It can have gone on already, by several messages that it handled as one input.
            its = peeks[taker].table if taker in peeks else here.table
            if its.partition_count == here.table.partition_count and its.versions[partition] < version:
                self._findings.add(now, "the destination commits first", story)
            return
        theirs, mine = source.held.get(partition), here.held.get(partition)
        if mine is None:
            self._findings.add(now, "who is given a replica has it", f"{story}: it holds nothing")
        elif theirs is None or owner == member:
            return
        elif mine.answers and theirs.answers:
            self._findings.add(now, "one member answers for a partition", f"{story}: {owner} still answers")
        elif mine.answers and mine.seq < theirs.seq:
            self._findings.add(now, "who is given a replica has it", f"{story}: {mine.seq} writes of {theirs.seq}")
        # A new owner applies at once what has waited for it, and counts on.
        elif mine.seq == theirs.seq and (mine.answers or mine.epoch == theirs.epoch) and _full(mine) != _full(theirs):
            self._findings.add(now, "who is given a replica has it", f"{story}: {_full(mine)}, not {_full(theirs)}")


def _given_to(old: Slots, new: Slots) -> list[MemberId]:
    """List the members that have a replica which they did not have before, or a hotter one."""
    return [
        member
        for index, member in enumerate(new)
        if member is not None and (member not in old or index < old.index(member))
    ]


def _full(held: Held) -> dict[str, Mapping[bytes, bytes]]:
    return {name: entries for name, entries in held.entries.items() if entries}
