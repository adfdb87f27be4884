"""The recent writes of one owned partition: those that a replica has not acknowledged, and those that one lacks which comes back.

A broken connection loses messages, and a member that restarts misses writes. Both get what they lack from here, in its order, and need
no copy (DU-62). What is kept for a member that is away is bounded over all partitions of this member (`KeptRoom`): over that a
partition keeps nothing for it any more, and it gets a copy. That is in memory alone: an owner that has restarted sends copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from phalanx.common.ids import NEVER
from phalanx.common.invariant import invariant
from phalanx.wire.messages import Mutation, ReplicatePut, ReplicateRemove, ReplicateUpdates

KEPT_BYTES = 64 * 1024 * 1024
"""The most that a member keeps for members that are away, as it is counted."""
WRITE_BYTES = 400
"""The size of a write without its keys and values, as it is counted."""


class KeptRoom:
    """How much one member keeps, over all its partitions."""

    __slots__ = ("has_memory", "left")

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.left = limit
        """So many bytes more can be kept."""
        self.has_memory: Callable[[], bool] = lambda: True
        """Returns whether the member has memory for more."""


class WriteLog:
    """The recent writes of one owned partition, oldest first."""

    __slots__ = ("_kept_bytes", "_kept_from", "_room", "_row", "_writes", "begins")

    def __init__(self, seq: int, room: KeptRoom) -> None:
        """`seq`: the number of the last write before this ownership."""
        self.begins = seq
        """It has every write with a greater number than this; if there is no stream and nothing is kept, none is there."""
        self._writes: deque[Mutation] = deque()
        self._room = room
        self._kept_from = NEVER
        """Later writes are kept for members that are away; `NEVER`: for nobody."""
        self._kept_bytes = 0
        self._row = 0
        """So many replicas there were before one of them went away."""

    def __repr__(self) -> str:
        return f"WriteLog({len(self._writes)} behind {self.begins}, is_kept={self.is_kept})"

    def __len__(self) -> int:
        return len(self._writes)

    @property
    def is_kept(self) -> bool:
        """Whether writes are kept for members that are away."""
        return self._kept_from != NEVER

    def begin(self, seq: int) -> None:
        """Begin behind a write, unless the log has gone on until now: the first stream is about to begin."""
        if not self.is_kept:
            self.begins = seq

    def add(self, write: Mutation) -> None:
        """Add the next write, and keep nothing for members that are away if there is no room."""
        self._writes.append(write)
        if self.is_kept:
            size = _size_of(write)
            self._kept_bytes += size
            self._room.left -= size
            if self._room.left < 0 or not self._room.has_memory():
                self.end_keeping()

    def after(self, seq: int) -> Iterator[Mutation]:
        """Return the writes with greater numbers."""
        return (write for write in self._writes if write.seq > seq)

    def forget(self, seq: int) -> None:
        """Drop the writes up to this one, unless they are kept: no stream needs them."""
        writes, seq = self._writes, min(seq, self._kept_from)
        while writes and writes[0].seq <= seq:
            self.begins = writes.popleft().seq

    def validate(self, seq: int, *, is_plain: bool) -> None:
        """Raise `InvariantViolation` if a write is missing. `seq`: the number of the last one; `is_plain`: none is to be here."""
        writes = self._writes
        whole = not writes if is_plain else len(writes) == seq - self.begins and (not writes or writes[-1].seq == seq)
        invariant(whole, "a log has all writes behind its beginning", log=self, seq=seq)

    # --- members that are away ---------------------------------------------------------------------------------------

    def keep(self, seq: int, row: int) -> None:
        """Keep what a member lacks that has the writes up to this one, and has left a row with so many replicas."""
        self._kept_from = max(min(seq, self._kept_from), self.begins)
        self._row = max(row, self._row)

    def follow_row(self, row: int) -> None:
        """Keep nothing any more if the row has as many replicas again."""
        if self.is_kept and row >= self._row:
            self.end_keeping()

    def end_keeping(self) -> None:
        """Keep nothing for members that are away."""
        self._room.left += self._kept_bytes
        self._kept_from, self._kept_bytes, self._row = NEVER, 0, 0

    def end(self) -> None:
        """Drop everything: the ownership is over."""
        self.end_keeping()
        self._writes.clear()


def _size_of(write: Mutation) -> int:
    if type(write) is ReplicatePut or type(write) is ReplicateUpdates:
        return WRITE_BYTES * len(write.keys) + sum(map(len, write.keys)) + sum(map(len, write.values))
    if type(write) is ReplicateRemove:
        return WRITE_BYTES + WRITE_BYTES * len(write.keys) // 4 + sum(map(len, write.keys))
    return WRITE_BYTES
