"""Memory that runs out under a member: a fault of the driver, which the machines know nothing of.

It runs out at an input: before the node has it, while the node gathers its effects, when the input is handled and nothing
is carried out, or when a part of its effects is. The process ends at each of these points; what has left by then has left.
"""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.machine.effects import Effect, Record, TableChanged, ViewChanged
from phalanx.node.node import Node
from phalanx_proof.sim.fault import AFTER, BEFORE, CARRYING, INSIDE

CHANGES = (ViewChanged, TableChanged)
SHOWN = (Record, *CHANGES)
"""What stays true if its process ends before it is carried out: checkers see what has become of the member."""


class ScarceMemory:
    """Memory of a process that is about to run out at one of its next inputs."""

    def __init__(self, point: str, nth: int, comes_back_after_ms: Millis) -> None:
        self.point = point
        self.nth = nth
        self.comes_back_after_ms = comes_back_after_ms
        self.has_struck = False

    def before(self, node: Node) -> None:
        """Be called before the node gets an input. Can raise `MemoryError`, or have the node do so."""
        if self.point == BEFORE:
            self.strike()
        elif self.point == INSIDE:
            node._out.effects = _ScarceList(self)

    def cut(self, effects: list[Effect]) -> list[Effect]:
        """Return the effects that are carried out before memory runs out; all of them if it does not at this input.

        Raises `MemoryError` where none is.
        """
        if self.point == AFTER:
            self.strike()
        counted = [index for index, each in enumerate(effects) if type(each) not in CHANGES]
        if self.point != CARRYING or len(counted) <= self.nth:
            return effects
        self.has_struck = True
        end = counted[self.nth]
        return effects[:end] + [each for each in effects[end:] if type(each) in SHOWN]

    def strike(self) -> None:
        """Raise `MemoryError`."""
        self.has_struck = True
        raise MemoryError("there is none left (drawn)")


class _ScarceList(list[Effect]):
    """Effects that a node gathers, for the n-th of which there is no memory."""

    def __init__(self, shortage: ScarceMemory) -> None:
        super().__init__()
        self._shortage = shortage

    def append(self, effect: Effect) -> None:
        if len(self) + 1 >= self._shortage.nth:
            self._shortage.strike()
        super().append(effect)
