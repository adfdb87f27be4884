"""On the master: what is lost, recorded in the table by which it is lost, until an operator has acknowledged it.

The master knows of partitions and members, and not of entries: a partition that is lost may have held nothing. What is
known besides comes from the members: what they keep of a side that gave up its cluster, what of it is back with its owners,
and what that side itself had lost.

A member that was removed without having left may live on, cut off or hung, and keep writes that nobody else has. It is told
of as long as it may come back: until a member at its address says that this process has merged all, or was never it; until
nobody listens there any more; for `former_members_ms`; or until an operator acknowledges it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from phalanx.common.clock import COUNTER_BITS, GridClock
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.losses import EARLIER, MAX_WORDS, Away, Loss, LossBook, LossKind, bits_of, named
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.recovery.repair import Repair
from phalanx.wire import events
from phalanx.wire.messages import KeptByMember, KeptReport

UNHEARD_AFTER_MS: Millis = 15_000
"""What a member keeps counts no more when it has not said so for so long: it says so twice a second."""


class Departure(NamedTuple):
    """How a member went, as far as this one knows."""

    how: str = ""
    may_live: bool = False
    """Whether its process may live on, cut off or hung."""


class LossRecords:
    """What the master does about losses."""

    def __init__(
        self,
        this: MemberId,
        installed_table: InstalledTable,
        publication: TablePublication,
        outbox: Outbox,
        clock: GridClock,
        departure_of: Callable[[MemberId], Departure],
        former_members_ms: Millis,
    ) -> None:
        self._this = this
        self._installed = installed_table
        self._publication = publication
        self._out = outbox
        self._clock = clock
        self._departure_of = departure_of
        self._former_members_ms = former_members_ms
        self._departed: list[Away] = []
        """Members that may live on, and that the table does not tell of yet."""
        self._taken_out: dict[int, tuple[int, tuple[MemberId, ...]]] = {}
        """Partition to the version of its row after members were taken out, and those: if it is lost before that changes, it
        is by their going, too."""
        self._acknowledged_in = 0
        """The version of the table that tells of the last acknowledgement."""
        self._kept: dict[MemberId, tuple[KeptByMember, Millis]] = {}
        """Member to what it has said last that it keeps, and when that was."""

    def __repr__(self) -> str:
        return f"LossRecords({self._book}, departed={self._departed}, kept={list(self._kept)})"

    @property
    def _book(self) -> LossBook:
        return self._installed.table.losses

    def forget(self) -> None:
        """Another member leads."""
        self._taken_out.clear()
        self._departed.clear()
        self._kept.clear()

    def kept(self, now: Millis) -> list[KeptByMember]:
        """The members that have yet to merge what they keep."""
        return [told for told, heard_at in self._kept.values() if now - heard_at < UNHEARD_AFTER_MS]

    # --- what is lost ----------------------------------------------------------------------------------------------

    def after_repair(self, before: PartitionTable, result: Repair, view: MembersView, now: Millis) -> LossBook:
        """Return the losses to tell from the table on in which members that left are replaced."""
        if not result.lost and not result.behind:
            return self._book
        # The repair, and this, make one version of the table: nobody else ever tells it.
        version = before.version + 1
        found = [
            Loss(version + step, self._this, view.version, self._now_ms(now), kind, before.partition_count,
                 bits_of(partitions), named((member, self._departure_of(member).how) for member in gone), len(gone))
            for step, (kind, partitions) in enumerate(
                ((LossKind.EMPTY, result.lost), (LossKind.BEHIND, result.behind))
            )
            if partitions and (gone := self._gone(before, partitions, view))
        ]  # fmt: skip
        if result.behind:
            gone = self._gone(before, result.behind, view)
            self._out.record(events.WritesMayBeMissing(tuple(result.behind), tuple(gone), version))
        return self._book.with_losses(found)

    def note_taken_out(self, before: PartitionTable, result: Repair, after: PartitionTable) -> None:
        """Members that left were taken out of some rows of the table."""
        taken_out = {}
        for partition in result.changes:
            staying = after.replicas(partition)
            gone = tuple(member for member in before.replicas(partition) if member not in staying)
            taken_out[partition] = after.versions[partition], (*self._taken_out_of(before, partition), *gone)
        self._taken_out = {p: told for p, told in self._taken_out.items() if told[0] == after.versions[p]} | taken_out

    def _taken_out_of(self, table: PartitionTable, partition: int) -> tuple[MemberId, ...]:
        version, members = self._taken_out.get(partition, (-1, ()))
        return members if version == table.versions[partition] else ()

    def _gone(self, table: PartitionTable, partitions: Iterable[int], view: MembersView) -> list[MemberId]:
        """Return the members by whose departure the partitions have no complete replica."""
        held = dict.fromkeys(member for p in partitions for member in table.replicas(p) if member not in view)
        earlier = dict.fromkeys(member for p in partitions for member in self._taken_out_of(table, p))
        return sorted(held | earlier)

    def _now_ms(self, now: Millis) -> int:
        return self._clock.read(now) >> COUNTER_BITS

    # --- who is away -----------------------------------------------------------------------------------------------

    def note_departures(self, before: MembersView, view: MembersView, now: Millis) -> None:
        """Members are in the view no more: those that held replicas, and may live on, are told of."""
        held = frozenset(self._installed.table.members)
        present = {address_of(member) for member in view.members}
        for member in before.members:
            # Who came back at its address is not away. To look for each one in the list itself would take its length squared.
            if member in held and address_of(member) not in present:
                departure = self._departure_of(member)
                if departure.may_live:
                    self._departed.append(Away(member, self._now_ms(now), departure.how[:MAX_WORDS]))
        self._kept = {member: told for member, told in self._kept.items() if member in view}

    def on_deserted(self, address: Address, now: Millis) -> bool:
        """No process listens at an address: whoever had it is gone. True if that is news."""
        self._departed = [each for each in self._departed if address_of(each.member) != address]
        gone = [each.member for each in self._book.away if address_of(each.member) == address]
        return bool(gone) and self._set(self._book.without_away(gone), now)

    def go_on(self, now: Millis) -> None:
        """Tell of those who went, and no more of those who would have come back by now."""
        if not self._departed and not self._book.away:
            return
        book = self._book.with_away(self._departed)
        self._departed.clear()
        since = self._now_ms(now) - self._former_members_ms
        self._set(book.without_away([each.member for each in book.away if each.at_ms < since]), now)

    # --- what others say -------------------------------------------------------------------------------------------

    def on_report(self, sender: MemberId, report: KeptReport, now: Millis) -> None:
        """A member says what it keeps, and what the table should tell."""
        if report.replicas:
            self._kept[sender] = KeptByMember(sender, report.replicas, report.entries), now
        else:
            self._kept.pop(sender, None)
        book = self._book.with_losses(report.losses).without_away(report.over)
        self._set(book.with_returned({each.loss: each.partitions for each in report.returned}), now)

    def acknowledge(self, ids: Collection[str], by: str, others: Iterable[MemberId], now: Millis) -> str:
        """Tell some losses no more. Returns why that is not done yet; empty: it is. Raises `UsageError` for unknown ones."""
        book = self._book
        away = [each.member for each in book.away]
        known = {*book.settled, *(loss.id for loss in book.losses), EARLIER}
        # Who has come back meanwhile is told of no more, and needs no acknowledgement.
        if unknown := [each for each in ids if each not in known and "/" not in each]:
            told = ", ".join([*(loss.id for loss in book.losses), *map(address_of, away)]) or "nothing"
            raise UsageError(f"no loss is known as {', '.join(unknown)}; told are: {told}")
        if self._set(book.acknowledged(frozenset(ids)), now):
            lost = sum(loss.count for loss in book.losses if loss.id in ids)
            lost += book.earlier_partitions if EARLIER in ids else 0
            self._acknowledged_in = self._installed.table.version
            operator = "".join(each if each.isprintable() else "?" for each in by[:MAX_WORDS])
            self._out.record(events.LossesAcknowledged(tuple(ids), operator, lost, self._acknowledged_in))
        is_known = self._publication.have(others, self._acknowledged_in)
        return "" if is_known else "not every member knows of it yet: ask again"

    def _set(self, book: LossBook, now: Millis) -> bool:
        """Publish a table that tells this; False: the present one does."""
        table = self._installed.table.with_losses(book)
        if table is self._installed.table:
            return False
        self._installed.install(table, table.version)
        self._publication.note_all_changed(now)
        return True
