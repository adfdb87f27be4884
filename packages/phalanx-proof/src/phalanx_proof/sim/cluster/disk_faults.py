"""Disks of simulated members that fail or fill while their members run."""

from __future__ import annotations

from phalanx.common.disk_state import DiskState
from phalanx.common.ids import MemberId, Millis
from phalanx.common.invariant import known
from phalanx.machine.inputs import DiskChecked
from phalanx_proof.sim.cluster.folder import UNSYNCED_MS
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World

REPEAT_MS: Millis = 1_000
"""A driver says again how the disk does, while it is not well."""
WHY = {DiskState.FULL: "drawn: there is no room", DiskState.FAILED: "drawn: a sync has failed", DiskState.OK: ""}


class DiskFaults:
    """Lets disks fail and fill, and tells their members as a driver does."""

    def __init__(self, world: World, failed: dict[MemberId, Millis]) -> None:
        """`failed`: to note when which member's disk has failed."""
        self._world = world
        self._failed = failed

    def fail(self, host: Host) -> None:
        """Let nothing more be written to the disk. The next process at this host has another one, or a folder that an operator repairs."""
        if host.folder is not None:
            host.folder.gone_from = self._world.now - UNSYNCED_MS
        known(host.disk, "members have disks", host=host).fail()
        self._tell(host, host.running_node.this)

    def fill(self, host: Host, lasts_ms: Millis) -> None:
        """Let a disk have no room for growth, for a while."""
        disk = known(host.disk, "members have disks", host=host)
        if disk.state is DiskState.OK:
            disk.state = DiskState.FULL
            self._tell(host, host.running_node.this)
            self._world.queue.call_at(self._world.now + lasts_ms, self.make_room, host)

    def make_room(self, host: Host) -> None:
        """Let a full disk have room again."""
        if host.disk is not None and host.disk.state is DiskState.FULL:
            host.disk.state = DiskState.OK
            if host.node is not None:
                self._world.feed(host, host.node.this, DiskChecked(DiskState.OK, ""))

    def on_process_started(self, host: Host) -> None:
        """Tell the next incarnation in a process how its disk does."""
        if host.disk is not None and host.disk.state is not DiskState.OK:
            self._world.queue.call_at(self._world.now + 1, self._tell, host, host.running_node.this)

    def _tell(self, host: Host, member: MemberId) -> None:
        disk = host.disk
        if host.member != member or disk is None or disk.state is DiskState.OK:
            return
        if disk.state is DiskState.FAILED:
            self._failed.setdefault(member, self._world.now)
        self._world.feed(host, member, DiskChecked(disk.state, WHY[disk.state]))
        self._world.queue.call_at(self._world.now + REPEAT_MS, self._tell, host, member)
