"""On the master: record losses of data in the table until an operator has acknowledged them.

A loss is in the same table version that causes it. The master knows partitions and members, not entries: a lost
partition may have been empty. Members report the rest: the orphaned replicas they keep after a split brain, which of
these are merged, and what the other side itself had lost.

A member that was removed without having left can still run, cut off or hung, and keep writes that no other member has.
It is listed while it can come back: until a member at its address reports that all is merged, or that it is another
process; until no process listens there; for `former_members_ms`; or until an operator acknowledges it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from phalanx.common.clock import COUNTER_BITS
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.losses import EARLIER, MAX_WORDS, AbsentMember, Loss, LossBook, LossKind, bits_of, named
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.recovery.repair import Repair
from phalanx.wire.messages import KeptByMember, KeptReport
from phalanx.wire.table_events import LossesAcknowledged, WritesMayBeMissing

UNHEARD_AFTER_MS: Millis = 15_000
"""A member's report of what it keeps counts for this long; it is repeated twice a second."""


class DepartureReason(NamedTuple):
    """Why a member left the view, in words, as far as this one knows."""

    how: str = ""
    may_live: bool = False
    """Whether its process can still run, cut off or hung."""


class LossRecords:
    """The losses that the master knows and has to record in the table."""

    def __init__(
        self,
        local: LocalContext,
        publication: TablePublication,
        departure_of: Callable[[MemberId], DepartureReason],
    ) -> None:
        self._local = local
        self._publication = publication
        self._departure_of = departure_of
        self._absent: list[AbsentMember] = []
        """Departed members that can still run and that the table does not list yet."""
        self._taken_out: dict[int, tuple[int, tuple[MemberId, ...]]] = {}
        """Partition to the version of its row after members were taken out, and those members. If the partition is lost
        before the row changes again, their departure is a cause too."""
        self._acknowledged_in = 0
        """The table version that contains the last acknowledgement."""
        self._kept: dict[MemberId, tuple[KeptByMember, Millis]] = {}
        """Member to its latest report of what it keeps, and when that arrived."""
        self._look_at: Millis | None = None
        """When the time to come back ends for the first of those that are away; None: none is."""

    def __repr__(self) -> str:
        return f"LossRecords({self._book}, absent={self._absent}, kept={list(self._kept)})"

    @property
    def _book(self) -> LossBook:
        return self._publication.table.losses

    def forget(self) -> None:
        """Forget everything: another member leads."""
        self._taken_out.clear()
        self._absent.clear()
        self._kept.clear()
        self._look_at = None

    def next_deadline(self) -> Millis | None:
        """Return when a member's time to come back ends."""
        return self._look_at

    def kept(self, now: Millis) -> list[KeptByMember]:
        """Return the members that have yet to merge what they keep."""
        return [report for report, heard_at in self._kept.values() if now - heard_at < UNHEARD_AFTER_MS]

    # --- what is lost ----------------------------------------------------------------------------------------------

    def after_repair(self, before: PartitionTable, result: Repair, view: MembersView, now: Millis) -> LossBook:
        """Return the losses to list from the table on in which members that left are replaced."""
        if not result.lost and not result.behind:
            return self._book
        lost = {LossKind.EMPTY: result.lost, LossKind.BEHIND: result.behind}
        gone = {kind: self._gone(before, partitions, view) for kind, partitions in lost.items() if partitions}
        if result.behind:
            behind = tuple(result.behind), tuple(gone[LossKind.BEHIND])
            self._local.out.record(WritesMayBeMissing(*behind, before.version + 1))
        return self.with_losses({kind: (lost[kind], members) for kind, members in gone.items()}, view, now)

    def with_losses(
        self, lost: Mapping[LossKind, tuple[Collection[int], Collection[MemberId]]], view: MembersView, now: Millis
    ) -> LossBook:
        """Return the book with other losses: of each kind the partitions, and the members without which they are lost."""
        before = self._publication.table
        # The change of the rows, and this, make one version of the table: no other member sees one without the other.
        found = [
            Loss(before.version + 1 + step, self._local.this, view.version, self._now_ms(now), kind, before.partition_count,
                 bits_of(partitions), named((member, self._departure_of(member).how) for member in gone), len(gone))
            for step, (kind, (partitions, gone)) in enumerate(lost.items())
            if partitions and gone
        ]  # fmt: skip
        return self._book.with_losses(found)

    def note_taken_out(self, before: PartitionTable, result: Repair, after: PartitionTable) -> None:
        """Note that members that left were taken out of some rows of the table."""
        taken_out = {}
        for partition in result.changes:
            staying = after.replicas(partition)
            gone = tuple(member for member in before.replicas(partition) if member not in staying)
            taken_out[partition] = after.versions[partition], (*self._taken_out_of(before, partition), *gone)
        self._taken_out = {
            p: taken for p, taken in self._taken_out.items() if taken[0] == after.versions[p]
        } | taken_out

    def _taken_out_of(self, table: PartitionTable, partition: int) -> tuple[MemberId, ...]:
        version, members = self._taken_out.get(partition, (-1, ()))
        return members if version == table.versions[partition] else ()

    def _gone(self, table: PartitionTable, partitions: Iterable[int], view: MembersView) -> list[MemberId]:
        """Return the members whose departure left the partitions without a complete replica."""
        held = dict.fromkeys(member for p in partitions for member in table.replicas(p) if member not in view)
        earlier = dict.fromkeys(member for p in partitions for member in self._taken_out_of(table, p))
        return sorted(held | earlier)

    def _now_ms(self, now: Millis) -> int:
        return self._local.read_clock(now) >> COUNTER_BITS

    # --- who is away -----------------------------------------------------------------------------------------------

    def note_departures(self, before: MembersView, view: MembersView, now: Millis) -> None:
        """Note the members that are no longer in the view, held replicas, and can still run."""
        held = frozenset(self._publication.table.members)
        present = {address_of(member) for member in view.members}
        for member in before.members:
            # A member that came back at its address is not away. A search of the list for each would take its length squared.
            if member in held and address_of(member) not in present:
                departure = self._departure_of(member)
                if departure.may_live:
                    self._absent.append(AbsentMember(member, self._now_ms(now), departure.how[:MAX_WORDS]))
        self._kept = {member: report for member, report in self._kept.items() if member in view}

    def on_deserted(self, address: Address, now: Millis) -> bool:
        """Note that no process listens at an address: its former member is gone. Return whether that is news."""
        self._absent = [each for each in self._absent if address_of(each.member) != address]
        gone = [each.member for each in self._book.away if address_of(each.member) == address]
        return bool(gone) and self._set(self._book.without_away(gone), now)

    def go_on(self, now: Millis) -> None:
        """List the departed members in the table, and remove those whose time to come back is over."""
        self._look_at = None
        if not self._absent and not self._book.away:
            return
        book = self._book.with_away(self._absent)
        self._absent.clear()
        since = self._now_ms(now) - self._local.config.former_members_ms
        self._set(book.without_away([each.member for each in book.away if each.at_ms < since]), now)
        if self._book.away:
            self._look_at = now + min(each.at_ms for each in self._book.away) - since + 1

    # --- what others say -------------------------------------------------------------------------------------------

    def on_report(self, sender: MemberId, report: KeptReport, now: Millis) -> None:
        """Note what a member keeps, and which losses it wants in the table."""
        if report.replicas:
            self._kept[sender] = KeptByMember(sender, report.replicas, report.entries), now
        else:
            self._kept.pop(sender, None)
        book = self._book.with_losses(report.losses).without_away(report.over)
        self._set(book.with_returned({each.loss: each.partitions for each in report.returned}), now)

    def acknowledge(self, ids: Collection[str], by: str, now: Millis) -> str:
        """Remove losses from the table. Return why not yet; empty: done. Raises `UsageError` for unknown ids."""
        book = self._book
        away = [each.member for each in book.away]
        known = {*book.settled, *(loss.id for loss in book.losses), EARLIER}
        # A member that has come back meanwhile is not listed any more, and needs no acknowledgement.
        if unknown := [each for each in ids if each not in known and "/" not in each]:
            known_ids = ", ".join([*(loss.id for loss in book.losses), *map(address_of, away)]) or "nothing"
            raise UsageError(f"no loss is known as {', '.join(unknown)}; told are: {known_ids}")
        if self._set(book.acknowledged(frozenset(ids)), now):
            lost = sum(loss.count for loss in book.losses if loss.id in ids)
            lost += book.earlier_partitions if EARLIER in ids else 0
            self._acknowledged_in = self._publication.table.version
            operator = "".join(each if each.isprintable() else "?" for each in by[:MAX_WORDS])
            self._local.out.record(LossesAcknowledged(tuple(ids), operator, lost, self._acknowledged_in))
        is_known = self._publication.all_have(self._acknowledged_in)
        return "" if is_known else "not every member knows of it yet: ask again"

    def _set(self, book: LossBook, now: Millis) -> bool:
        """Publish a table with these losses. Return False if the present one has them."""
        table = self._publication.table.with_losses(book)
        if table is self._publication.table:
            return False
        self._publication.change(table, now)
        return True
