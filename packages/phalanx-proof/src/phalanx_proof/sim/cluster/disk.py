"""The folder of a simulated host: what its member has written, and the replicas that reading it back would give."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.disk.replay import Replay
from phalanx.grid.replication.replica_log import ReplicaLog


class SimDisk:
    """The log of one process."""

    def __init__(self) -> None:
        self.log = ReplicaLog()
        """Where the machines of the process add records."""
        self.replay = Replay()
        """The replicas of what was written so far."""

    def __repr__(self) -> str:
        return f"SimDisk({self.log!r})"

    def write(self, shown: Millis) -> None:
        """Write what was added. `shown`: what the host's clock shows."""
        appended = self.log.take()
        if appended is None:
            return
        for lsn, record in enumerate(appended.records, appended.first_lsn):
            self.replay.take(lsn, record, shown)
