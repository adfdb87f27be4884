"""Measures the memory of simulated members, as the runtime does for real ones: what they hold, counted anew each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from phalanx.common.ids import Millis
from phalanx.machine.inputs import MemoryMeasured
from phalanx.node.node import Node
from phalanx_proof.sim.cluster.world import World

EVERY_MS: Millis = 100


class MemoryObserver(Protocol):
    """Who judges what members make of their measurements."""

    def on_measured(self, node: Node, held: int, now: Millis) -> None:
        """Judge a member that is about to be told what it holds."""


class MemoryMeter:
    """Tells each running member ten times a second what it has in memory."""

    def __init__(self, world: World, limit: int, bytes_held: Callable[[Node], int], observer: MemoryObserver) -> None:
        """`bytes_held`: returns the size of what a member holds, counted from outside."""
        self._world = world
        self._bytes_held = bytes_held
        self._limit = limit
        self._observer = observer

    def begin(self) -> None:
        self._world.queue.call_at(self._world.now + EVERY_MS, self._measure)

    def enlarge(self) -> None:
        """Give the machines more memory than they can use: a full cluster does not become whole without it."""
        self._limit = 1 << 40

    def _measure(self) -> None:
        for host in self._world.hosts:
            node = host.node
            if node is not None and not host.paused_until:
                held = self._bytes_held(node)
                self._observer.on_measured(node, held, self._world.now)
                measured = MemoryMeasured(held, self._limit, self._limit + self._limit // 5, 0)
                self._world.feed(host, node.this, measured)
        self._world.queue.call_at(self._world.now + EVERY_MS, self._measure)
