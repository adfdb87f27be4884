"""Folders of simulated members that are put back, copied or moved while nobody looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from phalanx.common.ids import Millis, address_of
from phalanx.common.table import Slots, holders_of
from phalanx.wire.messages import ClientRequest, GiveUpHolders
from phalanx_proof.sim.cluster.folder import FolderSnapshot, SimFolder
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World
from phalanx_proof.sim.fault import Fault, FaultKind

OPERATOR_WAITS_MS: Millis = 15_000
"""After so long an operator gives up holders whose folders are gone."""


class FolderFaults:
    """Does with folders what people do with volumes of machines."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dormant: Mapping[int, Slots] = {}
        """The dormant partitions that were seen last, and since when they were (`_dormant_since`)."""
        self._dormant_since: Millis = 0

    def put_back_later(self, host: Host, fault: Fault) -> None:
        """Copy a folder, and put the copy back after a while."""
        if host.folder is not None:
            copy = host.folder.copy(self._world.now)
            self._world.queue.call_at(self._world.now + fault.nth, self._put_back, host, host.folder, copy, fault)

    def _put_back(self, host: Host, folder: SimFolder, copy: FolderSnapshot, fault: Fault) -> None:
        if host.folder is not folder or not host.has_joined or self._world.joined_count() <= 2:
            return
        folder.gone_from = copy.at
        self._world.crash(host, fault.lasts_ms)
        folder.put_back(copy)
        folder.gone_from = None

    def exchange(self, host: Host, other: Host, fault: Fault) -> None:
        """Let a process on one host begin with a copy of the folder of the other one, or both with the other one's."""
        mine, theirs = host.folder, other.folder
        if mine is None or theirs is None:
            return
        self._world.crash(other, fault.lasts_ms)
        if fault.kind is FaultKind.FOLDER_COPY:
            theirs.put_back(mine.copy(self._world.now))
            other.has_lost_folder = True
            mine.gone_from = theirs.gone_from = self._world.now
            mine.is_copied = theirs.is_copied = True
            return
        self._world.crash(host, fault.lasts_ms)
        mine.move()
        theirs.move()
        host.folder, other.folder = theirs, mine

    def is_awaited(self, host: Host) -> bool:
        """Tell whether dormant partitions, as they were seen last, wait for the folder of a host."""
        return host.address in map(address_of, holders_of(self._dormant.values()))

    def give_up_lost(self, master: Host | None, ask: Callable[[Host, Callable[[int], ClientRequest]], None]) -> None:
        """Let dormant partitions go on without holders whose folders are gone, as an operator does who knows that."""
        world = self._world
        dormant = master.table.dormant if master is not None and master.table is not None else {}
        if master is None or dormant != self._dormant:
            self._dormant, self._dormant_since = dormant, world.now
        elif dormant and world.now - self._dormant_since >= OPERATOR_WAITS_MS:
            self._dormant_since = world.now
            lost = [str(host.address) for host in world.hosts if host.has_lost_folder]
            # The request counts only where this many begin empty.
            for empty in range(len(dormant) + 1 if lost else 0):
                ask(master, partial(GiveUpHolders, holders=lost, begin_empty=empty, by="operator"))
