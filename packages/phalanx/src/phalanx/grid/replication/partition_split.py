"""Split partitions while they are used: partition p of N becomes p, p + N, p + 2 N, ... of a multiple of N.

One version of the table says so, and no data is sent for it. Each member splits the replicas that it holds, and owner
and backup get the same children of the same writes:

1. An owner with the new table confirms no more writes of the old epoch, splits, and probes its backups for each child:
   do they hold what the owner begins the child's epoch with? Callers whose writes are open retry.
2. A backup leaves a replica as it is until the owner probes for a child, or a table changes one of the children. Writes
of
   the old epoch come before that probe on the same connection, so the backup has them by then. It answers when the
   child is complete.
3. A backup that does not have the new table yet keeps the probe until it has: it must not follow the owner of a child
by
   a table without children. So a new master hears of the split from each member that has acted upon it.

Sorting a million entries takes a second or two, in which a member would be silent. So it is done some entries in a turn
(`replica_split`), first for partitions with parked requests. From its first turn on a replica takes no writes. Requests
for partitions that are owned here wait (`PartitionsAwaitingSplit`), and so do the probes of other owners. Tables and copies can
change what becomes of a child meanwhile, even make it useless; a child has its epoch, leader and seq from the beginning
to decide that.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple, Protocol

from phalanx.codec.hashing import children_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.deferred_free import HELD_AT_ONCE, DeferredFree
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.replica_split import ENTRIES_AT_ONCE, Division
from phalanx.grid.replication.parked_requests import ParkedRequests
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.wire.disk_records import ReplicaDropped, ReplicasDivided
from phalanx.wire.messages import Probe

PAUSE_MS: Millis = 1
"""Between two turns."""


class Undivided(NamedTuple):
    """A replica of a partition that the table has split."""

    replica: Replica
    version: int
    """The version of all its children in the table that split it."""


class UndividedReplicas:
    """Replicas at this member of partitions that the table has split and this member has not."""

    def __init__(self, replicas: dict[int, Replica], discarded: DeferredFree, log: ReplicaLog) -> None:
        self._log = log
        self._replicas = replicas
        """Where the children go."""
        self._deferred_free = discarded
        self._waiting: dict[int, Undivided] = {}
        """Former partition number to a replica whose split has not begun, because its children are not needed yet."""
        self._under_way: list[Division] = []
        """Splits under way, in the order in which they began."""
        self._division_of: dict[int, Division] = {}
        """Child partition to the split under way that makes it."""
        self.questions: dict[int, tuple[MemberId, Probe]] = {}
        """Child partition to the owner's probe, which is answered when the child is complete."""
        self._of = 0
        self._count = 0
        self.entries_at_once = ENTRIES_AT_ONCE

    def __bool__(self) -> bool:
        return bool(self._waiting or self._under_way)

    def __repr__(self) -> str:
        return f"UndividedReplicas({list(self._waiting)} of {self._of}, {self._under_way})"

    @property
    def is_under_way(self) -> bool:
        """Whether a split is under way."""
        return bool(self._under_way)

    def begin_splits(self, held: Mapping[int, Replica], former_count: int, table: PartitionTable) -> None:
        """Take the replicas whose partitions the table has split. Those among them that are children of a split under
        way are split further by that."""
        self._of, self._count = former_count, table.partition_count
        self.questions.clear()
        unfinished = self._division_of.keys() & held.keys()
        for child in self._division_of:
            is_needed = child in unfinished
            self._log.add(ReplicasDivided(child, former_count, self._count) if is_needed else ReplicaDropped(child))
        for division in self._under_way:
            for replica in division.divide_further(former_count, self._count, unfinished):
                self._deferred_free.add(replica)
        self._division_of = {child: division for division in self._under_way for child in division.children}
        self._drop_useless()
        for partition, replica in held.items():
            if partition not in unfinished:
                self._waiting[partition] = Undivided(replica, table.versions[partition])
        self.follow_table(table)

    def follow_table(self, table: PartitionTable) -> None:
        """Begin the split of each replica of which the table has changed a child: the children now differ in their
        histories."""
        for partition, undivided in list(self._waiting.items()):
            versions = {table.versions[child] for child in children_of(partition, self._count, self._of)}
            if versions != {undivided.version}:
                self.begin_for(partition)

    def of_old_rule(self, partition: int, epoch: int, leader: str) -> Replica | None:
        """Return the replica for a write of the old epoch; None: there is none, or its split has begun."""
        undivided = self._waiting.get(partition)
        if undivided is None or (undivided.replica.epoch, undivided.replica.leader) != (epoch, leader):
            return None
        return undivided.replica

    def lacks(self, partition: int) -> bool:
        """Return whether this partition's replica is here, but the split that completes it is not done."""
        return partition in self._division_of or bool(self._waiting and partition % self._of in self._waiting)

    def waiting(self) -> dict[int, Replica]:
        """Return the replicas whose split has not begun, by their former partition number."""
        return {partition: undivided.replica for partition, undivided in self._waiting.items()}

    def children(self) -> dict[int, Replica]:
        """Return the children of splits under way: their epoch, leader and seq are right, but entries are missing."""
        return {child: division.children[child] for child, division in self._division_of.items()}

    def child(self, partition: int) -> Replica | None:
        """Return the incomplete child of a split under way; None: there is none."""
        division = self._division_of.get(partition)
        return division.children[partition] if division is not None else None

    def begin_for(self, partition: int) -> bool:
        """Begin to split the replica from which this partition comes; from now on it takes no writes.

        Returns False if there is no such replica, or its split has begun before.
        """
        undivided = self._waiting.pop(partition % self._of, None) if self._waiting else None
        if undivided is None:
            return False
        division = Division(undivided.replica, partition % self._of, self._of, self._count, self.entries_at_once)
        self._log.add(ReplicasDivided(partition % self._of, self._of, self._count))
        self._under_way.append(division)
        self._division_of.update(dict.fromkeys(division.children, division))
        return True

    def begin_all(self) -> None:
        for partition in list(self._waiting):
            self.begin_for(partition)

    def drop(self, partition: int) -> None:
        """Drop an incomplete child that is not needed any more."""
        division = self._division_of.pop(partition, None)
        if division is not None:
            self._deferred_free.add(division.children.pop(partition))
            self._drop_useless()

    def _drop_useless(self) -> None:
        for division in [division for division in self._under_way if not division.children]:
            self._end(division)

    def sort_entries(self, wanted: Container[int]) -> None:
        """Sort some more entries: of a split that makes one of the wanted partitions, if there is one, else of the
        oldest split."""
        for_them = (self._division_of[child] for child in self._division_of if child in wanted)
        division = next(for_them, self._under_way[0])
        if division.go_on():
            self._replicas.update(division.children)
            self._end(division)

    def _end(self, division: Division) -> None:
        self._under_way.remove(division)
        for child in division.children:
            del self._division_of[child]
        # With less in a turn, the queue of replicas to free would grow faster than it is freed.
        self._deferred_free.add(division.replica, HELD_AT_ONCE)

    def divide_all(self) -> None:
        """Split what is left in one go: this incarnation ends, and serves no requests."""
        self.begin_all()
        while self._under_way:
            self.sort_entries(())

    def replicas(self) -> Iterable[Replica]:
        """Return the replicas whose split is not done."""
        waiting = [undivided.replica for undivided in self._waiting.values()]
        return [*waiting, *(division.replica for division in self._under_way)]

    def clear(self) -> None:
        self._waiting.clear()
        self._under_way.clear()
        self._division_of.clear()
        self.questions.clear()


class SplitOwner(Protocol):
    """Continues what had to wait for a split."""

    def begin_epoch(self, partition: int, now: Millis) -> None:
        """Begin to serve a partition."""
        ...

    def answer_late(self, sender: MemberId, probe: Probe) -> None:
        """Handle a probe, unless its sender has left since."""
        ...


class PartitionsAwaitingSplit:
    """Partitions that this member owns by the table, and serves once their replicas are split. Requests wait for that.

    It also gives each split its turns, and answers the probes that waited for a split.
    """

    def __init__(
        self,
        partitions: dict[int, None],
        undivided: UndividedReplicas,
        parked: ParkedRequests,
        owner: SplitOwner,
    ) -> None:
        self._undivided = undivided
        self._parked = parked
        self._owner = owner
        self.partitions = partitions
        """Owned partitions that are not split yet; requests for them are parked (`Leader.refuse`)."""
        self._due_at: Millis = 0

    def __repr__(self) -> str:
        return f"PartitionsAwaitingSplit({list(self.partitions)})"

    def next_deadline(self) -> Millis | None:
        undivided = self._undivided
        return self._due_at if self.partitions or undivided.is_under_way or undivided.questions else None

    def on_time(self, now: Millis) -> None:
        """Split some more, and serve the partitions that are complete; those with parked requests are split first."""
        due_at, undivided = self.next_deadline(), self._undivided
        if due_at is None or now < due_at:
            return
        self._due_at = now + PAUSE_MS
        if self.partitions:
            undivided.begin_for(self._parked.most_wanted(self.partitions))
        if undivided.is_under_way:
            undivided.sort_entries(self._parked.waiting)
        for partition in [partition for partition in self.partitions if not undivided.lacks(partition)]:
            self._take(partition, now)
        for partition in [partition for partition in undivided.questions if not undivided.lacks(partition)]:
            self._owner.answer_late(*undivided.questions.pop(partition))

    def _take(self, partition: int, now: Millis) -> None:
        """Begin to serve a partition."""
        del self.partitions[partition]
        self._owner.begin_epoch(partition, now)
        self._parked.release(partition)

    def drop(self, partition: int) -> None:
        """Stop waiting for a partition that is served already or has another owner, and release its parked requests."""
        if partition in self.partitions:
            del self.partitions[partition]
            self._parked.release(partition)

    def drop_all(self) -> None:
        for partition in list(self.partitions):
            self.drop(partition)
