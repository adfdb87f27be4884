"""The logs of simulated members: when they are written and synced, and what a process begins with."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.errors import InvariantViolation
from phalanx.common.ids import NEVER, MemberId, Millis
from phalanx.common.invariant import known
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.replay import LogIsWrong
from phalanx.disk.restoring import Restoration
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.inputs import Input, Synced
from phalanx.node.node import Node
from phalanx_proof.sim.cluster.crash_points import Crash
from phalanx_proof.sim.cluster.disk import SimDisk
from phalanx_proof.sim.cluster.disk_contents import find_difference
from phalanx_proof.sim.cluster.event_queue import EventQueue
from phalanx_proof.sim.cluster.folder import SimFolder
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.observer import Observer
from phalanx_proof.sim.options import HistoryOptions


class HostDisks:
    """Does for the log of each member what a driver does."""

    def __init__(
        self,
        options: HistoryOptions,
        observer: Observer,
        queue: EventQueue,
        feed: Callable[[Host, MemberId, Input], None],
        folder_type: type[SimFolder],
    ) -> None:
        """`feed`: gives an input to a member."""
        self._options = options
        self._observer = observer
        self._queue = queue
        self._feed = feed
        self._folder_type = folder_type

    def write(self, host: Host, node: Node) -> Crash | None:
        """Write what a member has logged, and plan its sync. Return how the process ends within that; None: it goes on."""
        disk = known(host.disk, "the host has a disk", host=host)
        if host.folder is not None and not host.folder.is_clock_judged and node.installed_table.is_assigned:
            host.folder.judge_clock(node.clock.next(host.clock(self._queue.now)))
        try:
            if disk.log.has_new:
                disk.write(self._queue.now, self._times(host, node))
        except Crash as crash:
            return crash
        except (InvariantViolation, LogIsWrong) as error:
            if not disk.differs:
                self._note_difference(host, str(error))
        self._plan_sync(host)
        if host.folder is not None:
            self._tell_wrong(host, host.folder)
        return None

    def _tell_wrong(self, host: Host, folder: SimFolder) -> None:
        for what, why in folder.violations:
            self._observer.on_wrong_log(host, what, why, self._queue.now)
        folder.violations.clear()

    def compare(self, host: Host, node: Node) -> None:
        """Compare what reading a member's log back gives with what it has in memory."""
        if host.disk is not None and not host.disk.differs:
            self._note_difference(host, find_difference(node, host.disk.replay, host.clock(self._queue.now)))

    def _plan_sync(self, host: Host) -> None:
        """Look at a folder again when its next sync begins or ends."""
        at = host.folder.next_at(self._queue.now) if host.folder is not None else None
        if at is not None and at < host.looks_at_folder_at:
            host.looks_at_folder_at = at
            self._queue.call_at(at, self._look_at_folder, host, at)

    def _look_at_folder(self, host: Host, at: Millis) -> None:
        if host.looks_at_folder_at != at:
            return
        host.looks_at_folder_at, folder = NEVER, host.folder
        if folder is None or host.node is None or host.node.log is not folder.log:
            return
        folder.advance(self._queue.now)
        if folder.synced_lsn > folder.known_lsn:
            folder.known_lsn = folder.synced_lsn
            self._feed(host, host.node.this, Synced(folder.synced_lsn))
        self._tell_wrong(host, folder)
        self._plan_sync(host)

    def _times(self, host: Host, node: Node) -> BlockTimes:
        shown = host.clock(self._queue.now)
        return BlockTimes(node.clock.read(shown), shown + host.wall_ms, shown)

    def _note_difference(self, host: Host, why: str) -> None:
        """Report in what a member's log and its memory differ, once; empty: in nothing."""
        if why and host.disk is not None:
            host.disk.differs = True
            self._observer.on_log_differs(host, why, self._queue.now)

    def open(self, host: Host) -> Restoration | None:
        """Begin a process with the folder of its host. Return what an earlier process has left there; None: nothing."""
        if not self._options.disks:
            return None
        if not self._options.restarts:
            host.disk = SimDisk()
            return None
        if host.folder is None:
            # One that was emptied is another store than it was.
            others = f":{host.incarnations}" if host.incarnations > 1 else ""
            host.folder = self._folder_type(f"disk:{self._options.seed}:{host.number}{others}")
        host.disk, shown = host.folder, host.clock(self._queue.now)
        restoration = host.folder.begin_process("sim", shown + host.wall_ms, shown)
        if host.folder.wrong:
            self._observer.on_log_differs(host, host.folder.wrong, self._queue.now)
        return restoration

    def begin_log(self, host: Host, folder: SimFolder, node: Node) -> Crash | None:
        """Begin the log of a process that has read its folder. Return how the process ends within that; None: it goes on."""
        try:
            folder.begin_log(self._queue.now, node.this, self._times(host, node))
        except Crash as crash:
            return crash
        return None

    def end_log(self, host: Host) -> None:
        """End the log of a process that stops in good order. In some histories its machine is switched off as soon as it has ended."""
        if (folder := host.folder) is not None:
            ends_at = folder.end_log(self._queue.now, self._times(host, host.running_node))
            self._queue.call_at(ends_at, self._note_end, host, folder, folder.log)

    def _note_end(self, host: Host, folder: SimFolder, log: ReplicaLog) -> None:
        if host.folder is not folder or folder.log is not log:
            return  # the next process has begun, which syncs what it reads
        folder.note_end(self._queue.now)
        if self._options.switches_off:
            folder.cut_power(self._queue.now)
