"""Checks that every member tells what the cluster has lost, for as long as nobody has acknowledged it.

A loss is found without the record of losses: a partition begins empty in a member's table (by its birth), did not in the
table before, and somebody held it. Then, in the tables of each member:

* the table that begins a partition anew tells a loss of it that the previous table did not tell;
* all later tables tell it too: nobody acknowledges here;
* the first table of a member tells of the partitions that ever began empty;
* where there is only one side, no other loss is reported: also not that writes are missing of a partition whose owner goes on. Sides also form without a cut: 1. The master removes a member that
  leaves, and dies when only some have heard of it. 2. The others go on with the leaving member as their master. Two
  member lists of one version show that there are sides.

At rest all members tell the same losses: all that any of them has told, and one of each partition for which an operator has given up a
holder.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.common.ids import MemberId, Millis
from phalanx.common.losses import EARLIER, LossKind
from phalanx.common.table import PartitionTable
from phalanx.wire.restart_events import HoldersGivenUp
from phalanx.wire.view_events import ViewInstalled
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.cluster.host import Host

COMPLETE = "what is lost is told"
ONLY = "only what is lost is told"
DORMANT = "what is in folders never begins empty by itself"
GIVEN_UP = "what is lost with a holder that was given up is told"
KEPT = "a loss is told until it is acknowledged"


class LossChecker(Checker):
    """Watches the tables of all members."""

    def __init__(self, findings: Findings, *, has_sides: bool, has_folders: bool = False) -> None:
        """`has_sides`: several sides of a cut can go on, and tell one another later what each has lost. `has_folders`: processes
        come back with what those before them held.
        """
        self._has_folders = has_folders
        self._dormant: set[int] = set()
        """Partitions, by their numbers at any time, that were dormant once."""
        self._findings = findings
        self._has_sides = has_sides
        self._given_up: list[tuple[int, int]] = []
        """Partitions for which an operator has given up holders, and among how many they are numbered."""
        self._before: dict[MemberId, PartitionTable] = {}
        self._makers: dict[int, MemberId] = {}
        """Version of a member list to who made the first list of that version."""

    def on_event(self, recorded: ObservedEvent) -> None:
        event = recorded.event
        if isinstance(event, ViewInstalled) and self._makers.setdefault(event.view_version, event.maker) != event.maker:
            self._has_sides = True
        elif isinstance(event, HoldersGivenUp) and recorded.member in self._before:
            count = self._before[recorded.member].partition_count
            self._given_up += [(partition, count) for partition in event.partitions]

    def on_table(self, member: MemberId, table: PartitionTable, now: Millis) -> None:
        """Judge the losses in a table that a member has installed."""
        before = self._before.get(member)
        self._before[member] = table
        count = table.partition_count
        was_born = before.births * (count // before.partition_count) if before is not None else (0,) * count
        born = [partition for partition in range(count) if table.births[partition] > was_born[partition]]
        lost = [partition for partition in born if before is None or _was_held(before, partition)]
        self._dormant.update(table.dormant)
        if self._has_folders and before is not None:
            for partition in born:
                if self._dormant.isdisjoint((partition, partition % before.partition_count)):
                    self._findings.add(now, DORMANT, f"partition {partition} in table {table.version} of {member}")
        known = _losses_of(before) if before is not None else frozenset()
        new = [loss for loss in table.losses.losses if loss.id not in known]
        if not table.losses.earlier:
            for partition in lost:
                if not any(loss.holds(partition, count) for loss in new):
                    story = (
                        f"partition {partition} begins empty in table {table.version} of {member}, which tells {new}"
                    )
                    self._findings.add(now, COMPLETE, story)
        if gone := known - _losses_of(table):
            self._findings.add(now, KEPT, f"{member} told {sorted(gone)} before its table {table.version}")
        if before is not None and before.version and not self._has_sides:
            goes_on = {
                p for p in range(count) if table.owner(p) and table.owner(p) == before.owner(p % before.partition_count)
            }
            sound = {LossKind.EMPTY: set(range(count)).difference(lost), LossKind.BEHIND: goes_on}
            for loss in (loss for loss in new if loss.kind in sound and loss.of == count):
                wrong = [p for p in sorted(sound[loss.kind]) if loss.holds(p, count)]
                if wrong:
                    self._findings.add(
                        now, ONLY, f"{member} tells {loss.id} ({loss.kind}) of {wrong}, which it had not lost"
                    )

    def check_at_rest(self, joined: list[Host], now: Millis) -> None:
        tables = {host.running_node.this: host.table for host in joined if host.table is not None}
        self.check_tables(tables, now)

    def check_tables(self, tables: Mapping[MemberId, PartitionTable], now: Millis) -> None:
        """Check the tables of all members when nothing happens any more."""
        known = {member: _losses_of(table) for member, table in tables.items()}
        everything = frozenset().union(*known.values())
        for member, table in tables.items():
            count, losses = table.partition_count, table.losses
            parts = [part for partition, of in self._given_up for part in range(partition, count, of)]
            untold = [part for part in parts if not any(loss.holds(part, count) for loss in losses.losses)]
            if untold and not losses.earlier and not losses.settled:
                self._findings.add(now, GIVEN_UP, f"at rest {member} does not tell a loss of {untold}")
        for member, ids in known.items():
            if ids != everything:
                self._findings.add(now, KEPT, f"at rest {member} does not tell {sorted(everything - ids)}")


def _was_held(table: PartitionTable, partition: int) -> bool:
    """Return whether somebody held a partition by a table, or had it in a folder."""
    before = partition % table.partition_count
    return bool(table.rows[before]) or before in table.dormant


def _losses_of(table: PartitionTable) -> frozenset[str]:
    """Return the losses that a table names or sums up. None is acknowledged: no history does that."""
    earlier = {EARLIER} if table.losses.earlier else set()
    return frozenset(loss.id for loss in table.losses.losses) | frozenset(table.losses.settled) | earlier
