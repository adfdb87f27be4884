"""What the lanes of one client know together: what one of them learns of the cluster, all know.

A lane hears of tables under a lock: it takes over what is known first, judges the answer by that, and leaves what it knows
then. So all that was ever believed forms one line, as in a client with a single lane. Nothing is waited for meanwhile.
"""

from __future__ import annotations

import logging
import threading
import time

from phalanx.client.core import ClientCore
from phalanx.client.loyalty import Contact, Known
from phalanx.common.ids import Millis, Target
from phalanx.machine.effects import Effect
from phalanx.wire.messages import TableReply

logger = logging.getLogger("phalanx.client")


def wall_ahead_ms() -> Millis:
    """Return how far the wall clock is ahead of the monotonic one."""
    return int((time.time() - time.monotonic()) * 1000)


class Knowledge:
    """The newest that any lane knows. `known`, `partition_count` and `news_at` may be read without the lock."""

    def __init__(self) -> None:
        self.known = Known()
        self.partition_count = 0
        """How many partitions the cluster has; 0: no member has answered."""
        self.news_at: Millis = 0
        """When a call is to ask on the side what is new."""
        self.contact = Contact(wall_ahead_ms)
        self._lock = threading.Lock()

    def on_forked(self) -> None:
        """Take a new lock in a forked process: a thread that is not here may hold the old one."""
        self._lock = threading.Lock()

    def hear(self, core: ClientCore, sender: Target, reply: TableReply, now: Millis) -> list[Effect]:
        """Give a lane's machine a member's answer about the table; what follows from it there."""
        with self._lock:
            effects = core.adopt(self.known, now) if core.known is not self.known else []
            effects += core.received(sender, reply, now)
            self.known, self.partition_count = core.known, core.partition_count or 0
            self.news_at = core.news_at
        for remark in core.take_remarks():
            logger.warning("%s", remark)
        return effects
