"""Acknowledgements that a backup owes once its log is synced: to owners whose callers wait for syncs.

A write of a map that is `always` here is not acknowledged before. The owner decides by its own table whether a write waits
for syncs, and counts only acknowledgements that say so. So it makes no difference if the table here is older: when a newer
one says that some map is `always`, everything that is here is acknowledged once more, behind the next sync.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from phalanx.common.ids import MemberId
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import ReplicateAck, ReplicateAcks

Acks: TypeAlias = dict[MemberId, dict[int, ReplicateAck]]
"""Owner and partition to the acknowledgement."""


class HeldAcks:
    """The acknowledgements of one member that wait for a sync."""

    def __init__(self, log: ReplicaLog, outbox: Outbox) -> None:
        self._log = log
        self._out = outbox
        self.new: Acks = {}
        """Those of this input."""
        self._held: deque[tuple[int, Acks]] = deque()
        """The record whose sync is waited for, and what is acknowledged then; in order."""

    def __repr__(self) -> str:
        return f"HeldAcks({len(self._held)})"

    def add(self, owner: MemberId, partition: int, epoch: int, seq: int) -> None:
        """Acknowledge all writes up to `seq` when what is here now is synced."""
        self.new.setdefault(owner, {})[partition] = ReplicateAck(partition, epoch, seq, True)

    def end_input(self) -> None:
        """Let the acknowledgements of this input wait; send them if nothing has to be synced, or cannot be."""
        acks, self.new = self.new, {}
        if self._log.is_on and not self._log.is_all_synced:
            self._held.append((self._log.want_sync(), acks))
        else:
            send_acks(self._out, acks)

    def on_synced(self, lsn: int) -> None:
        """Send what has waited for the sync of this record, or an earlier one; the newest for each partition."""
        due: Acks = {}
        while self._held and self._held[0][0] <= lsn:
            for owner, acks in self._held.popleft()[1].items():
                due.setdefault(owner, {}).update(acks)
        send_acks(self._out, due)

    def forget(self, partition: int) -> None:
        """Drop what is held for a partition: its replica here goes, or follows another owner.

        1. B has applied write 40 and waits for the sync. 2. B drops the replica, by an older table. 3. It tells the owner that it has
        nothing. 4. If it acknowledged 40 now, the owner would count on it.
        """
        for _, acks in self._held:
            for by_partition in acks.values():
                by_partition.pop(partition, None)

    def end(self) -> None:
        """Drop all: this incarnation is over."""
        self.new.clear()
        self._held.clear()


def send_acks(outbox: Outbox, acks: Acks) -> None:
    """Send each owner its acknowledgements."""
    for owner, by_partition in acks.items():
        messages = list(by_partition.values())
        if messages:
            outbox.send(owner, messages[0] if len(messages) == 1 else ReplicateAcks(messages))
