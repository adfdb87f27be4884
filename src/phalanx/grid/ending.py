"""Entries that their owner removes by itself, and those whose time is over: when it finds them, or before something is
written over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from phalanx.common.ids import Millis
from phalanx.grid.replication import OwnedPartition
from phalanx.wire.messages import ReplicateRemove

if TYPE_CHECKING:
    from phalanx.grid.service import GridService


def remove_unasked(
    grid: GridService,
    owned: OwnedPartition,
    name: str,
    keys: Sequence[bytes],
    stamps: Sequence[int],
    ended_at: int = 0,
    *,
    evicted: bool = False,
) -> None:
    """Remove entries here and at the backups; nobody waits for it. `stamps`, `ended_at` and `evicted`: as in `Replica.remove`."""
    replica = owned.replica
    replica.remove(name, keys, stamps, ended_at, evicted=evicted)
    replica.seq += 1
    message = ReplicateRemove(
        owned.number, replica.epoch, replica.seq, name, list(keys), list(stamps), None, ended_at, evicted
    )
    owned.append(message, None)
    if owned.streams:
        grid.unsettled[owned.number] = owned


def remove_ended(grid: GridService, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
    """Drop entries whose time is over; nobody waits for it."""
    store = owned.replica.map(name)
    ended_at = grid.clock.stamp(now) if store.journal is not None else 0
    remove_unasked(grid, owned, name, keys, store.end_stamps(keys), ended_at)


def end_before_write(
    grid: GridService, owned: OwnedPartition, name: str, keys: Iterable[bytes] | None, now: Millis
) -> None:
    """Before entries of a map with a journal are written: those whose time is over end first, with an event each.

    `keys`: what will be written; None: all. Whose time is over, the owner says: a backup must not work it out by itself.
    """
    store = owned.replica.maps.get(name)
    if store is None or store.journal is None or not store.expires_at:
        return
    ended = store.take_expired(now, len(store.expires_at)) if keys is None else store.ended(dict.fromkeys(keys), now)
    if ended:
        remove_ended(grid, owned, name, ended, now)
