"""What a member keeps of a cluster that it has left without handing over: its replicas, until they are merged.

An incarnation that ends because its side joins another one, or because others went on without it, leaves its replicas to
the next incarnation of the same process (`OrphanedSide`). That one merges them into the cluster which it joins, and drops
them when their new owners have acknowledged them. The kept data of several former incarnations may pile up, if a merge is
interrupted by another split: each is merged by itself.

Whoever held a replica keeps it, backups too: a process may die before it has merged. The first in the row of the former
table that is there sends. Every other one (`ahead` names those before it) asks the member that listens at the address of
the first one what became of that one's replica, and

* drops its own when the other is merged, or when the other never ended: it is a member of this very cluster;
* waits while the other is being sent. The wait ends with another answer, or when that member leaves the view;
* takes over when the other is unknown there (a new process), or nobody has come to that address for `patience_ms`;
* takes over when the other has less: it fell behind before both were cut off from their owner, who is gone by now;
* waits for another one that waits itself only if that one is before it by table version, index and name. So nobody waits
  in a circle, even if tables differ.

Mistakes only repeat work: what is merged twice is merged once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phalanx.common.former_incarnation import KeptData
from phalanx.common.ids import MemberId, Millis
from phalanx.common.losses import LossBook
from phalanx.common.table import PartitionTable
from phalanx.grid.replica.staged_steps import drop_hidden, place_decided
from phalanx.grid.replica.store import Replica
from phalanx.wire.messages import KeptAnswer, KeptQuery, Mark, Waiting

REMEMBERED_SIDES = 64
"""Former incarnations of which a process can say that they are merged."""


class OrphanedReplica:
    """One replica of a former incarnation, and who else may have it."""

    __slots__ = ("ahead", "index", "others", "replica", "told_by", "version")

    def __init__(self, replica: Replica, version: int, row: tuple[MemberId, ...], former: MemberId) -> None:
        self.replica = replica
        self.version = version
        """Of the partition, in the former table."""
        self.index = row.index(former) if former in row else len(row)
        self.others = row[: self.index]
        """Those before it in the row."""
        self.ahead = list(self.others)
        """Those of them that may still have it, as far as this incarnation knows; none: this one is to be sent."""
        self.told_by: MemberId | None = None
        """Who has answered last that its process keeps it too, and is before this one. At an address may be another process."""

    def __repr__(self) -> str:
        return f"OrphanedReplica({self.replica}, ahead={self.ahead})"


class OrphanedSide:
    """The replicas of one former incarnation of this process."""

    def __init__(
        self,
        former: MemberId,
        of: int,
        ended: int,
        replicas: dict[int, OrphanedReplica],
        empty: Iterable[int] = (),
        knew: frozenset[str] = frozenset(),
    ) -> None:
        self.former = former
        self.of = of
        """How many partitions its cluster had."""
        self.ended = ended
        """The grid's clock when it ended."""
        self.replicas = replicas
        """Partition to what is not merged yet."""
        self.marks = {
            partition: Mark(partition, kept.replica.epoch, kept.replica.ruler, kept.replica.seq)
            for partition, kept in replicas.items()
        }
        """How far each replica had come, also of those that are merged by now."""
        self.done: set[int] = set()
        """Partitions that are merged."""
        self.empty = frozenset(empty)
        """Partitions that it held, and in which nothing was stored."""
        self.knew = knew
        """The losses of which its table told: what it holds, it got after them."""
        self.undoes: set[str] = set()
        """The losses that the cluster had before it took up this: what was lost by them, this may give back."""
        self.entries = sum(each.replica.entry_count() for each in replicas.values())
        """Of all replicas that it had."""
        self.sent = 0
        """Entries and removals whose new owners have acknowledged them."""
        self.taken = 0
        """Those of them by which the new owners' data has changed."""
        self.left_to_others = 0
        """Replicas that were dropped because another member has, or had, them."""
        self.began_at: Millis | None = None
        """When this incarnation began to merge it."""

    def __repr__(self) -> str:
        return f"OrphanedSide({self.former}, {len(self.replicas)} of {self.of} partitions, entries={self.entries})"

    def rank(self, partition: int) -> tuple[int, int, str]:
        """Return the rank among those that wait: the one with the greatest is the first to take over."""
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
        return KeptAnswer(self.former, self.of, tuple(sending), tuple(done), tuple(waiting))

    def hear(self, message: KeptAnswer, asked: Iterable[int], sender: MemberId) -> list[int]:
        """A member has answered about the one that is first ahead of these. Returns those that can be dropped."""
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
                kept.told_by = None
            else:
                kept.told_by = sender
        return droppable

    def ahead(self) -> dict[MemberId, list[int]]:
        """Former incarnations elsewhere to the replicas of theirs for which this side waits."""
        found: dict[MemberId, list[int]] = {}
        for partition, kept in self.replicas.items():
            if kept.ahead:
                found.setdefault(kept.ahead[0], []).append(partition)
        return found

    def begin(self, losses: LossBook, now: Millis) -> None:
        """Another incarnation of this process takes it up: who has what is to be found out anew.

        `losses`: that the cluster tells of which it has joined.
        """
        self.began_at = now
        self.undoes |= losses.ids - self.knew
        for kept in self.replicas.values():
            kept.ahead = list(kept.others)
            kept.told_by = None


class OrphanedReplicas(KeptData):
    """All that a process keeps, passed from one incarnation to the next."""

    def __init__(self) -> None:
        self.sides: dict[MemberId, OrphanedSide] = {}
        """Former incarnation to its replicas; oldest first. Empty ones tell others what is merged."""
        self.losses = LossBook()
        """What the tables of former incarnations told."""

    def __repr__(self) -> str:
        return f"OrphanedReplicas({list(self.unmerged())})"

    def __bool__(self) -> bool:
        """Whether anything is not merged yet."""
        return any(side.replicas for side in self.sides.values())

    def add(self, side: OrphanedSide) -> None:
        self.sides[side.former] = side
        for former in [each.former for each in self.sides.values() if not each.replicas][:-REMEMBERED_SIDES]:
            del self.sides[former]

    def unmerged(self) -> list[OrphanedSide]:
        return [side for side in self.sides.values() if side.replicas]

    def only_here(self, members: Collection[MemberId]) -> dict[OrphanedSide, list[int]]:
        """Return what is kept here and, as far as members have said, by none of these members."""
        found = {
            side: [p for p, kept in side.replicas.items() if not (kept.ahead and kept.told_by in members)]
            for side in self.unmerged()
        }
        return {side: partitions for side, partitions in found.items() if partitions}

    def partition_count(self) -> int:
        """Return the number of replicas whose data is not merged yet."""
        return sum(len(side.replicas) for side in self.sides.values())

    def entry_count(self) -> int:
        return sum(kept.replica.entry_count() for side in self.sides.values() for kept in side.replicas.values())

    def answer(self, query: KeptQuery) -> KeptAnswer:
        side = self.sides.get(query.former)
        if side is None or side.of != query.of:
            return KeptAnswer(query.former, query.of, (), (), ())
        return side.answer(query.replicas)


def keep(former: MemberId, table: PartitionTable, held: dict[int, Replica], ended: int) -> OrphanedSide:
    """Return what an incarnation that ends leaves to the next one: its last table, and its replicas that are not empty.

    What jobs have staged ends here: who staged it asks the cluster that goes on.
    """
    for replica in held.values():
        place_decided(replica, table.maps.contents)
        drop_hidden(replica)
    replicas = {
        partition: OrphanedReplica(replica, table.versions[partition], table.replicas(partition), former)
        for partition, replica in sorted(held.items())
        if replica.maps and partition < table.partition_count
    }
    empty = [partition for partition, replica in held.items() if not replica.maps]
    return OrphanedSide(former, table.partition_count, ended, replicas, empty, table.losses.ids)
