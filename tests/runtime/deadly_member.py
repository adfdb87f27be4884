"""The command `phalanx`, with a node that a request for the map `deadly` ends at once, as a crash of the interpreter would."""

import os
from typing import Any, get_args

from phalanx.cli.main import main
from phalanx.machine.inputs import Received, ReceivedTogether
from phalanx.node.node import Node
from phalanx.wire.messages import Request

DEADLY = "deadly"
STATUS = 70
handle = Node.handle
REQUESTS = frozenset(get_args(Request))


def handle_or_end(self: Node, event: Any, now: int) -> Any:
    messages = event.messages if isinstance(event, ReceivedTogether) else [getattr(event, "message", None)]
    if isinstance(event, Received | ReceivedTogether):
        for message in messages:
            if type(message) in REQUESTS and getattr(message, "map", "") == DEADLY:
                os._exit(STATUS)
    return handle(self, event, now)


if __name__ == "__main__":
    Node.handle = handle_or_end  # type: ignore[method-assign]
    main()
