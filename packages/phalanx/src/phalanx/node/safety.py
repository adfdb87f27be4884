"""The answer to whether a member is safe to stop: what it holds, and how many copies of that others hold."""

from __future__ import annotations

from phalanx.common.ids import Millis, Target
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import HOLE
from phalanx.common.view import MembersView
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.service import GridService
from phalanx.machine.outbox import Outbox
from phalanx.machine.routes import Routes, route
from phalanx.membership.service import MembershipService
from phalanx.node.inquiries import not_joined
from phalanx.wire.figures import DiskStatus
from phalanx.wire.messages import GetSafety, SafetyReply


class SafetyInquiries:
    """Answers from the table and from what this member knows itself: no other member is asked."""

    def __init__(
        self, membership: MembershipService, grid: GridService, orphaned: OrphanedReplicas, outbox: Outbox
    ) -> None:
        self._membership, self._grid, self._orphaned, self._out = membership, grid, orphaned, outbox
        self.event_log_problem = ""
        """Why this member's event log cannot be written, as its driver told last; empty: it can."""
        self.restart_wait: RestartWait | None = None
        """For whom the cluster waits, which was switched off; None: for nobody."""
        self.disk: DiskStatus | None = None
        """How this member's disk does, as its driver told last; None: it has no folder."""

    def routes(self) -> Routes:
        return (route(GetSafety, self.on_inquiry),)

    def on_inquiry(self, caller: Target, request: GetSafety, now: Millis) -> None:
        view = self._membership.view
        self._out.send(caller, not_joined(request) if view is None else self._safety(request, view, now))

    def _safety(self, request: GetSafety, view: MembersView, now: Millis) -> SafetyReply:
        grid, table, memory = self._grid, self._grid.table, self._grid.memory
        this = grid.this
        configured = table.maps.depth + 1
        wanted = min(configured, max(len(view.data_members), 1))
        present = [member in view for member in table.members]
        mine = table.members.index(this) if this in table.members else HOLE - 1
        held = [row for row in table.rows if mine in row]
        copies = [sum(present[i] for i in row if i != HOLE) for row in held]
        disks = grid.disks
        works = [member not in disks.failed for member in table.members]
        one_disk = sum(len(row) > 1 and [i for i in row if i != HOLE and works[i]] == [mine] for row in held)
        owned = sum(1 for row in table.rows if row and row[0] == mine)
        late = [partition for partition, each in grid.leader.unsettled.items() if each.has_late_backup(now)]
        # Their backups are asked what they have when they are divided.
        late += [partition for partition in grid.split_queue.partitions if len(table.replicas(partition)) > 1]
        migrating = {*grid.outgoing.active, *grid.follower.incoming.open}
        suspected = sorted(self._membership.suspicions.suspected)
        return SafetyReply(
            request.id, view, suspected, table.version, owned, len(copies) - owned,
            copies.count(1), sum(count < wanted for count in copies), len(late), len(migrating), wanted, configured,
            self._orphaned.partition_count(), self._orphaned.entry_count(),
            memory.used, memory.limit, self.event_log_problem, self.restart_wait, self.disk, one_disk, disks.problem,
        )  # fmt: skip
