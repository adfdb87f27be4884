"""Bugs in what is told of losses, to prove that the simulator finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phalanx.common.ids import Millis
from phalanx.common.losses import LossBook
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.node.node import Node
from phalanx.partition.recovery.repair import Repair
from phalanx.wire.messages import CompletedMigration

from .replacing import replace


def forget_losses(node: Node) -> None:
    """A master gives lost partitions to others, and records nothing."""
    records = node.coordinator.losses
    replace(records, "after_repair", lambda before, result, view, now: before.losses)


def tell_losses_of_all(node: Node) -> None:
    """A master tells that writes of all partitions can be missing when one gets another owner."""
    records = node.coordinator.losses
    original = records.after_repair

    def after_repair(before: PartitionTable, result: Repair, view: MembersView, now: Millis) -> LossBook:
        behind = list(range(before.partition_count)) if result.promoted else []
        return original(before, result._replace(behind=behind), view, now)

    replace(records, "after_repair", after_repair)


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
    "tell-losses-of-all": tell_losses_of_all,
}
"""Name to what takes the rule out."""
