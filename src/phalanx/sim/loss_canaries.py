"""Bugs in what is told of losses, to prove that the simulator finds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from phalanx.common.losses import NO_LOSSES
from phalanx.node.node import Node
from phalanx.wire.messages import FetchedTable


def forget_losses(node: Node) -> None:
    """A master gives lost partitions to others, and records nothing."""
    records = node.duties._losses
    _replace(records, "after_repair", lambda before, result, view, now: before.losses)


def inherit_no_losses(node: Node) -> None:
    """A new master does not look for what others know to be lost."""
    keeper, original = node.keeper, node.keeper.answer_search

    def answer_search(search_id: int) -> FetchedTable:
        answer = original(search_id)
        table = answer.table
        bare = structs.replace(table, losses=NO_LOSSES, version=table.version - table.losses.version)
        return structs.replace(answer, table=bare)

    _replace(keeper, "answer_search", answer_search)


def _replace(machine: object, name: str, by: Any) -> None:
    setattr(machine, name, by)


LOSS_CANARIES: dict[str, Callable[[Node], None]] = {
    "forget-losses": forget_losses,
    "inherit-no-losses": inherit_no_losses,
}
"""Name to what takes the rule out."""
