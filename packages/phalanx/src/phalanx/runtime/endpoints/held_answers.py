"""Answers of one connection that wait for a sync: a map is `always`, or the disk is slow.

What they tell of was done at once (`LocalAccess.owes_sync`). What the connection says from then on leaves when the log is synced that
far, so its answers stay in order. A request would wait for the same sync, and cost several times as much.
"""

from __future__ import annotations

from collections import deque

from phalanx.grid.replication.replica_log import ReplicaLog


class HeldAnswers:
    """The answers of one connection that wait, and up to where the log must be synced for the next one."""

    __slots__ = ("_is_owed", "_lsn", "_parts", "is_in_use", "size")

    def __init__(self) -> None:
        self.is_in_use = False
        """Whether answers wait, or the next one has to."""
        self.size = 0
        """How many bytes wait."""
        self._is_owed = False
        """Whether something was done since `_lsn` was asked for."""
        self._lsn = 0
        """The record up to which the log must be synced before the next answer leaves."""
        self._parts: deque[tuple[int, bytes]] = deque()
        """What waits, each part with the record that must be synced before."""

    def owe(self) -> None:
        """Note that something was done whose answer, which perhaps is not made yet, must wait for a sync."""
        self.is_in_use = self._is_owed = True

    def must_wait(self, log: ReplicaLog) -> bool:
        """Return whether an answer that leaves now would tell too much."""
        if self._is_owed:
            self._lsn, self._is_owed = log.want_sync(), False
        self.is_in_use = bool(self._parts) or self._lsn > log.synced_lsn
        return self.is_in_use

    def hold(self, data: bytes) -> None:
        """Let an answer wait."""
        self._parts.append((self._lsn, data))
        self.size += len(data)

    def take(self, synced_lsn: int) -> bytes:
        """Return the answers that need not wait any more. `synced_lsn`: up to where the log is synced."""
        ready: list[bytes] = []
        while self._parts and self._parts[0][0] <= synced_lsn:
            ready.append(self._parts.popleft()[1])
        data = ready[0] if len(ready) == 1 else b"".join(ready)
        self.size -= len(data)
        self.is_in_use = bool(self._parts) or self._is_owed or self._lsn > synced_lsn
        return data

    def drop(self) -> None:
        """Forget all answers: the connection is lost."""
        self._parts.clear()
        self.size, self.is_in_use, self._is_owed, self._lsn = 0, False, False, 0
