"""The folder of a simulated host: what its members have written, and the replicas that reading it back would give."""

from __future__ import annotations

from phalanx.common.ids import Millis
from phalanx.disk.replay import Replay
from phalanx.disk.restoring import Restoration, restore
from phalanx.grid.replication.replica_log import Appended, ReplicaLog


class SimDisk:
    """The folder of one host, through all processes that start there."""

    def __init__(self) -> None:
        self.log = ReplicaLog()
        """Where the machines of the present process add records."""
        self.replay = Replay()
        """The replicas of what was written so far."""
        self._written: list[tuple[Millis, Appended]] = []
        """What was written, and what the host's clock showed then."""
        self._last_stamp = 0

    def __repr__(self) -> str:
        return f"SimDisk({self.log!r})"

    @property
    def holds_replicas(self) -> bool:
        """Whether a process that starts here brings back replicas."""
        return bool(self.replay.replicas)

    def write(self, shown: Millis, stamp: int) -> None:
        """Write what was added. `shown`, `stamp`: what the host's clock shows, and the grid's."""
        appended = self.log.take()
        if appended is None:
            return
        self._written.append((shown, appended))
        self._last_stamp = stamp
        _follow(self.replay, appended, shown)

    def begin_process(self) -> Restoration | None:
        """Begin with what an earlier process has written; None: that is nothing of use."""
        self.log.take()  # what was not written is lost with the process that had made it
        replay = Replay()
        for shown, appended in self._written:
            _follow(replay, appended, shown)
        last_lsn = self._written[-1][1].last_lsn if self._written else 0
        self.log = ReplicaLog(last_lsn)
        return restore(replay, self._last_stamp, self.log)


def _follow(replay: Replay, appended: Appended, shown: Millis) -> None:
    for lsn, record in enumerate(appended.records, appended.first_lsn):
        replay.take(lsn, record, shown)
