"""Bugs to plant, to prove that the simulator finds them."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.node.node import Node

CANARIES: dict[str, Callable[[Node], None]] = {}
