"""Bugs of members' memory to plant."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.node.node import Node

from .replacing import replace


def take_copies_uncounted(node: Node) -> None:
    """What a copy brings is not counted before the next measurement."""
    replace(node.grid.memory, "take_chunk", lambda chunk: None)


def follow_uncounted(node: Node) -> None:
    """What owners and their backups apply is not counted before the next measurement."""
    replace(node.grid.memory, "take_mutation", lambda mutation: None)


def count_data_once(node: Node) -> None:
    """The size of the data is counted once, and never again."""
    data, original = node.grid.memory.data, node.grid.memory.data.go_on

    def go_on(most: int) -> bool:
        return data.passes == 0 and original(most)

    replace(data, "go_on", go_on)


MEMORY_CANARIES: dict[str, Callable[[Node], None]] = {
    "take-copies-uncounted": take_copies_uncounted,
    "follow-uncounted": follow_uncounted,
    "count-data-once": count_data_once,
}
