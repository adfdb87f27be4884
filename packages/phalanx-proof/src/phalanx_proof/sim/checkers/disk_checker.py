"""Checks what members do whose disks have failed.

* They answer no write that a program began after the failure: what they would acknowledge is on no disk of theirs.
* They leave by themselves only when the table has them in no row.
* At rest none of them owns a partition while a member with a working disk could.

That a full disk refuses no removal, the memory checker sees: the code of the refusal is the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.wire.join_events import Left
from phalanx_proof.sim.checkers.checker import Checker, ObservedEvent
from phalanx_proof.sim.checkers.findings import Findings
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.history.operations import Operation, Outcome

READS = frozenset({"get", "get_all", "read_counter"})


class DiskChecker(Checker):
    """Judges members by when their disks have failed."""

    def __init__(self, findings: Findings, failed: Mapping[MemberId, Millis], operations: list[Operation]) -> None:
        self._findings = findings
        self._failed = failed
        self._operations = operations
        self._tables: dict[MemberId, PartitionTable] = {}
        self._left = 0

    def counts(self) -> dict[str, int]:
        return {"failed disks": len(self._failed), "members that left a failed disk": self._left}

    def on_table(self, member: MemberId, table: PartitionTable) -> None:
        """Note the last table of a member."""
        self._tables[member] = table

    def on_event(self, recorded: ObservedEvent) -> None:
        member, table = recorded.member, self._tables.get(recorded.member)
        if not isinstance(recorded.event, Left) or member not in self._failed or member in recorded.leaving:
            return
        self._left += 1
        if table is not None and member in table.members:
            story = f"{member} leaves, and table {table.version} has it in rows"
            self._findings.add(recorded.now, "who leaves because of its disk holds nothing", story)

    def check_at_rest(self, joined: list[Host], now: Millis) -> None:
        for operation in self._operations:
            since = self._failed.get(operation.replier or MemberId(""))
            if since is None or operation.outcome is not Outcome.OK or operation.kind in READS:
                continue
            # A call of its own program was perhaps asked again, and another member has answered.
            if operation.begin > since and (
                operation.replier != operation.member or self._failed.keys() >= self._tables.keys()
            ):
                self._findings.add(operation.end, "nobody acknowledges writes without a disk", repr(operation))
        table = joined[0].table
        nodes = [host.running_node for host in joined]
        view = nodes[0].membership.view
        works = [member for member in view.data_members if member not in self._failed] if view is not None else []
        for partition, owner in enumerate(table.owners() if table is not None and works else ()):
            if owner in self._failed:
                story = f"{owner} owns partition {partition}, and the disks of {works} work"
                self._findings.add(now, "owners have disks where any member has one", story)
