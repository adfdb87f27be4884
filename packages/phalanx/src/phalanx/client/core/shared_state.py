"""The state of the cluster that all sessions of one client share.

A session handles a table reply under a lock: it takes over the shared state, judges the reply by it, and writes its new
state back. So the state changes step by step, as in a client with a single session. Nothing waits under the lock.
"""

from __future__ import annotations

import logging
import threading
import time

from phalanx.client.core.client_core import ClientCore
from phalanx.client.core.cluster_affinity import ClusterState, Contact
from phalanx.common.ids import Millis, Target
from phalanx.machine.effects import Effect
from phalanx.wire.messages import TableReply

logger = logging.getLogger("phalanx.client")


def wall_ahead_ms() -> Millis:
    """Return how far the wall clock is ahead of the monotonic one."""
    return int((time.time() - time.monotonic()) * 1000)


class SharedState:
    """The newest state that any session knows. `state`, `partition_count` and `news_at` can be read without the lock."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.partition_count = 0
        """How many partitions the cluster has; 0: no member has answered."""
        self.news_at: Millis = 0
        """When a call next asks also for the table."""
        self.contact = Contact(wall_ahead_ms)
        self._lock = threading.Lock()

    def on_forked(self) -> None:
        """Take a new lock in a forked process: a thread of the parent can hold the old one."""
        self._lock = threading.Lock()

    def take_table(self, core: ClientCore, sender: Target, reply: TableReply, now: Millis) -> list[Effect]:
        """Give a session's core a member's table reply, and return the core's effects."""
        with self._lock:
            effects = core.adopt(self.state, now) if core.state is not self.state else []
            effects += core.received(sender, reply, now)
            self.state, self.partition_count = core.state, core.partition_count or 0
            self.news_at = core.news_at
        for remark in core.take_remarks():
            logger.warning("%s", remark)
        return effects
