"""The command `phalanx`, with a node that raises an error: `python failing_member.py ERROR FILE …`, and the command's arguments.

It is raised in the middle of the first input after FILE is there.
"""

import builtins
import os
import sys
from typing import Any

from phalanx.cli.main import main
from phalanx.node.node import Node

kind, trigger = getattr(builtins, sys.argv[1]), sys.argv[2]
handle = Node.handle


def handle_or_fail(self: Node, event: Any, now: int) -> Any:
    effects = handle(self, event, now)
    if os.path.exists(trigger):
        raise kind("planted")
    return effects


Node.handle = handle_or_fail  # type: ignore[method-assign]
sys.argv = ["phalanx", *sys.argv[3:]]
main()
