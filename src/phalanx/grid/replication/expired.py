"""Removal of expired entries by their owner: when it finds them, or before a write replaces them."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.common.ids import Millis
from phalanx.grid.replication.leader import Leader
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.wire.messages import ReplicateRemove


def remove_ended(leader: Leader, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
    """Remove expired entries by a write that no caller waits for."""
    leader.expired[name] += len(keys)
    store = owned.replica.map(name)
    ended_at = leader.clock.stamp(now) if store.journal is not None else 0
    leader.commit(owned, ReplicateRemove, None, now, name, keys, store.end_stamps(keys), None, ended_at)


def end_before_write(
    leader: Leader, owned: OwnedPartition, name: str, keys: Iterable[bytes] | None, now: Millis
) -> None:
    """Remove expired entries of a map with a journal before a write replaces them, so that each gets an event.

    `keys`: those that will be written; None: all. The owner decides expiry; a backup must not decide it by itself.
    """
    store = owned.replica.maps.get(name)
    if store is None or store.journal is None or not store.expires_at:
        return
    ended = store.take_expired(now) if keys is None else store.ended(dict.fromkeys(keys), now)
    if ended:
        remove_ended(leader, owned, name, ended, now)
