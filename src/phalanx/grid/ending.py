"""Entries whose time is over, dropped by their owner: when it finds them, or before something is written over them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from phalanx.common.ids import Millis
from phalanx.grid.replication import OwnedPartition
from phalanx.wire.messages import ReplicateRemove

if TYPE_CHECKING:
    from phalanx.grid.service import GridService


def remove_ended(grid: GridService, owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
    """Drop entries whose time is over; nobody waits for it."""
    replica = owned.replica
    store = replica.map(name)
    stamps = store.end_stamps(keys)
    ended_at = grid.clock.stamp(now) if store.journal is not None else 0
    replica.remove(name, keys, stamps, ended_at)
    replica.seq += 1
    owned.append(ReplicateRemove(owned.number, replica.epoch, replica.seq, name, keys, stamps, None, ended_at), None)
    if owned.streams:
        grid.unsettled[owned.number] = owned


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
