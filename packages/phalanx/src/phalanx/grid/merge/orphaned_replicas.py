"""Orphaned replicas: those of a cluster that a member has left without handing over, kept until they are merged.

An incarnation that ends because its side joins another one, or because others went on without it, leaves its replicas
to the next incarnation of the same process (`OrphanedSide`). That one merges them into the cluster which it joins, and
drops them when their new owners have acknowledged them. If another split interrupts a merge, the replicas of several
former incarnations accumulate: each is merged by itself.

Each holder of a replica keeps it, backups too, because a process can die before it has merged. The first present member
in the row of the former table sends its replica. Every other one (`ahead` names those before it) asks the member at the
address of the first one what became of that one's replica, and

* drops its own replica when the other one is merged, or its member never ended: it is a member of this very cluster;
* waits while the other one is being sent. The wait ends with another answer, or when that member leaves the view;
* takes over when the other one is unknown there (a new process), or no member has come to that address for
  `patience_ms`;
* takes over when the other one has less: it fell behind before both were cut off from their owner, which is gone by
  now;
* waits for a member that waits itself only if that one ranks before it by table version, index and name. So no members
  wait in a circle, even if their tables differ.

Mistakes only repeat work, because a merge is idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.former_incarnation import DataHandover
from phalanx.common.ids import MemberId, Millis
from phalanx.common.losses import LossBook
from phalanx.common.map_plan import Content
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.map_store import STILL
from phalanx.grid.replica.replica import Replica
from phalanx.grid.replica.staged_steps import drop_staged, finish_step, place_decided
from phalanx.grid.replication.restored import RestoredReplicas
from phalanx.wire.messages import KeptAnswer, KeptQuery, Mark, Waiting

REMEMBERED_SIDES = 64
"""Merged former incarnations that a process remembers, to answer queries of other members."""


class OrphanedReplica:
    """One replica of a former incarnation, and the other members that can have it."""

    __slots__ = ("ahead", "answered_by", "had_at", "index", "is_as_read", "is_had", "others", "replica", "version")

    def __init__(
        self, replica: Replica, version: int, row: tuple[MemberId, ...], former: MemberId, *, is_as_read: bool = False
    ) -> None:
        self.replica = replica
        self.version = version
        """The partition's version in the former table."""
        self.index = row.index(former) if former in row else len(row)
        self.others = row[: self.index]
        """The members before it in the row."""
        self.ahead = list(self.others)
        """Those of `others` that can still send it, as far as this incarnation knows; empty: this member is to send it."""
        self.answered_by: MemberId | None = None
        """The member whose last answer says that its process has the replica of the first one in `ahead`. It is named
        because another process can come to its address."""
        self.is_as_read = is_as_read
        """Whether it is as it was read from the folder: the cluster can have all of it, and its owners are asked that first."""
        self.is_had = False
        """Whether the cluster has all of it: it stays while a migration can bring it back (`ReturningReplicas`)."""
        self.had_at = 0
        """The version of the partition, or of a table with another number of partitions, when it had."""

    def __repr__(self) -> str:
        return f"OrphanedReplica({self.replica}, ahead={self.ahead})"


class OrphanedSide:
    """The replicas of one former incarnation of this process."""

    def __init__(
        self,
        former: MemberId,
        table: PartitionTable,
        ended: int,
        replicas: dict[int, OrphanedReplica],
        empty: Iterable[int] = (),
    ) -> None:
        self.former = former
        self.partition_count = table.partition_count
        """The number of partitions of its cluster."""
        self.ended = ended
        """The grid's clock when the incarnation ended."""
        self.replicas = replicas
        """Partition to the replica that is not merged yet."""
        self.marks = {
            partition: Mark(partition, kept.replica.epoch, kept.replica.leader, kept.replica.seq)
            for partition, kept in replicas.items()
        }
        """Partition to the position of its replica (epoch, leader, seq), also of replicas that are merged by now."""
        self.done: set[int] = set()
        """Partitions that are merged."""
        self.empty = frozenset(empty)
        """Partitions that it held, and in which nothing was stored."""
        self.knew = table.losses.ids
        """Ids of the losses in its table: its data is from after these losses."""
        self._contents = table.maps.contents
        """The contents of maps that its table has decided (`staged_steps.place_decided`)."""
        self.undoes: set[str] = set()
        """Ids of the losses in the cluster's table that its own did not have: it can give back what they lost."""
        self.entries = sum(each.replica.entry_count() for each in replicas.values())
        """The number of entries of all replicas that it had."""
        self.sent = 0
        """The number of entries and removals that new owners have acknowledged."""
        self.taken = 0
        """The number of those that have changed the new owners' data."""
        self.left_to_others = 0
        """The number of replicas that were dropped because another member has, or had, them."""
        self.began_at: Millis | None = None
        """When the present incarnation began to merge this side; None: it has not begun."""

    def __repr__(self) -> str:
        return f"OrphanedSide({self.former}, {len(self.replicas)} of {self.partition_count} partitions, entries={self.entries})"

    def take(self, later: OrphanedSide) -> None:
        """Take more replicas of the same incarnation: the cluster has waited for these until now."""
        self.replicas |= later.replicas
        self.marks |= later.marks
        self.entries += later.entries

    def begin_merge(self, partition: int, now: Millis) -> None:
        """Finish what was done in part in a replica that is as it was read, and drop its other staged rows."""
        kept = self.replicas[partition]
        _finish(kept.replica, self._contents, now)
        kept.is_as_read = False

    def version_in(self, table: PartitionTable, partition: int) -> int:
        """Return the version that a partition of this side has in a table; where that has another number of partitions its own."""
        return table.versions[partition] if table.partition_count == self.partition_count else table.version

    def has_held(self, partition: int) -> bool:
        """Return whether this incarnation held the partition to its end."""
        return partition in self.marks or partition in self.empty

    def rank(self, partition: int) -> tuple[int, int, str]:
        """Return the rank among the members that wait for a partition: the greatest takes over first."""
        kept = self.replicas[partition]
        return kept.version, -kept.index, self.former

    def answer(self, asked: Iterable[Mark]) -> KeptAnswer:
        """Return what became of these replicas."""
        sending, done, waiting = [], [], []
        for mark in asked:
            partition = mark.partition
            kept, held = self.replicas.get(partition), self.marks.get(partition)
            if held is None or not held.covers(mark):
                continue
            if partition in self.done:
                done.append(partition)
            elif kept is not None and not kept.ahead:
                sending.append(partition)
            elif kept is not None:
                waiting.append(Waiting(partition, kept.version, kept.index))
        return KeptAnswer(self.former, self.partition_count, tuple(sending), tuple(done), tuple(waiting))

    def take_answer(self, message: KeptAnswer, asked: Iterable[int], sender: MemberId) -> list[int]:
        """Take a member's answer about the first one ahead of the `asked` partitions. Return the partitions to drop."""
        waits = {each.partition: (each.version, -each.index, message.former) for each in message.waiting}
        droppable = []
        for partition in asked:
            kept = self.replicas.get(partition)
            if kept is None or not kept.ahead or kept.ahead[0] != message.former:
                continue
            if partition in message.done:
                droppable.append(partition)
            elif partition not in message.sending and waits.get(partition, (-1, 0, "")) < self.rank(partition):
                del kept.ahead[0]
                kept.answered_by = None
            else:
                kept.answered_by = sender
        return droppable

    def ahead(self) -> dict[MemberId, list[int]]:
        """Return former incarnations elsewhere with the partitions for whose replicas of theirs this side waits."""
        found: dict[MemberId, list[int]] = {}
        for partition, kept in self.replicas.items():
            if kept.ahead:
                found.setdefault(kept.ahead[0], []).append(partition)
        return found

    def begin(self, losses: LossBook, now: Millis) -> None:
        """Begin the merge in a new incarnation of this process, which must ask anew what became of the other replicas.

        `losses`: those in the table of the cluster that it has joined.
        """
        self.began_at = now
        self.undoes |= losses.ids - self.knew
        for kept in self.replicas.values():
            kept.ahead = list(kept.others)
            kept.answered_by = None


class OrphanedReplicas(DataHandover):
    """All orphaned replicas of a process, passed from one incarnation to the next."""

    def __init__(self) -> None:
        self.sides: dict[MemberId, OrphanedSide] = {}
        """Former incarnation to its replicas, oldest first. Sides without replicas stay, to answer that they are merged."""
        self.losses = LossBook()
        """The losses in the tables of former incarnations."""
        self.restored: RestoredReplicas | None = None
        """What the process has read from its folder, while no cluster has taken it up: these replicas are the cluster's own,
        and not merged. None: nothing."""

    def __repr__(self) -> str:
        return f"OrphanedReplicas({list(self.unmerged())})"

    def __bool__(self) -> bool:
        """Return whether anything is not merged yet."""
        return any(side.replicas for side in self.sides.values())

    def take_restored(self) -> RestoredReplicas | None:
        """Return what was read from the folder, and hold it no more; None: nothing."""
        restored, self.restored = self.restored, None
        return restored

    def add(self, side: OrphanedSide) -> None:
        if side.former in self.sides:
            self.sides[side.former].take(side)
            return
        self.sides[side.former] = side
        for former in [each.former for each in self.sides.values() if not each.replicas][:-REMEMBERED_SIDES]:
            del self.sides[former]

    def unmerged(self) -> list[OrphanedSide]:
        return [side for side in self.sides.values() if side.replicas]

    def only_here(self, members: Collection[MemberId]) -> dict[OrphanedSide, list[int]]:
        """Return the partitions of each side that, as far as is known, none of these members keeps."""
        found = {
            side: [p for p, kept in side.replicas.items() if not (kept.ahead and kept.answered_by in members)]
            for side in self.unmerged()
        }
        return {side: partitions for side, partitions in found.items() if partitions}

    def later_than(self, former: MemberId, partitions: Iterable[int]) -> frozenset[int]:
        """Return of which of these partitions an incarnation has left another replica."""
        side = self.sides.get(former)
        return frozenset(p for p in partitions if side is not None and side.has_held(p % side.partition_count))

    def all_replicas(self) -> list[Replica]:
        return [kept.replica for side in self.sides.values() for kept in side.replicas.values()]

    def partition_count(self) -> int:
        """Return the number of replicas whose data is not merged yet."""
        return sum(not kept.is_had for side in self.sides.values() for kept in side.replicas.values())

    def entry_count(self) -> int:
        kept = [kept for side in self.sides.values() for kept in side.replicas.values() if not kept.is_had]
        return sum(each.replica.entry_count() for each in kept)

    def answer(self, query: KeptQuery) -> KeptAnswer:
        side = self.sides.get(query.former)
        if side is None or side.partition_count != query.of:
            return KeptAnswer(query.former, query.of, (), (), ())
        return side.answer(query.replicas)


def keep(
    former: MemberId, table: PartitionTable, held: dict[int, Replica], ended: int, now: Millis
) -> OrphanedSide:  # fmt: skip
    """Return what an ending incarnation hands over to the next one: its replicas that are not empty, with facts of its
    last table.

    Steps that were done in part are finished. Idle times stand still. Other staged rows are dropped: their jobs
    continue in the remaining cluster.
    """
    for replica in held.values():
        _finish(replica, table.maps.contents, now)
    replicas = {
        partition: OrphanedReplica(replica, table.versions[partition], table.replicas(partition), former)
        for partition, replica in sorted(held.items())
        if replica.has_data and partition < table.partition_count
    }
    empty = [partition for partition, replica in held.items() if not replica.has_data]
    return OrphanedSide(former, table, ended, replicas, empty)


def set_aside(former: MemberId, table: PartitionTable, held: dict[int, Replica], ended: int) -> OrphanedSide:
    """Return replicas that were read from a folder, where the cluster has others. They stay as they were read.

    `former`: the incarnation that has written them; `table`: its last table.
    """
    replicas = {
        partition: OrphanedReplica(
            replica, table.versions[partition], table.replicas(partition), former, is_as_read=True
        )
        for partition, replica in sorted(held.items())
    }
    return OrphanedSide(former, table, ended, replicas)


def _finish(replica: Replica, contents: tuple[Content, ...], now: Millis) -> None:
    finish_step(replica, now)
    place_decided(replica, contents, now)
    drop_staged(replica)
    for store in replica.maps.values():
        store.idle_since = STILL  # Nobody can use the entries before they are merged.
