"""The writes of one owned partition that are applied, and whose callers wait: for backups, and for syncs where their map asks for that."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import TypeAlias

import msgspec

from phalanx.common.ids import Target
from phalanx.grid.replication.progress import Stream
from phalanx.wire.messages import Reply

SYNCED_HERE, SYNCED = 1, 2
"""What a write waits for beside the acknowledgements; 0: for nothing. For the sync of this member, because its disk is slow; or
for the syncs of all that confirm it."""

Awaited: TypeAlias = tuple[int, int]
"""What a write waits for: the index of the coldest replica that must confirm it, and 0, `SYNCED_HERE` or `SYNCED`."""


class PendingWrite(msgspec.Struct, gc=False):
    """A caller's write that is applied and waits for backups or syncs, in one partition or several."""

    caller: Target
    reply: Reply
    partitions_left: int
    map: str
    """The map whose protection is checked before the acknowledgement; empty: none is, as in a merge."""


class PendingWrites:
    """The pending writes of one partition."""

    __slots__ = ("_writes", "synced_lsn")

    def __init__(self) -> None:
        self._writes: dict[Awaited, deque[tuple[int, int, PendingWrite]]] = {}
        """What is waited for, to the sequence numbers, numbers in the log (0: no sync is waited for) and writes, oldest first."""
        self.synced_lsn = 0
        """The log of this member is synced at least so far."""

    def __repr__(self) -> str:
        return f"PendingWrites({ {awaited: len(writes) for awaited, writes in self._writes.items()} })"

    @property
    def await_sync(self) -> bool:
        """Whether one waits for a sync."""
        for (_, sync), waiting in self._writes.items():  # noqa: SIM110  # `any` costs more: this runs for each acknowledgement
            if sync and waiting:
                return True
        return False

    def add(self, write: PendingWrite, seq: int, awaited: Awaited, lsn: int) -> None:
        """Add the write of a sequence number. `lsn`: its number in the log, if it waits for a sync."""
        waiting = self._writes.get(awaited)
        if waiting is None:
            waiting = self._writes[awaited] = deque()
        waiting.append((seq, lsn, write))

    def take_confirmed(self, seq: int, streams: Collection[Stream]) -> list[PendingWrite]:
        """Return the writes that every stream that counts has acknowledged, and that are synced where they must, and that wait for no
        other partition. `seq`: the number of the last write."""
        whole = []
        for (coldest, sync), waiting in self._writes.items():
            confirmed = seq
            for stream in streams:
                has = stream.synced if sync == SYNCED else stream.acked
                if stream.counts and has < confirmed and stream.index <= coldest:
                    confirmed = has
            while waiting and waiting[0][0] <= confirmed and waiting[0][1] <= self.synced_lsn:
                _, _, write = waiting.popleft()
                write.partitions_left -= 1
                if write.partitions_left == 0:
                    whole.append(write)
        return whole

    def take_all(self) -> list[PendingWrite]:
        """Return all, each once: the ownership is over."""
        writes = {id(write): write for waiting in self._writes.values() for _, _, write in waiting}
        self._writes.clear()
        return list(writes.values())
