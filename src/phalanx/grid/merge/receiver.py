"""The owner's side of a merge: decide about each version that another side has kept, by the policy of its map.

A version that is taken is a write like any other: applied here with the stamp that it has, numbered, sent to the
backups, and answered when they have it. A map's protection does not refuse it: the version was acknowledged when it was
written, and refused here it may be lost with its process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from phalanx.codec.hashing import partitions_of
from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import has_locks, target_of
from phalanx.common.ids import MemberId, Millis
from phalanx.grid.locking.forgetting import raise_floor
from phalanx.grid.replica.lock_state import is_state
from phalanx.grid.replica.merge_policies import Verdict, Version, decide, decide_lock
from phalanx.grid.replica.versions import keys_written_before, version_of
from phalanx.grid.replication.expired import end_before_write
from phalanx.grid.replication.owned_partition import OwnedPartition, PendingWrite
from phalanx.grid.serving.admission import has_same_partition_count
from phalanx.wire import events
from phalanx.wire.messages import (
    CountReply,
    FindWrittenBefore,
    MergeEntries,
    MergeRequest,
    PageReply,
    ReplicatePut,
    ReplicateRemove,
)

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

KEYS_AT_ONCE = 2_000
"""The most keys examined for one page."""
NAMED_AT_MOST = 20
"""The most conflicts or keys that one event names; all are counted."""
LOCK_POLICY = "greatest-token"
"""How events name what decides between two states of a lock."""
KEY_BYTES = 40
"""The most bytes of a key that an event shows."""


class Judged(NamedTuple):
    """A kept version, the version here, and the decision."""

    owned: OwnedPartition
    key: bytes
    kept: Version
    here: Version | None
    verdict: Verdict


def on_merge_request(grid: GridService, sender: MemberId, message: MergeRequest, now: Millis) -> None:
    if isinstance(message, MergeEntries):
        _on_entries(grid, sender, message, now)
    else:
        _on_find(grid, sender, message, now)


def _on_find(grid: GridService, sender: MemberId, message: FindWrittenBefore, now: Millis) -> None:
    """Answer which keys have values older than a clear."""
    if not has_same_partition_count(grid, sender, message.id, message.of):
        return
    if not 0 <= message.partition < message.of:
        text = f"there is no partition {message.partition}: this cluster has {message.of}"
        grid.fail(sender, message.id, ErrorCode.INVALID, text)
        return
    owned = grid.owned[message.partition]
    if owned is None:
        grid.refuse(sender, message, message.partition)
        return
    if has_locks(message.map):
        raise_floor(grid, owned, message.map, message.stamp, sender, PageReply(message.id, [], [], False), now)
        return
    store = owned.replica.maps.get(message.map)
    if store is None:
        grid.out.send(sender, PageReply(message.id, [], [], False))
        return
    order = store.ordered()
    if order is None:
        grid.scans.hold(sender, message, message.partition, store, now)
        return
    grid.scans.note(store, now)
    keys, after_key = keys_written_before(
        store, order, message.stamp, message.after_key, KEYS_AT_ONCE, grid.config.copy_chunk_bytes
    )
    grid.out.send(sender, PageReply(message.id, keys, [], bool(after_key), after_key))


def _on_entries(grid: GridService, sender: MemberId, message: MergeEntries, now: Millis) -> None:
    """Merge versions of some keys of one map. All keys must be owned here, or nothing is done."""
    owned_ones: list[OwnedPartition] = []
    for partition in partitions_of(message.keys, len(grid.owned)):
        owned = grid.owned[partition]
        if owned is None:
            grid.refuse(sender, message, partition)
            return
        owned_ones.append(owned)
    lengths = {len(each) for each in (message.ttls, message.accessed, message.hits, message.idles) if each} | {
        len(message.versions)
    }
    if lengths != {len(message.keys)} or min(map(len, message.versions), default=0) < STAMP_BYTES:
        text = f"{len(message.keys)} keys, and not as many versions with their stamps: send one for each key"
        grid.fail(sender, message.id, ErrorCode.INVALID, text)
        return
    if has_locks(message.map) and not all(is_state(version) for version in message.versions):
        text = "a version of the map of locks is no state of a lock"
        grid.fail(sender, message.id, ErrorCode.INVALID, text)
        return
    # Writes here from now on must have greater stamps than all that the sender's side has kept.
    grid.clock.observe(message.ended, now)
    grid.clock.observe_stored(message.versions, now)
    policy = LOCK_POLICY if has_locks(message.map) else grid.table.maps.of(message.map).merge_policy
    judged = _judge(owned_ones, message, policy, now)
    _record(grid, message, policy, judged)
    taken = [each for each in judged if each.verdict.is_taken]
    write = PendingWrite(sender, CountReply(message.id, len(taken)), 0, "")
    for owned in dict.fromkeys(owned_ones):
        _apply(grid, owned, message.map, [each for each in taken if each.owned is owned], write, now)
    if write.partitions_left == 0:
        grid.out.send(sender, write.reply)


def _judge(owned_ones: list[OwnedPartition], message: MergeEntries, policy: str, now: Millis) -> list[Judged]:
    judged, is_of_locks = [], has_locks(message.map)
    nothing = [0] * len(message.keys)
    ttls, accessed, hits = message.ttls or nothing, message.accessed or nothing, message.hits or nothing
    idles = message.idles or nothing
    for owned, key, *kept_of in zip(
        owned_ones, message.keys, message.versions, ttls, accessed, hits, idles, strict=True
    ):
        kept, replica = Version(*kept_of), owned.replica
        here = version_of(replica, message.map, key, now)
        forgotten = replica.purged_to_of(message.map), replica.evicted_to_of(message.map)
        if is_of_locks:
            verdict, kept = decide_lock(kept, here)
        else:
            verdict = decide(policy, kept, here, message.ended, *forgotten)
        judged.append(Judged(owned, key, kept, here, verdict))
    return judged


def _apply(
    grid: GridService, owned: OwnedPartition, name: str, taken: list[Judged], write: PendingWrite, now: Millis
) -> None:
    """Commit the taken versions in one partition; the write waits for the backups."""
    replica = owned.replica
    removed = [each for each in taken if each.kept.is_removal]
    values = [each for each in taken if not each.kept.is_removal]
    if not taken and not owned.is_settled:
        # The versions here, because of which nothing was taken, may not have reached the backups yet.
        grid.write_barrier(owned, name, write, now)
        return
    if replica.journals:
        end_before_write(grid, owned, name, [each.key for each in taken], now)
    if removed:
        keys, stamps = [each.key for each in removed], [each.kept.stamp for each in removed]
        grid.commit(owned, ReplicateRemove, write, now, name, keys, stamps)
    for ttl_ms, idle_ms in dict.fromkeys((each.kept.ttl_ms, each.kept.max_idle_ms) for each in values):
        alike = [each for each in values if (each.kept.ttl_ms, each.kept.max_idle_ms) == (ttl_ms, idle_ms)]
        keys, versions = [each.key for each in alike], [each.kept.stored for each in alike]
        grid.commit(owned, ReplicatePut, write, now, name, keys, versions, ttl_ms, merged=True, max_idle_ms=idle_ms)
    if values:
        hits, accessed = [each.kept.hits for each in values], [each.kept.accessed_ms for each in values]
        was_read = any(hits) or any(accessed)
        replica.map(name).take_accesses([each.key for each in values], hits if was_read else [], accessed)
        # They may be the first that are known here: without this, nothing that is read from now on would be recorded.
        grid.follow_recording(name, replica.map(name))
    if values and has_locks(name):
        grid.locks.on_merged(owned, name, [each.key for each in values], now)
    if values and grid.evictor.is_on:
        grid.evictor.after_write(owned, name, len(values), now)


def _record(grid: GridService, message: MergeEntries, policy: str, judged: list[Judged]) -> None:
    """Record events about the conflicts, and about the versions that were too old to be taken."""
    conflicts = [each for each in judged if each.verdict.is_conflict and each.here is not None]
    if conflicts:
        named = tuple(
            events.MergeConflict(
                _shown(each.key), each.kept.stamp, each.here.stamp if each.here is not None else 0,
                "kept" if each.verdict is Verdict.WINS else "here",
            )
            for each in conflicts[:NAMED_AT_MOST]
        )  # fmt: skip
        won = sum(each.verdict is Verdict.WINS for each in conflicts)
        grid.out.record(
            events.MergeConflicts(message.former, target_of(message.map), policy, len(conflicts), won, named)
        )
    too_old = [each for each in judged if each.verdict is Verdict.TOO_OLD]
    if too_old:
        keys = tuple(_shown(each.key) for each in too_old[:NAMED_AT_MOST])
        forgotten = max(each.owned.replica.purged_to_of(message.map) for each in too_old)
        grid.out.record(events.MergedTooOld(message.former, target_of(message.map), len(too_old), keys, forgotten))


def _shown(key: bytes) -> str:
    return key[:KEY_BYTES].hex()
