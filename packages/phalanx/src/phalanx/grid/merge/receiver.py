"""The owner's side of a merge: decide about each version that another side has kept, by the policy of its map.

A version that is taken is a write like any other: applied here with the stamp that it has, numbered, sent to the
backups, and answered when they have it. A map's protection does not refuse it: the version was acknowledged when it was
written, and refused here it can be lost with its process.
"""

from __future__ import annotations

from typing import NamedTuple

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.hidden_maps import has_locks, target_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.lineage import has_write
from phalanx.grid.locking.forgetting import raise_floor
from phalanx.grid.locking.lock_keeper import LockKeeper
from phalanx.grid.replica.lock_state import is_state
from phalanx.grid.replica.merge_policies import Verdict, Version, decide, decide_lock
from phalanx.grid.replica.versions import keys_written_before, version_of
from phalanx.grid.replication.call import GridCall, PartitionCall
from phalanx.grid.replication.eviction import Evictor
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.ownership import Ownership
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.grid.serving.admission import RequestAdmission
from phalanx.grid.serving.reads import Reads
from phalanx.grid.serving.replies import Replies
from phalanx.grid.serving.scanning import WaitingScans
from phalanx.machine.outbox import Outbox
from phalanx.wire.merge_events import MergeConflict, MergeConflicts, MergedTooOld
from phalanx.wire.messages import (
    CountReply,
    FindWrite,
    FindWrittenBefore,
    MergeEntries,
    PageReply,
    ReplicatePut,
    ReplicateRemove,
)

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


class SweepRequests:
    """The requests for keys that have values older than a clear."""

    def __init__(self, admission: RequestAdmission, leader: Leader, scans: WaitingScans, chunk_bytes: int) -> None:
        self._admission = admission
        self._leader = leader
        self._scans = scans
        self._chunk_bytes = chunk_bytes

    def serve(self, sender: MemberId, message: FindWrittenBefore, now: Millis) -> None:
        """Answer with a page of keys."""
        call = GridCall(sender, message, now)
        if not self._admission.check_partition_count(call, message.of):
            return
        owned = self._admission.find_owned(call, message.partition)
        if owned is None:
            return
        nothing = PageReply(message.id, [], [], False)
        if has_locks(message.map):
            raise_floor(self._leader, PartitionCall(sender, message, now, owned), nothing)
            return
        store = owned.replica.maps.get(message.map)
        if store is None:
            self._scans.answer(call, None, nothing)
            return
        order = store.ordered()
        if order is None:
            self._scans.hold(call, message.partition, store)
            return
        keys, after_key = keys_written_before(
            store, order, message.stamp, message.after_key, KEYS_AT_ONCE, self._chunk_bytes
        )
        self._scans.answer(call, store, PageReply(message.id, keys, [], bool(after_key), after_key))


class WriteLookups:
    """The question whether this partition has a write, and so all that the asking member has kept of it."""

    def __init__(self, ownership: Ownership, replies: Replies) -> None:
        self._ownership = ownership
        self._replies = replies

    def serve(self, sender: MemberId, message: FindWrite, now: Millis) -> None:
        """Answer as soon as the backups have the write too: the asking member drops what it has."""
        partition, owned_by_number = message.partition, self._ownership.owned
        is_known = message.of == len(owned_by_number) and 0 <= partition < message.of
        owned = owned_by_number[partition] if is_known else None
        if owned is None:
            self._replies.fail(sender, message.id, ErrorCode.NOT_OWNER, f"partition {partition} is not owned here")
            return
        lineage, seq = owned.replica.lineage, owned.replica.seq
        is_there = has_write(lineage, seq, message.seq, message.epoch, message.leader)
        if is_there and not owned.is_confirmed(message.seq):
            self._replies.fail(sender, message.id, ErrorCode.NOT_READY, "the backups have not confirmed this write yet")
            return
        self._replies.send(sender, CountReply(message.id, int(is_there)))


class MergeReceiver:
    """Decides about the versions that other members have kept."""

    def __init__(
        self, ownership: Ownership, admission: RequestAdmission, writer: VersionWriter, outbox: Outbox
    ) -> None:
        self._ownership = ownership
        self._admission = admission
        self._writer = writer
        self._out = outbox

    def serve(self, sender: MemberId, message: MergeEntries, now: Millis) -> None:
        """Merge versions of some keys of one map. All keys must be owned here, or nothing is done."""
        call = GridCall(sender, message, now)
        owned_ones = self._admission.owners_of(call, message.keys)
        if owned_ones is None or self._admission.refuse_without_disk(call):
            return
        lengths = {len(each) for each in (message.ttls, message.accessed, message.hits, message.idles) if each} | {
            len(message.versions)
        }
        if lengths != {len(message.keys)} or min(map(len, message.versions), default=0) < STAMP_BYTES:
            text = f"{len(message.keys)} keys, and not as many versions with their stamps: send one for each key"
            self._admission.refuse(call, ErrorCode.INVALID, text)
            return
        if has_locks(message.map) and not all(is_state(version) for version in message.versions):
            self._admission.refuse(call, ErrorCode.INVALID, "a version of the map of locks is no state of a lock")
            return
        self._writer.observe(message, now)
        maps = self._ownership.table.maps
        policy = LOCK_POLICY if has_locks(message.map) else maps.of(message.map).merge_policy
        judged = _judge(owned_ones, message, policy, now)
        self._record(message, policy, judged)
        self._writer.write(call, owned_ones, [each for each in judged if each.verdict.is_taken])

    def _record(self, message: MergeEntries, policy: str, judged: list[Judged]) -> None:
        """Record events about the conflicts, and about the versions that were too old to be taken."""
        conflicts = [each for each in judged if each.verdict.is_conflict and each.here is not None]
        if conflicts:
            named = tuple(
                MergeConflict(
                    _shown(each.key), each.kept.stamp, each.here.stamp if each.here is not None else 0,
                    "kept" if each.verdict is Verdict.WINS else "here",
                )
                for each in conflicts[:NAMED_AT_MOST]
            )  # fmt: skip
            won = sum(each.verdict is Verdict.WINS for each in conflicts)
            self._out.record(MergeConflicts(message.former, target_of(message.map), policy, len(conflicts), won, named))
        too_old = [each for each in judged if each.verdict is Verdict.TOO_OLD]
        if too_old:
            keys = tuple(_shown(each.key) for each in too_old[:NAMED_AT_MOST])
            forgotten = max(each.owned.replica.purged_to_of(message.map) for each in too_old)
            self._out.record(MergedTooOld(message.former, target_of(message.map), len(too_old), keys, forgotten))


class VersionWriter:
    """Writes the versions that are taken, and tells the observers of their map."""

    def __init__(self, leader: Leader, reads: Reads, locks: LockKeeper, evictor: Evictor) -> None:
        self._leader = leader
        self._reads = reads
        self._locks = locks
        self._evictor = evictor

    def observe(self, message: MergeEntries, now: Millis) -> None:
        """Give writes here from now on greater stamps than all that the sender's side has kept."""
        self._leader.clock.observe(message.ended, now)
        self._leader.clock.observe_stored(message.versions, now)

    def write(self, call: GridCall[MergeEntries], owned_ones: list[OwnedPartition], taken: list[Judged]) -> None:
        """Commit the taken versions, and answer when the backups have them. `owned_ones`: the partition of each key."""
        write = PendingWrite(call.caller, CountReply(call.request.id, len(taken)), 0, "")
        for owned in dict.fromkeys(owned_ones):
            own = [each for each in taken if each.owned is owned]
            self._write_in(owned, call.request.map, own, write, call.now)
        if write.partitions_left == 0:
            self._leader.answer(write.caller, write.reply)

    def _write_in(
        self, owned: OwnedPartition, name: str, taken: list[Judged], write: PendingWrite, now: Millis
    ) -> None:
        """Commit the taken versions in one partition; the write waits for the backups."""
        leader, replica = self._leader, owned.replica
        removed = [each for each in taken if each.kept.is_removal]
        values = [each for each in taken if not each.kept.is_removal]
        if not taken and leader.is_unconfirmed(owned, name, now):
            # The versions here, because of which nothing was taken, may not have reached the backups yet.
            leader.write_barrier(owned, name, write, now)
            return
        if replica.journals:
            leader.end_before_write(owned, name, [each.key for each in taken], now)
        if removed:
            keys, stamps = [each.key for each in removed], [each.kept.stamp for each in removed]
            leader.commit(owned, ReplicateRemove, write, now, name, keys, stamps)
        for ttl_ms, idle_ms in dict.fromkeys((each.kept.ttl_ms, each.kept.max_idle_ms) for each in values):
            alike = [each for each in values if (each.kept.ttl_ms, each.kept.max_idle_ms) == (ttl_ms, idle_ms)]
            keys, versions = [each.key for each in alike], [each.kept.stored for each in alike]
            leader.commit(
                owned, ReplicatePut, write, now, name, keys, versions, ttl_ms, merged=True, max_idle_ms=idle_ms
            )
        if values:
            hits, accessed = [each.kept.hits for each in values], [each.kept.accessed_ms for each in values]
            was_read = any(hits) or any(accessed)
            replica.map(name).take_accesses([each.key for each in values], hits if was_read else [], accessed)
            # They can be the first that are known here: without this, nothing that is read from now on would be recorded.
            self._reads.follow_recording(name, replica.map(name))
        if values and has_locks(name):
            self._locks.on_merged(owned, name, [each.key for each in values], now)
        if values and self._evictor.is_on:
            self._evictor.after_write(owned, name, len(values), now)


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


def _shown(key: bytes) -> str:
    return key[:KEY_BYTES].hex()
