"""A folder that an operator has made of the backup of another one: it has another identity, and is of another cluster (DU-23)."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.common.clock import ClockStart, value_of
from phalanx.common.ids import MemberId
from phalanx.common.restored_cluster import restored_root
from phalanx.disk.reading import StartTimes, replay_log
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import Restoration, restore_as
from phalanx.disk.scanning import scan
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import SegmentStart
from phalanx_proof.sim.cluster.folder import FolderSnapshot, SimFolder
from phalanx_proof.sim.options import MAP

WORD = "monday"
"""All folders that are restored in a history are restored with this word, and so they are of one cluster."""


class RestoredFolder(SimFolder):
    """The folder of one host on which an operator has restored a backup."""

    def __init__(self, seed: str, backup: FolderSnapshot, founder: MemberId) -> None:
        """Restore a backup. `founder`: of the cluster that was backed up."""
        super().__init__(seed)
        self._identity = self.store
        self._founder = founder
        self._restored_founder = self.name_founder(founder)
        self.put_back(backup)
        self._starts = 0
        self.backed_up: set[tuple[bytes, bytes]] = set()
        """Keys and values of the map that programs use, as the backup has them."""

    def name_founder(self, founder: MemberId) -> MemberId:
        """Return who counts as the founder instead."""
        return restored_root(founder, WORD)

    @property
    def identity(self) -> bytes:
        return self._identity

    def restore(self, replay: Replay, clock: ClockStart, log: ReplicaLog) -> Restoration | None:
        if self._starts == 1:
            for replica in (*replay.replicas.values(), *replay.orphaned.all_replicas()):
                self.backed_up.update(entries_of(replica))
        return restore_as(replay, clock, log, self._founder, self._restored_founder)

    def note_repair(self, replay: Replay, newest: SegmentStart | None) -> bool:
        """Do as for other folders. The first start writes who the founder is now, which no other record says."""
        return super().note_repair(replay, newest) or self._starts == 0


def founder_in(backup: FolderSnapshot) -> MemberId | None:
    """Return who founded the cluster of a backup; None: its member had joined none yet, and there is nothing to restore.

    Only its files say that, as for the command of an operator. 1. A member founds a cluster, and writes that. 2. The power is cut
    before a sync, and the disk does not have it. 3. The folder is backed up. Who starts with the backup knows of no cluster.
    """
    found = scan(backup.image, backup.store)
    known = replay_log(backup.image, backup.store, found, StartTimes("", 0, 0)).index.cluster
    return known.footing.root if known.footing is not None else None


def entries_of(replica: Replica) -> Iterable[tuple[bytes, bytes]]:
    """Return the keys and values that a replica has in the map that programs use."""
    store = replica.maps.get(MAP)
    return ((key, value_of(stored)) for key, stored in store.entries.items()) if store is not None else ()
