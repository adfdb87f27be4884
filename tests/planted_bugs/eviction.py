"""Bugs of bounded maps to plant: each takes one of their rules out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from phalanx.common.ids import MemberId, Millis
from phalanx.common.map_settings import Share
from phalanx.grid.replica.map_store import MapStore
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.grid.replication.pending_writes import PendingWrite
from phalanx.machine.routes import route
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


def evict_unheard(node: Node) -> None:
    """The owner evicts, and does not tell its backups."""
    evictor = node.grid.evictor

    def evict(owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        owned.replica.remove(name, keys, (), node.grid.clock.stamp(now), evicted=True)

    replace(evictor, "_evict", evict)


def evict_one_more(node: Node) -> None:
    """A partition that has too many makes room for the next one, too."""
    evictor, original = node.grid.evictor, node.grid.evictor.trim

    def trim(owned: OwnedPartition, name: str, share: Share, limit: int, now: Millis) -> int:
        return original(owned, name, Share(share.entries - 1, share.bytes), limit, now)

    replace(evictor, "trim", trim)


def evict_newest(node: Node) -> None:
    """The owner evicts what was written last."""
    evictor, original = node.grid.evictor, node.grid.evictor._evict

    def evict(owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        entries = owned.replica.maps[name].entries
        original(owned, name, sorted(entries, key=lambda key: entries[key][:8])[-len(keys) :], now)

    replace(evictor, "_evict", evict)


def evict_what_is_over(node: Node) -> None:
    """Whose time is over counts as there, and is evicted in its turn."""
    evictor = node.grid.evictor

    def trim(owned: OwnedPartition, name: str, share: Share, limit: int, now: Millis) -> int:
        store = owned.replica.maps[name]
        while 0 < share.entries < len(store.entries):
            over = len(store.entries) - share.entries
            evictor._evict(owned, name, store.take_evicted("oldest", over, 0, over, node.grid.clock.read(now)), now)
        return limit

    replace(evictor, "trim", trim)


def tell_evictions_as_ends(node: Node) -> None:
    """Backups take an eviction for the end of an entry's time."""
    followed, original = node.grid.follower, node.grid.follower.on_replicate

    def on_replicate(sender: MemberId, message: m.Mutation, now: Millis) -> None:
        if isinstance(message, m.ReplicateRemove):
            message = structs.replace(message, evicted=False)
        original(sender, message, now)

    replace(followed, "on_replicate", on_replicate)
    node._handlers.update([route(m.ReplicateRemove, on_replicate)])


def leave_it_to_the_next_write(node: Node) -> None:
    """An owner does not look whether what it has taken over, or what it was told to hold, is too much."""
    replace(node.grid.evictor, "look_at", lambda owned, now: None)


def forget_reads_of_many(node: Node) -> None:
    """What many keys are read with one request does not count."""
    reads, original = node.grid.reads, node.grid.reads.note_read
    last: list[Millis] = [-1]

    def note_read(store: MapStore, name: str, key: bytes, now: Millis) -> None:
        if last[0] != now:
            original(store, name, key, now)
        last[0] = now

    replace(reads, "note_read", note_read)


def evict_what_was_used_since(node: Node) -> None:
    """The owner goes by what it has ranked, whatever was read meanwhile."""
    evictor, original = node.grid.evictor, node.grid.evictor._evict
    ranked: dict[int, list[bytes]] = {}

    def evict(owned: OwnedPartition, name: str, keys: list[bytes], now: Millis) -> None:
        entries = owned.replica.maps[name].entries
        left = [key for key in ranked.get(owned.number, ()) if key in entries]
        if len(left) < len(keys):
            left = sorted(entries, key=lambda key: entries[key][:8])
        original(owned, name, left[: len(keys)], now)
        ranked[owned.number] = left[len(keys) :]

    replace(evictor, "_evict", evict)


def miscount_what_is_overwritten(node: Node) -> None:
    """An owner counts the bytes of a value that is written over another one, and not those that it replaces."""
    leader, original = node.grid.leader, node.grid.leader.commit

    def commit(
        owned: OwnedPartition, kind: Any, write: PendingWrite | None, now: Millis, *fields: Any, **named: Any
    ) -> None:
        old = None
        if kind is m.ReplicatePut and fields[0] in owned.replica.maps:
            old = owned.replica.maps[fields[0]].entries.get(fields[1][0])
        original(owned, kind, write, now, *fields, **named)
        if old is not None:
            owned.replica.maps[fields[0]].held_bytes += len(old) - 8

    replace(leader, "commit", commit)


EVICTION_CANARIES: dict[str, Callable[[Node], None]] = {
    "evict-unheard": evict_unheard,
    "evict-one-more": evict_one_more,
    "evict-newest": evict_newest,
    "evict-what-is-over": evict_what_is_over,
    "tell-evictions-as-ends": tell_evictions_as_ends,
    "forget-reads-of-many": forget_reads_of_many,
    "evict-what-was-used-since": evict_what_was_used_since,
    "miscount-what-is-overwritten": miscount_what_is_overwritten,
    "leave-it-to-the-next-write": leave_it_to_the_next_write,
}
