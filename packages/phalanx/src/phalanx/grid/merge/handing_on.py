"""What an incarnation leaves to the next one of its process, when others have gone on without it."""

from __future__ import annotations

import msgspec

from phalanx.common.clock import COUNTER_BITS, ClockStart
from phalanx.common.ids import Millis
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, keep
from phalanx.grid.replication.follower import Follower
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.replication.restored import RestoredReplicas, positions_of, side_of
from phalanx.wire.disk_records import ReplicasKept


def keep_what_is_held(kept: OrphanedReplicas, ownership: Ownership, follower: Follower, now: Millis) -> None:
    """Put what this incarnation holds to what its process keeps to merge it. What no cluster has taken up stays as it was read."""
    table = ownership.table
    if not table.is_assigned and follower.as_read.awaited is None and follower.replicas:
        follower.as_read.awaited = _nothing_read(ownership.log, follower, now)
    restored = kept.restored = follower.as_read.awaited
    if not table.is_assigned:
        if restored is not None:
            kept.restored = _read_now(restored, kept, follower, now).held_by(ownership.this)
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


def _nothing_read(log: ReplicaLog, follower: Follower, now: Millis) -> RestoredReplicas | None:
    """Return what a process would read now from the folder, but for the replicas; None: it would read nothing.

    1. B is new, or a cluster has taken up what B had read. 2. B gets a replica before it has a table, as in `_read_now`. 3. Its incarnation
    ends: it has nothing that stays as it was read, and the folder has that replica.
    """
    store, shown = log.store, follower.stamp(now)
    side = side_of(log.cluster, {}, store.start, shown) if store is not None and log.is_on else None
    clock = ClockStart(shown, shown, (shown >> COUNTER_BITS) - now, 0)
    return RestoredReplicas({}, side, clock, follower.as_read.copied_of) if side is not None else None


def _read_now(restored: RestoredReplicas, kept: OrphanedReplicas, follower: Follower, now: Millis) -> RestoredReplicas:
    """Return what a process would read from the folder now: also what has come to this incarnation without a table.

    1. B comes back with a folder. A's table names B as the backup of a partition, and B follows A before it has that table. 2. A write is
    confirmed, because C has the table. 3. A ends with its disk, and a cut parts B from C. 4. B joins C: only B has that write.
    """
    for partition in list(follower.copies):
        follower.drop_copy(partition)
    replicas, side = dict(follower.replicas), restored.side
    positions = positions_of(replicas)
    if positions == side.positions:
        return restored
    for replica in replicas.values():
        # Who has ordered its copy does not know the next incarnation.
        replica.ordered_for, replica.ordered_by = -1, None
    clock = _go_on(restored.clock, follower.stamp(now), now)
    seen_ms = max(side.seen_ms, clock.reserved >> COUNTER_BITS)
    later = restored.later | (kept.later_than(side.formers[0], replicas) if side.formers else frozenset[int]())
    side = msgspec.structs.replace(side, positions=positions, seen_ms=seen_ms)
    return restored._replace(replicas=replicas, side=side, clock=clock, later=later)


def _go_on(clock: ClockStart, shown: int, now: Millis) -> ClockStart:
    """Return a clock that gives greater stamps than what has come. `shown`: what the clock of this incarnation shows."""
    offset_ms = max(clock.offset_ms, (shown >> COUNTER_BITS) - now)
    return ClockStart(max(clock.last_stamp, shown), max(clock.reserved, shown), offset_ms, clock.off_ms)
