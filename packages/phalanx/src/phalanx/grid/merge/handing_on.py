"""What an incarnation leaves to the next one of its process, when others have gone on without it."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, keep
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.ownership import Ownership
from phalanx.wire.disk_records import ReplicasKept


def keep_what_is_held(kept: OrphanedReplicas, ownership: Ownership, follower: Follower, now: Millis) -> None:
    """Put what this incarnation holds to what its process keeps to merge it. What no cluster has taken up stays as it was read."""
    table = ownership.table
    restored = kept.restored = follower.as_read.awaited
    if not table.is_assigned:
        kept.restored = restored.held_by(ownership.this) if restored is not None else None
        return
    held = follower.finish_splits() | {owned.number: owned.replica for owned in ownership.all_owned()}
    if restored is not None:
        held = {partition: replica for partition, replica in held.items() if partition not in restored.replicas}
    side = keep(ownership.this, table, held, follower.stamp(now), now)
    kept.add(side)
    if side.replicas or side.empty:
        empty = tuple(sorted(side.empty))
        ownership.log.add(ReplicasKept(side.former, side.ended, table, tuple(side.replicas), empty))
    kept.losses = kept.losses.united_with(table.losses)
