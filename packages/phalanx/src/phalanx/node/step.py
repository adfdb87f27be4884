"""One step of a member: an input, and all its effects. Both drivers take their steps here.

Either all effects of an input are carried out or the member ends. A member that continued after a part of them would
have told some of its peers what it has not told others, would wait for answers to what it never sent, and would keep
its place in the cluster all the same; when it ends, others take over.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import Millis
from phalanx.machine.effects import Effect
from phalanx.machine.inputs import Input
from phalanx.node.node import Node


def take_step(
    node: Node,
    event: Input,
    now: Millis,
    perform_effects: Callable[[list[Effect]], None],
    fail: Callable[[BaseException], None],
) -> None:
    """Give the node an input and carry out its effects. `fail` ends the member for good: nothing is carried out or put
    in after it.
    """
    try:
        perform_effects(node.handle(event, now))
    except BaseException as error:
        fail(error)
        if not isinstance(error, Exception):  # the whole program is to stop
            raise
