"""Removal of expired entries by their owner: when it finds them, or before a write replaces them; and the write that does so where the
partition has no stream."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.common.ids import Millis
from phalanx.common.memory import ENTRY_BYTES
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.wire.messages import AppliedOperation, ReplicatePut, ReplicateRemove


def remove_ended(leader: Leader, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
    """Remove expired entries by a write that no caller waits for."""
    leader.expired[name] += len(keys)
    store = owned.replica.map(name)
    ended_at = leader.clock.stamp(now) if store.observers else 0
    leader.commit(owned, ReplicateRemove, None, now, name, keys, store.end_stamps(keys), None, ended_at)


def end_before_write(
    leader: Leader, owned: OwnedPartition, name: str, keys: Iterable[bytes] | None, now: Millis
) -> None:
    """Remove expired entries of a map with a journal, or another observer, before a write replaces them: each is told.

    `keys`: those that will be written; None: all. The owner decides expiry; a backup must not decide it by itself.
    """
    store = owned.replica.maps.get(name)
    if store is None or not store.observers or not store.expires_at:
        return
    ended = store.take_expired(now) if keys is None else store.ended(dict.fromkeys(keys), now)
    if ended:
        remove_ended(leader, owned, name, ended, now)


def set_entry(
    leader: Leader,
    owned: OwnedPartition,
    name: str,
    key: bytes,
    stored: bytes,
    applied: AppliedOperation | None,
    now: Millis,
) -> None:
    """Set an entry for ever in a plain partition, and count its memory: nobody but observers of the map has to know.

    `applied`: what is recorded with it.
    """
    store = leader.plain_store(owned, name)
    if store is not None:
        leader.memory.room -= len(key) + len(stored) + ENTRY_BYTES
        leader.commit_plain(owned, store, key, stored, applied, now)
    else:
        end_before_write(leader, owned, name, (key,), now)
        leader.commit(owned, ReplicatePut, None, now, name, [key], [stored], 0, applied)
