"""Dividing partitions while they are used: partition p of N becomes p, p + N, p + 2 N, ... of a multiple of N.

The table says so in one version, and no data is sent for it. Each member divides the replicas that it holds, and owner
and backup get the same children of the same writes:

1. An owner that hears of it confirms no more writes under its old rule, divides, and asks its backups whether they hold
   what it begins each child's rule with. Callers whose writes are open ask again.
2. A backup leaves a replica as it is until its owner asks for a child, or the table tells more of one. Writes of the old
   rule that were on their way come before that question on the same connection: so the backup has them by then. It answers
   when the child is whole.
3. A backup that hears of it later keeps the question until it does: it must not follow a child's rule by a table that
   knows no children. So a new master hears of the division from everybody who has acted upon it.

To sort a million entries takes a second or two, in which a member would be silent: it is done some entries in a turn
(`replica_split`), those that somebody waits for first. From its first turn on a replica takes no write any more; requests for what
is owned here wait (`OwnedLater`), and so do the questions of other owners. What becomes of a child meanwhile, by a table or
by a copy, is decided by what it has from the beginning, and it may turn out that nobody needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from phalanx.codec.hashing import children_of
from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.deferred_free import HELD_AT_ONCE, DeferredFree
from phalanx.grid.replica.replica_split import ENTRIES_AT_ONCE, Division
from phalanx.grid.replica.store import Replica
from phalanx.grid.replication.parked_requests import ParkedRequests
from phalanx.wire.messages import Probe

PAUSE_MS: Millis = 1
"""Between two turns."""


class Undivided(NamedTuple):
    """A replica of the partition of a smaller count."""

    replica: Replica
    version: int
    """Of all its children in the table that divided them."""


class UndividedReplicas:
    """Replicas at this member of partitions that the table has divided and this member has not."""

    def __init__(self, replicas: dict[int, Replica], discarded: DeferredFree) -> None:
        self._replicas = replicas
        """Where the children go."""
        self._deferred_free = discarded
        self._waiting: dict[int, Undivided] = {}
        """By the number that the partition had: nobody needs its children yet."""
        self._under_way: list[Division] = []
        """Those that were begun first come first."""
        self._division_of: dict[int, Division] = {}
        """Child to the division that is under way."""
        self.questions: dict[int, tuple[MemberId, Probe]] = {}
        """Child to the question of its owner, which is answered when the child is whole."""
        self._of = 0
        self._count = 0
        self.entries_at_once = ENTRIES_AT_ONCE

    def __bool__(self) -> bool:
        return bool(self._waiting or self._under_way)

    def __repr__(self) -> str:
        return f"UndividedReplicas({list(self._waiting)} of {self._of}, {self._under_way})"

    @property
    def is_under_way(self) -> bool:
        """Whether something is being divided."""
        return bool(self._under_way)

    def begin(self, held: Mapping[int, Replica], of: int, table: PartitionTable) -> None:
        """The table has divided what is held here; of what it has divided before, the children that are among it."""
        self._of, self._count = of, table.partition_count
        self.questions.clear()
        unfinished = self._division_of.keys() & held.keys()
        for division in self._under_way:
            for replica in division.divide_further(of, self._count, unfinished):
                self._deferred_free.add(replica)
        self._division_of = {child: division for division in self._under_way for child in division.children}
        self._drop_useless()
        for partition, replica in held.items():
            if partition not in unfinished:
                self._waiting[partition] = Undivided(replica, table.versions[partition])
        self.follow_table(table)

    def follow_table(self, table: PartitionTable) -> None:
        """Give up a division where the table tells more of a child: the children then go ways of their own."""
        for partition, undivided in list(self._waiting.items()):
            versions = {table.versions[child] for child in children_of(partition, self._count, self._of)}
            if versions != {undivided.version}:
                self.begin_for(partition)

    def of_old_rule(self, partition: int, epoch: int, ruler: str) -> Replica | None:
        """The replica for which a write of the old rule is, if nobody has needed a child of it yet."""
        undivided = self._waiting.get(partition)
        if undivided is None or (undivided.replica.epoch, undivided.replica.ruler) != (epoch, ruler):
            return None
        return undivided.replica

    def lacks(self, partition: int) -> bool:
        """Whether this partition's replica is here, and is not whole before another one is divided."""
        return partition in self._division_of or bool(self._waiting and partition % self._of in self._waiting)

    def children(self) -> dict[int, Replica]:
        """Return the children of what is being divided: they know whom they have followed, but have not all entries."""
        return {child: division.children[child] for child, division in self._division_of.items()}

    def child(self, partition: int) -> Replica | None:
        """One of these."""
        division = self._division_of.get(partition)
        return division.children[partition] if division is not None else None

    def begin_for(self, partition: int) -> bool:
        """Begin to divide the replica from which this partition comes; it takes no writes any more.

        Returns whether that begins only now.
        """
        undivided = self._waiting.pop(partition % self._of, None) if self._waiting else None
        if undivided is None:
            return False
        division = Division(undivided.replica, partition % self._of, self._of, self._count, self.entries_at_once)
        self._under_way.append(division)
        self._division_of.update(dict.fromkeys(division.children, division))
        return True

    def begin_all(self) -> None:
        for partition in list(self._waiting):
            self.begin_for(partition)

    def drop(self, partition: int) -> None:
        """Drop a child that is being made and that nobody needs any more."""
        division = self._division_of.pop(partition, None)
        if division is not None:
            self._deferred_free.add(division.children.pop(partition))
            self._drop_useless()

    def _drop_useless(self) -> None:
        for division in [division for division in self._under_way if not division.children]:
            self._end(division)

    def go_on(self, wanted: Container[int]) -> None:
        """Sort some more entries; of a partition among the wanted ones, if one is being divided."""
        for_them = (self._division_of[child] for child in self._division_of if child in wanted)
        division = next(for_them, self._under_way[0])
        if division.go_on():
            self._replicas.update(division.children)
            self._end(division)

    def _end(self, division: Division) -> None:
        self._under_way.remove(division)
        for child in division.children:
            del self._division_of[child]
        # Less in a turn, and more would be waiting for it than is divided meanwhile.
        self._deferred_free.add(division.replica, HELD_AT_ONCE)

    def divide_all(self) -> None:
        """Divide what is left in one go: this incarnation ends, and serves nobody."""
        self.begin_all()
        while self._under_way:
            self.go_on(())

    def replicas(self) -> Iterable[Replica]:
        """Return the replicas that are not divided, or not completely."""
        waiting = [undivided.replica for undivided in self._waiting.values()]
        return [*waiting, *(division.replica for division in self._under_way)]

    def clear(self) -> None:
        self._waiting.clear()
        self._under_way.clear()
        self._division_of.clear()
        self.questions.clear()


class OwnedLater:
    """Partitions that this member owns by the table, and serves when they are divided; requests wait for that.

    It also gives each division its turn, and hands back the questions that waited for one.
    """

    def __init__(
        self,
        partitions: dict[int, None],
        undivided: UndividedReplicas,
        parked: ParkedRequests,
        take_over: Callable[[int, Millis], None],
        answer: Callable[[MemberId, Probe], None],
    ) -> None:
        self._undivided = undivided
        self._parked = parked
        self._take_over = take_over
        self._answer = answer
        self.partitions = partitions
        """Requests for these wait (`Leader.refuse`)."""
        self._due_at: Millis = 0

    def __repr__(self) -> str:
        return f"OwnedLater({list(self.partitions)})"

    def next_deadline(self) -> Millis | None:
        undivided = self._undivided
        return self._due_at if self.partitions or undivided.is_under_way or undivided.questions else None

    def on_time(self, now: Millis) -> None:
        """Divide some more, and serve what is whole: a partition that somebody waits for before others."""
        due_at, undivided = self.next_deadline(), self._undivided
        if due_at is None or now < due_at:
            return
        self._due_at = now + PAUSE_MS
        if self.partitions:
            undivided.begin_for(self._parked.most_wanted(self.partitions))
        if undivided.is_under_way:
            undivided.go_on(self._parked.waiting)
        for partition in [partition for partition in self.partitions if not undivided.lacks(partition)]:
            self._take(partition, now)
        for partition in [partition for partition in undivided.questions if not undivided.lacks(partition)]:
            self._answer(*undivided.questions.pop(partition))

    def _take(self, partition: int, now: Millis) -> None:
        """Serve this one now."""
        del self.partitions[partition]
        self._take_over(partition, now)
        self._parked.release(partition)

    def drop(self, partition: int) -> None:
        """It is served already, or another member owns it by now: what has waited is served, or told so."""
        if partition in self.partitions:
            del self.partitions[partition]
            self._parked.release(partition)

    def drop_all(self) -> None:
        for partition in list(self.partitions):
            self.drop(partition)
