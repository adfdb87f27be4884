"""Reports of a member to its master: the orphaned replicas of its process, and losses that the table lacks.

A report is computed from the orphaned replicas and the installed table, and is repeated until the table has it. So no
answer is needed, and a new master gets the same report. A process that has come from another side reports

* how much it has still to merge, twice a second, so that nobody takes the cluster for complete before;
* the partitions of a loss that a former incarnation held which did not know of the loss, or whose going was its cause, and that are
  merged now: their data is given back. A partition that it held empty counts, too: nothing of it was lost;
* the dormant partitions that former incarnations held: nobody serves them until the master knows that they can be merged;
* that a member which the table says can live elsewhere was this process, or that this process has taken its address;
* the losses in its side's table, unless all members whose going caused the loss are members here: they have gone on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from phalanx.common.clock import COUNTER_BITS, GridClock
from phalanx.common.ids import MemberId, Millis, address_of
from phalanx.common.losses import Loss, LossBook, LossKind, bits_of, named, numbers_in
from phalanx.common.table import PartitionTable
from phalanx.grid.merge.orphaned_replicas import OrphanedReplicas, OrphanedSide
from phalanx.grid.replication.restored import positions_of
from phalanx.machine.facts import IncarnationOver, MembershipChanged, OrphansMerged, TableConfirmed
from phalanx.machine.outbox import Outbox
from phalanx.wire.merge_events import KeptDropped
from phalanx.wire.merge_messages import DormantOrphans
from phalanx.wire.messages import KeptReport, Returned

REPORT_EVERY_MS: Millis = 500
"""Between two reports while replicas are to be merged, or the table lacks something."""
REPEAT_EVERY_MS: Millis = 5_000
"""Between two reports afterwards: the master must also learn that nothing is kept any more."""


class LossReports:
    """The reports of one incarnation to its master."""

    def __init__(self, this: MemberId, kept: OrphanedReplicas, clock: GridClock, outbox: Outbox) -> None:
        self._this = this
        self._kept = kept
        self._clock = clock
        self._out = outbox
        self._view_version = 0
        self._table: PartitionTable | None = None
        """The installed table; None: there was no news yet."""
        self._master: MemberId | None = None
        self._members: Collection[MemberId] = ()
        self._book = LossBook()
        self._next: Millis | None = None
        """When to make the next report; None: there is nothing to report."""

    def __repr__(self) -> str:
        return f"LossReports(next={self._next})"

    def on_news(self, fact: MembershipChanged, confirmed: TableConfirmed, now: Millis) -> None:
        """Take a change of the view, the master or the table."""
        self._view_version, self._table = fact.view.version, confirmed.table
        master, book = fact.master, confirmed.table.losses
        if master is None or (not self._kept.sides and not book.away):
            self._next = None
            return
        members = frozenset(fact.view.members)
        if master != self._master or book is not self._book or members != self._members:
            self._next = now
        self._master, self._members, self._book = master, members, book
        self.on_time(now)

    def on_over(self, fact: IncarnationOver, now: Millis) -> None:
        self._next = self._master = None

    def next_deadline(self) -> Millis | None:
        return self._next

    def on_time(self, now: Millis) -> None:
        if self._next is None or now < self._next or self._master is None:
            return
        report = self._report()
        if self._kept.sides or report.over:
            self._out.send(self._master, report)
        is_settled = not (report.replicas or report.over or report.returned or report.losses or report.dormant)
        self._next = now + (REPEAT_EVERY_MS if is_settled else REPORT_EVERY_MS)

    def on_orphans_merged(self, fact: OrphansMerged, now: Millis) -> None:
        """Report a last time before this member leaves: orphaned replicas that no other member keeps are lost."""
        table, lost = self._table, self._kept.only_here(self._members)
        if not lost or self._master is None or table is None:
            return
        # Sides may have had different numbers of partitions. All are reported by the smallest; the others are multiples
        # of it.
        partition_count = min(side.partition_count for side in lost)
        partitions = sorted({partition % partition_count for side, several in lost.items() for partition in several})
        entries = sum(
            side.replicas[partition].replica.entry_count() for side, each in lost.items() for partition in each
        )
        former = tuple(side.former for side in lost)
        how = "this process left before what it kept was merged"
        loss = Loss(
            table.version, self._this, self._view_version, self._clock.read(now) >> COUNTER_BITS, LossKind.KEPT, partition_count, bits_of(partitions),
            named((member, how) for member in former), len(former), entries,
        )  # fmt: skip
        self._out.record(KeptDropped(former, sum(map(len, lost.values())), entries))
        self._out.send(self._master, KeptReport(0, 0, former, losses=(loss,)))

    # --- what is missing in the table ------------------------------------------------------------------------------

    def _report(self) -> KeptReport:
        kept, book = self._kept, self._book
        return KeptReport(
            kept.partition_count(), kept.entry_count(), tuple(self._over()), tuple(self._returned()),
            tuple(loss for loss in kept.losses.losses if self._is_missing(loss, book)), tuple(self._dormant()),
        )  # fmt: skip

    def _dormant(self) -> Iterator[DormantOrphans]:
        """Return what dormant partitions of the table wait for, and this process has kept to merge it."""
        table = self._table
        for side in self._kept.sides.values() if table is not None and table.dormant else ():
            if table is not None and side.partition_count == table.partition_count:
                held = [p for p in table.dormant if side.has_held(p)]
                as_read = [p for p in held if p in side.replicas and side.replicas[p].is_as_read]
                if to_merge := tuple(p for p in held if p not in as_read):
                    here = {p: side.replicas[p].replica for p in to_merge if p in side.replicas}
                    yield DormantOrphans(side.former, to_merge, positions=positions_of(here))
                if as_read:
                    yield DormantOrphans(side.former, tuple(as_read), is_as_read=True)

    def _over(self) -> list[MemberId]:
        """Return the members that the table says are away and whose address this process has, unless their data is
        still to be merged: this process was them, or has replaced them."""
        own = address_of(self._this)
        at_own = [
            each.member for each in self._book.away if address_of(each.member) == own and each.member != self._this
        ]
        sides = self._kept.sides
        return [member for member in at_own if member not in sides or not sides[member].replicas]

    def _returned(self) -> list[Returned]:
        found = []
        for loss in (loss for loss in self._book.losses if loss.kind is LossKind.EMPTY):
            gone = {each.member for each in loss.gone}
            sides = [side for side in self._kept.sides.values() if loss.id in side.undoes or side.former in gone]
            known_back = frozenset(numbers_in(loss.returned))
            open_ones = [p for p in numbers_in(loss.partitions) if p not in known_back] if sides else []
            back = [p for p in open_ones if any(_is_back(side, p, loss.of) for side in sides)]
            if back:
                found.append(Returned(loss.id, bits_of(back)))
        return found

    def _is_missing(self, loss: Loss, book: LossBook) -> bool:
        if loss.id in book.settled or book.find(loss.id) is not None:
            return False
        return not all(each.member in self._members for each in loss.gone)


def _is_back(side: OrphanedSide, partition: int, partition_count: int) -> bool:
    """Return whether a side held a partition (of `partition_count` partitions), and all that it had of it is merged."""
    if partition_count % side.partition_count == 0:
        parts = [partition % side.partition_count]
    elif side.partition_count % partition_count == 0:
        parts = list(range(partition, side.partition_count, partition_count))
    else:
        return False
    return all(part in side.done or part in side.empty for part in parts)
