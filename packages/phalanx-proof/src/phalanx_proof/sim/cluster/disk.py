"""What a simulated process logs, and the replicas that reading it back would give."""

from __future__ import annotations

from phalanx.common.disk_state import DiskState
from phalanx.common.ids import Millis
from phalanx.disk.blocks import BlockTimes
from phalanx.disk.replay import Replay
from phalanx.grid.replication.replica_log import Appended, ReplicaLog


class SimDisk:
    """The log of one process; nothing of it outlives the process (`SimFolder` does)."""

    def __init__(self) -> None:
        self.state = DiskState.OK
        self.log = ReplicaLog()
        """Where the machines of the present process add records."""
        self.replay = Replay()
        """The replicas of what was written so far."""
        self.differs = False
        """Whether it was found that the log does not give what is in memory: it is told once."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.log!r})"

    def write(self, now: Millis, times: BlockTimes) -> None:
        """Write what was added. `now`: what no clock of the host shows. `times`: what its clocks show."""
        appended = self.log.take()
        if appended is not None:
            self._follow(appended, times.mono_ms)

    def fail(self) -> None:
        """Write nothing any more. What was written stays, and is not read again."""
        self.state = DiskState.FAILED
        self.differs = True
        self.log.end()

    def _follow(self, appended: Appended, shown: Millis) -> None:
        """Do with the records what reading them back would do."""
        if self.differs:
            return
        for lsn, record in enumerate(appended.records, appended.first_lsn):
            self.replay.take(lsn, record, shown)
