"""Bugs of entries that expire when nobody uses them, to plant: each takes one of their rules out of every member."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import Millis
from phalanx.grid.replica.map_store import STILL
from phalanx.grid.replication.owned_partition import OwnedPartition
from phalanx.node.node import Node

from .replacing import replace


def inherit_idle_times(node: Node) -> None:
    """A new owner counts idle times from the last uses that it knows of."""
    _at_takeover(node, 0)


def never_idle_again(node: Node) -> None:
    """At a new owner no entry expires because nobody uses it."""
    _at_takeover(node, STILL)


def _at_takeover(node: Node, since: Millis) -> None:
    grid, original = node.grid, node.grid._take_over

    def take_over(partition: int, epoch: int) -> OwnedPartition:
        owned = original(partition, epoch)
        for store in owned.replica.maps.values():
            store.idle_since = since
        return owned

    replace(grid, "_take_over", take_over)


def forget_the_maps_idle_time(node: Node) -> None:
    """An entry that is stored without an idle time of its own has none."""
    replace(node.grid.leader, "max_idle_of", lambda name: 0)


IDLE_CANARIES: dict[str, Callable[[Node], None]] = {
    "inherit-idle-times": inherit_idle_times,
    "never-idle-again": never_idle_again,
    "forget-the-maps-idle-time": forget_the_maps_idle_time,
}
