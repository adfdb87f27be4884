"""What a member has read from its folder, and the cluster has gone on with at others: a migration can bring it back.

If the owner has the writes at hand that were made meanwhile, the member uses what it has read, and gets only these (DU-35, DU-62). So what
the cluster has all of is not dropped at once. What it has not is merged at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from phalanx.common.ids import Millis
from phalanx.common.lineage import is_prefix
from phalanx.grid.merge.orphaned_replicas import OrphanedReplica, OrphanedReplicas, OrphanedSide
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import KeptTakenBack
from phalanx.wire.replication_messages import CopyStart

LOOK_EVERY_MS: Millis = 3_000
"""If no migration to a member is open for so long, the cluster has placed its replicas elsewhere."""

Had = Sequence[tuple[OrphanedSide, int]]
"""Sides and partitions of which the cluster has all."""


class ReturningReplicas:
    """Keeps what is as it was read while migrations to this member can bring it back."""

    def __init__(
        self,
        kept: OrphanedReplicas,
        follower: Follower,
        log: ReplicaLog,
        on_taken: Callable[[OrphanedSide, int, Millis], None],
    ) -> None:
        """`on_taken`: is told which replica a side has no more."""
        self._kept = kept
        self._follower = follower
        self._log = log
        self._on_taken = on_taken
        self.look_at: Millis | None = None
        """When to look again whether migrations are open; None: nothing is kept for that."""
        self._was_quiet = False
        """Whether no migration to this member was open at the last look."""
        follower.take_back = self.take_back

    def __repr__(self) -> str:
        return f"ReturningReplicas(look_at={self.look_at})"

    def wait(self, now: Millis) -> None:
        """Keep what is as it was read."""
        self._was_quiet, self.look_at = True, now + LOOK_EVERY_MS

    def keeps(self, kept: OrphanedReplica, version: int) -> bool:
        """Return whether a replica stays of which the cluster has all. `version`: see `OrphanedReplica.had_at`."""
        kept.is_had, kept.had_at = kept.is_as_read and self.look_at is not None, version
        return kept.is_had

    def on_time(self, now: Millis) -> Had:
        """Return what does not come back, if it is time to look."""
        if self.look_at is None or now < self.look_at:
            return ()
        is_quiet = not self._follower.incoming.open
        if is_quiet and self._was_quiet:
            return self.end()
        self._was_quiet, self.look_at = is_quiet, now + LOOK_EVERY_MS
        return ()

    def end(self) -> Had:
        """Keep nothing any more. Return what is kept of which the cluster has all."""
        self.look_at = None
        return [(side, p) for side in self._kept.unmerged() for p, kept in side.replicas.items() if kept.is_had]

    def take_back(self, start: CopyStart, now: Millis) -> Replica | None:
        """Return the replica that lacks no more than what an owner has at hand: it is the cluster's from now on. None: there is none."""
        partition = start.partition
        for side in self._kept.unmerged() if self.look_at is not None else ():
            kept = side.replicas.get(partition)
            if kept is None or not kept.is_as_read or side.partition_count != start.of:
                continue
            replica = kept.replica
            is_enough = 0 <= start.log_begins <= replica.seq
            if is_enough and is_prefix(replica.lineage, replica.seq, start.lineage, start.seq):
                # What was read last has a later replica of the partition: it waits for the table, or for a merge, in the place of this one.
                self._follower.as_read.set_aside({partition}, start.of)
                del side.replicas[partition]
                self._log.add(KeptTakenBack(side.former, partition))
                self._on_taken(side, partition, now)
                return replica
        return None
