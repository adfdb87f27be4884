"""Copy replicas of this member to its own disk, so that the log before the copies can be removed.

It is the copy that a new backup gets, with the log as the connection: current values between new writes, and their order
alone keeps it right. One replica is copied at a time, a chunk in a turn, and callers hardly notice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import ViewId
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replication.copying import CopySender
from phalanx.grid.replication.flow_control import CopyFlow
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.alarms import Alarm
from phalanx.machine.outbox import Outbox
from phalanx.wire.disk_records import CopyBegun
from phalanx.wire.messages import CopyAck, CopyChunk, CopyStart, Message

PAUSE_MS: Millis = 4
"""Between two chunks while callers have work at this member."""
QUIET_PAUSE_MS: Millis = 1
THIS_DISK = MemberId("disk")
"""The receiver of such a copy."""


class _IntoLog(Outbox):
    """Takes the messages of a copy, and adds them to the log."""

    def __init__(self, log: ReplicaLog, replica: Replica) -> None:
        super().__init__()
        self._log = log
        self._replica = replica

    def send(self, to: str, message: Message) -> None:
        if isinstance(message, CopyStart):
            self._log.add(CopyBegun(message, self._replica.leader, self._replica.ended, True))
        elif isinstance(message, CopyChunk):
            self._log.add(message)


class DiskCopies:
    """Copies replicas to the disk, one after another as the driver asks for them."""

    def __init__(
        self, log: ReplicaLog, flow: CopyFlow, find_replica: Callable[[int], Replica | None], count: Callable[[], int]
    ) -> None:
        """`find_replica`: returns the complete replica of a partition at this member; None: there is none. `count`: says how
        many partitions there are."""
        self._log = log
        self._flow = flow
        self._find_replica = find_replica
        self._count = count
        self._sender: CopySender | None = None
        self._partition = -1
        self._replica = Replica()
        self._out = _IntoLog(log, self._replica)
        self._next_at: Millis = 0
        log.note_step = self.on_step
        self.alarm = Alarm(self)

    def __repr__(self) -> str:
        return f"DiskCopies({self._sender})"

    def begin(self, partition: int, now: Millis) -> None:
        """Begin to copy a replica, unless one is being copied, or there is none."""
        replica = self._find_replica(partition)
        if self._sender is not None or replica is None:
            return
        self._partition, self._replica, self._next_at = partition, replica, now
        self._start()
        self.alarm.follow()

    def _start(self) -> None:
        self._out = _IntoLog(self._log, self._replica)
        self._sender = CopySender(self._partition, THIS_DISK, self._replica, self._flow)
        self._sender.start(None, self._count(), ViewId(), self._out)

    def on_step(self, partition: int, needed: Collection[str], made: str, of: str) -> None:
        """Mend the copy under way after a step with staged rows, as an owner does for its streams."""
        sender = self._sender
        if sender is None or partition != self._partition:
            return
        if sender.lacks(needed):
            self._start()
        elif made and sender.lacks([of]):
            sender.send_also(made)

    def next_deadline(self) -> Millis | None:
        return self._next_at if self._sender is not None else None

    def on_time(self, now: Millis) -> None:
        sender = self._sender
        if sender is None or now < self._next_at:
            return
        if self._find_replica(self._partition) is not self._replica:
            self._sender = None  # it is dropped, divided or replaced, and so is its copy in the log
            return
        sender.send_next(now, self._out)
        sender.on_ack(CopyAck(self._partition, sender.copy_id, sender.sent_chunks - 1))
        if not sender.has_more:
            self._sender = None
            return
        self._next_at = now + (PAUSE_MS if self._flow.traffic.is_there(now) else QUIET_PAUSE_MS)
