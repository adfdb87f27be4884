"""Bugs in what is told of losses, to prove that the simulator finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phalanx.common.losses import LossBook
from phalanx.node.node import Node
from phalanx.wire.messages import CompletedMigration

from .replacing import replace


def forget_losses(node: Node) -> None:
    """A master gives lost partitions to others, and records nothing."""
    records = node.coordinator.losses
    replace(records, "after_repair", lambda before, result, view, now: before.losses)


def inherit_no_losses(node: Node) -> None:
    """A new master goes on without what was lost before it was one."""
    publishing, installed_table = node.coordinator.publication, node.installed_table
    original = publishing.begin

    def begin(completed: Iterable[CompletedMigration]) -> None:
        if installed_table.table.losses.losses:
            table = installed_table.table.with_losses(LossBook(installed_table.table.losses.version + 1))
            installed_table.install(table, table.version)
        original(completed)

    replace(publishing, "begin", begin)


LOSS_CANARIES: dict[str, Callable[[Node], None]] = {
    "forget-losses": forget_losses,
    "inherit-no-losses": inherit_no_losses,
}
"""Name to what takes the rule out."""
