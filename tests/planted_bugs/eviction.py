"""Bugs of bounded maps to plant: each takes one of their rules out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from phalanx.common.ids import MemberId, Millis
from phalanx.grid.replication.owned_partition import OwnedPartition
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

    def trim(owned: OwnedPartition, name: str, share: int, limit: int, now: Millis) -> int:
        return original(owned, name, share - 1, limit, now)

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

    def trim(owned: OwnedPartition, name: str, share: int, limit: int, now: Millis) -> int:
        store = owned.replica.maps[name]
        while len(store.entries) > share:
            evictor._evict(owned, name, store.oldest(len(store.entries) - share), now)
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


EVICTION_CANARIES: dict[str, Callable[[Node], None]] = {
    "evict-unheard": evict_unheard,
    "evict-one-more": evict_one_more,
    "evict-newest": evict_newest,
    "evict-what-is-over": evict_what_is_over,
    "tell-evictions-as-ends": tell_evictions_as_ends,
    "leave-it-to-the-next-write": leave_it_to_the_next_write,
}
