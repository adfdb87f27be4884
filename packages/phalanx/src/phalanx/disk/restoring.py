"""What a process that starts with a folder takes along from it: its votes, what it knows of others, and its replicas."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from phalanx.common.clock import ClockStart
from phalanx.common.former_incarnation import FormerIncarnation
from phalanx.common.ids import MemberId, address_of, member_id
from phalanx.common.quorum import UNKNOWN_MASTER, QuorumHandover, QuorumRecord
from phalanx.common.restored_cluster import is_restored
from phalanx.disk.replay import Replay
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.grid.replication.restored import RestoredReplicas, side_of
from phalanx.wire.disk_records import CopyDropped, IncarnationEnded, LogRecord, SegmentStart


class Restoration(NamedTuple):
    """What the first incarnation of a process gets from the one before it, as if that had ended just now."""

    kept: OrphanedReplicas
    carried: QuorumHandover
    past: FormerIncarnation
    partition_count: int
    """How many partitions its cluster had; 0: that is unknown."""


def restore(replay: Replay, clock: ClockStart, log: ReplicaLog) -> Restoration | None:
    """Return what a folder gives to the process that starts with it; None: its member was in no cluster, or has left it.

    `clock`: how the clock of the grid goes on. `log`: where the process goes on, which is
    told what it does not take over. The replicas are those of the replay itself.
    """
    for division in replay.undivided():
        # 1. A hears that the partitions are divided, and begins with the first one. 2. A ends. Who starts with the folder would
        # take what is left for parts, and nobody would find what belongs to others of them.
        record = LogRecord(division)
        log.add(division)
        replay.take(log.last_lsn, record, 0)
    restoration = _restore(replay, clock, log.store.start if log.store is not None else 0)
    for partition in replay.arriving:
        log.add(CopyDropped(partition))
    if replay.replicas and restoration is None:
        log.add(IncarnationEnded())
    return restoration


def restore_as(
    replay: Replay, clock: ClockStart, log: ReplicaLog, former: MemberId, founder: MemberId
) -> Restoration | None:
    """Return what a folder gives that was restored from a backup, as `restore` does (DU-23).

    `former`: who founded the cluster of the backup. `founder`: who counts as the founder instead.
    """
    known = replay.index.cluster
    is_first = known.footing is not None and known.footing.root == former
    if known.footing is not None and is_first:
        # Those that founded clusters which have come to it are founders of the one that was backed up, too.
        footing = msgspec.structs.replace(known.footing, root=founder, merged=())
        replay.index.cluster = msgspec.structs.replace(known, footing=footing)
    restoration = restore(replay, clock, log)
    if restoration is None or not is_first:
        return restoration
    # Nobody else of the new cluster is where members of the former one were, but they are perhaps still there.
    return restoration._replace(past=msgspec.structs.replace(restoration.past, members=()))


def note_repair(replay: Replay, newest: SegmentStart | None, store: str, repaired: int, cut: int) -> bool:
    """Take from a log what an operator's repair leaves in doubt. Return whether there is such.

    `newest`: the last start that has written it. `repaired`, `cut`: the last start before a repair, and before one that cut it off.
    """
    if newest is None or newest.start > repaired:
        return False
    # A folder can be repaired again: nobody has voted by this name before.
    stranger = member_id(address_of(newest.member), f"repaired-{store}-{newest.start}")
    (disown if newest.start <= cut else withdraw_vote)(replay, stranger)
    return True


def withdraw_vote(replay: Replay, stranger: MemberId) -> None:
    """Take the vote from a log whose disk has failed: its member can have taken part in views since, or have left (DU-60).

    1. The disk of A fails, and A hands over to B and C, and leaves. 2. Its folder tells of the list of A, B, C, D and E. 3. A comes back
    to D and E, which are cut off: with A's vote they had the majority, as B and C have.

    Rows name it as before: what it acknowledged before its disk failed is there.
    """
    known = replay.index.cluster
    footing = msgspec.structs.replace(known.footing, left=()) if known.footing is not None else None
    incarnations = tuple(dict.fromkeys([*known.incarnations, known.voter]))
    replay.index.cluster = msgspec.structs.replace(
        known, voter=stranger, footing=footing, incarnations=incarnations, disk_failed=True
    )


def disown(replay: Replay, stranger: MemberId) -> None:
    """Let a log count as that of a stranger: it was cut off before damage, so it does not know what its member promised since (DU-61).

    Then no row names it as a holder, and it has no vote, also none of those that left to it. Its replicas rule where nobody else is to
    come, or an operator says so.
    """
    withdraw_vote(replay, stranger)
    replay.index.cluster = msgspec.structs.replace(
        replay.index.cluster, members=(stranger,), lacks_majority=True, incarnations=(), disk_failed=False
    )


def _restore(replay: Replay, clock: ClockStart, start: int) -> Restoration | None:
    known, kept = replay.index.cluster, replay.orphaned
    side = side_of(known, replay.replicas, start, clock.reserved)
    if side is None or known.view is None:
        return None
    for replica in (*replay.replicas.values(), *kept.all_replicas()):
        replica.deduplication.forget_times()
    count = known.table.partition_count if known.table is not None else replay.partition_count()
    later = kept.later_than(known.members[0], replay.replicas) if known.members else frozenset[int]()
    kept.restored = RestoredReplicas(replay.replicas, side, clock, count, later)
    past = FormerIncarnation(
        members=_members_of(replay, side.history.footing),
        has_started=True,
        cluster_version=known.view.cluster_version,
        off_ms=clock.off_ms,
        departures=known.away,
    )
    return Restoration(kept, QuorumHandover(side.history, UNKNOWN_MASTER, voter=known.voter), past, count)


def _members_of(replay: Replay, footing: QuorumRecord) -> tuple[MemberId, ...]:
    """Return the members of the cluster, as far as the folder names them."""
    known = replay.index.cluster
    listed = [*(known.view.members if known.view is not None else ())]
    if is_restored(footing.root):
        return tuple(
            listed
        )  # its voters have the addresses of the cluster that was backed up, which perhaps still runs
    for each in (footing.stable, *footing.pending):
        listed += each.voters
    return tuple(dict.fromkeys([*listed, *(known.table.members if known.table is not None else ())]))
