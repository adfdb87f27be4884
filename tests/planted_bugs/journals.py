"""Bugs of journals to plant: each takes one of their rules out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from phalanx.common.ids import MemberId, Millis
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.machine.routes import route
from phalanx.node.node import Node
from phalanx.wire import messages as m

from .replacing import replace


class _TellsAll(OwnedPartition):
    __slots__ = ()

    def readable(self, name: str) -> int:
        return self.replica.journals[name].next


def tell_unconfirmed_events(node: Node) -> None:
    """Events are told as soon as the owner has them."""
    _make_owners(node, _TellsAll)


def ask_no_lineage(node: Node) -> None:
    """A reader's number is taken as it is, whatever the lineage that it comes with."""
    reads, original = node.grid.reads, node.grid.reads.read_journal
    replace(reads, "read_journal", lambda owned, request: original(owned, structs.replace(request, lineage=0)))


def copy_without_journals(node: Node) -> None:
    """What a copy tells of journals is not taken."""
    followed, original = node.grid.follower, node.grid.follower.on_copy_chunk

    def on_copy_chunk(sender: MemberId, message: m.CopyChunk, now: Millis) -> None:
        original(sender, structs.replace(message, journal=None), now)

    replace(followed, "on_copy_chunk", on_copy_chunk)
    node._handlers.update([route(m.CopyChunk, on_copy_chunk)])


def _make_owners(node: Node, kind: type[OwnedPartition]) -> None:
    grid, original = node.grid, node.grid._take_over

    def take_over(partition: int, epoch: int) -> OwnedPartition:
        owned = original(partition, epoch)
        owned.__class__ = kind
        return owned

    replace(grid, "_take_over", take_over)


JOURNAL_CANARIES: dict[str, Callable[[Node], None]] = {
    "tell-unconfirmed-events": tell_unconfirmed_events,
    "ask-no-lineage": ask_no_lineage,
    "copy-without-journals": copy_without_journals,
}
