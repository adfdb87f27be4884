"""Bugs of the driver to plant: a world that does with effects what no driver may."""

from __future__ import annotations

from phalanx.machine.effects import Effect, Record
from phalanx.machine.inputs import Input
from phalanx.node.node import Node
from phalanx_proof.sim.cluster.host import Host
from phalanx_proof.sim.cluster.world import World


class GoesOnHalfDone(World):
    """A member whose memory runs out in the middle of an input goes on with the next one."""

    def _on_failure(self, host: Host, error: BaseException) -> None:
        shortage, host.shortage = host.shortage, None
        if host.node is not None and shortage is not None and shortage.has_struck:
            host.node._out.effects = []
        else:
            super()._on_failure(host, error)


class StopsAtFullDisk(World):
    """An event that cannot be written to the log ends the input: what was to be done behind it is not done."""

    def _carry_out(self, host: Host, node: Node, event: Input, effects: list[Effect]) -> None:
        if self.now < host.disk_fails_until:
            first = next((index for index, each in enumerate(effects) if type(each) is Record), len(effects))
            effects = effects[: first + 1]
        super()._carry_out(host, node, event, effects)


DRIVER_CANARIES: dict[str, type[World]] = {
    "go-on-half-done": GoesOnHalfDone,
    "stop-at-full-disk": StopsAtFullDisk,
}
"""Name to the world that does so."""
