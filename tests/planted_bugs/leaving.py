"""Bugs of leaving to plant: each takes one rule about the last members that hold data out of every member of a history."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.node.node import Node

from .replacing import replace


def leave_with_all_data(node: Node) -> None:
    """The last members that hold data take it along, although others went without having left."""
    replace(node.membership.gone.departures, "missing", lambda now: ())


LEAVING_CANARIES: dict[str, Callable[[Node], None]] = {"leave-with-all-data": leave_with_all_data}
"""Name to what takes the rule out."""
