"""The owner's side of a merge: what another side has kept of some keys, version by version, by the policy of their map.

What is taken is a write as any other: applied here with the stamp that it has, numbered, sent to the backups, and
answered when they have it. A map's protection does not stand in the way: what is handed in was acknowledged when it was
written, and left where it is it may be lost with its process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from phalanx.common.clock import STAMP_BYTES
from phalanx.common.errors import ErrorCode
from phalanx.common.ids import MemberId, Millis
from phalanx.grid.merge_policies import Verdict, Version, decide
from phalanx.grid.replication import OwnedPartition, PendingWrite
from phalanx.grid.versions import purged_to, version_of
from phalanx.partition.hashing import partitions_of
from phalanx.wire import events
from phalanx.wire.messages import CountReply, MergeEntries, ReplicatePut, ReplicateRemove

if TYPE_CHECKING:
    from phalanx.grid.service import GridService

NAMED_AT_MOST = 20
"""Conflicts, and keys, that one event names; all are counted."""
KEY_BYTES = 40
"""Of a key that an event names."""


class Judged(NamedTuple):
    """A kept version, what is here, and what becomes of it."""

    owned: OwnedPartition
    key: bytes
    kept: Version
    here: Version | None
    verdict: Verdict


def on_merge_entries(grid: GridService, sender: MemberId, message: MergeEntries, now: Millis) -> None:
    """Merge some keys of one map, if all of them are owned here; otherwise nothing is done."""
    owned_ones: list[OwnedPartition] = []
    for partition in partitions_of(message.keys, len(grid.owned)):
        owned = grid.owned[partition]
        if owned is None:
            grid.refuse(sender, message, partition)
            return
        owned_ones.append(owned)
    lengths = {len(each) for each in (message.ttls, message.accessed, message.hits) if each} | {len(message.versions)}
    if lengths != {len(message.keys)} or min(map(len, message.versions), default=0) < STAMP_BYTES:
        text = f"{len(message.keys)} keys, and not as many versions with their stamps: send one for each key"
        grid.fail(sender, message.id, ErrorCode.INVALID, text)
        return
    # What is written here from now on is newer than all that this side has kept.
    grid.clock.observe(message.ended, now)
    grid.clock.observe_stored(message.versions, now)
    policy = grid.table.maps.of(message.map).merge_policy
    judged = _judge(owned_ones, message, policy, now)
    _record(grid, message, policy, judged)
    taken = [each for each in judged if each.verdict.is_taken]
    write = PendingWrite(sender, CountReply(message.id, len(taken)), 0, "")
    for owned in dict.fromkeys(owned_ones):
        _apply(grid, owned, message.map, [each for each in taken if each.owned is owned], write, now)
    if write.partitions_left == 0:
        grid.out.send(sender, write.reply)


def _judge(owned_ones: list[OwnedPartition], message: MergeEntries, policy: str, now: Millis) -> list[Judged]:
    judged = []
    nothing = [0] * len(message.keys)
    ttls, accessed, hits = message.ttls or nothing, message.accessed or nothing, message.hits or nothing
    for owned, key, *kept_of in zip(owned_ones, message.keys, message.versions, ttls, accessed, hits, strict=True):
        kept, replica = Version(*kept_of), owned.replica
        here = version_of(replica, message.map, key, now)
        verdict = decide(policy, kept, here, message.ended, purged_to(replica))
        judged.append(Judged(owned, key, kept, here, verdict))
    return judged


def _apply(
    grid: GridService, owned: OwnedPartition, name: str, taken: list[Judged], write: PendingWrite, now: Millis
) -> None:
    """Store what is taken in one partition, and have the backups store it."""
    by_ttl: dict[int, tuple[list[bytes], list[bytes]]] = {}
    for each in taken:
        keys, versions = by_ttl.setdefault(each.kept.ttl_ms, ([], []))
        keys.append(each.key)
        versions.append(each.kept.stored)
    replica = owned.replica
    if not taken and not owned.is_settled:
        # What is here, and makes what was handed in dispensable, may not have reached the backups yet.
        replica.seq += 1
        nothing = ReplicateRemove(owned.number, replica.epoch, replica.seq, name, [], [])
        write.partitions_left += owned.append(nothing, write)
        grid.unsettled[owned.number] = owned
        return
    for ttl_ms, (keys, versions) in by_ttl.items():
        replica.map(name).put_many(keys, versions, ttl_ms, now)
        if ttl_ms:
            grid.note_expiry(owned)
        replica.seq += 1
        message = ReplicatePut(owned.number, replica.epoch, replica.seq, name, keys, versions, ttl_ms)
        if owned.streams:
            grid.unsettled[owned.number] = owned
        write.partitions_left += owned.append(message, write)


def _record(grid: GridService, message: MergeEntries, policy: str, judged: list[Judged]) -> None:
    """Conflicts, and what was not brought back."""
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
        grid.out.record(events.MergeConflicts(message.former, message.map, policy, len(conflicts), won, named))
    too_old = [each for each in judged if each.verdict is Verdict.TOO_OLD]
    if too_old:
        keys = tuple(_shown(each.key) for each in too_old[:NAMED_AT_MOST])
        forgotten = max(purged_to(each.owned.replica) for each in too_old)
        grid.out.record(events.MergedTooOld(message.former, message.map, len(too_old), keys, forgotten))


def _shown(key: bytes) -> str:
    return key[:KEY_BYTES].hex()
