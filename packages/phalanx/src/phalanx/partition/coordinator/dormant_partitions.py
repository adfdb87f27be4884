"""On the master: partitions that wait for members which have them in their folders.

The last holder of a partition goes, and has it on its disk: then the partition is dormant, and nobody serves it. Members that
have something of a dormant partition in their folders say so with each table that they acknowledge. The partition goes on when one of
those that held it last is back and has all of it, by the rule of a restart (`recovery.claims`).

A holder whose process never ended has what it held among its orphaned replicas, and is to merge it: then the partition begins empty at
that member, and gets all of it by the merge. Other orphaned replicas are taken where every holder is back, and has nothing:

1. A is cut off, and p is dormant, because only A had it. 2. A hands p over to B, which is on its side, and leaves. 3. The sides become
one: B is to merge p, and A, which is back, has nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import NamedTuple

from phalanx.common.departure import Departures
from phalanx.common.errors import UsageError
from phalanx.common.ids import Address, MemberId, Millis, address_of
from phalanx.common.losses import LossKind
from phalanx.common.table import Slots, holders_of
from phalanx.common.words import counted
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.loss_records import LossRecords
from phalanx.partition.coordinator.table_publication import LostRows, TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.recovery.claims import Claims, choose_greatest, choose_row, has_later
from phalanx.partition.recovery.repair import confirming_index
from phalanx.wire.merge_messages import DormantOrphans
from phalanx.wire.messages import GiveUpHolders, KeptReport, TableAck
from phalanx.wire.restart_events import HoldersGivenUp, PartitionsWoken

WAKING_STEP = 1 << 16
"""The version of a row that goes on is raised by this. A restart raises it by 16 times as much: a side without the majority lets
partitions go on, too, whenever members come and go, and those that restart without it know nothing of that."""


class Orphans(NamedTuple):
    """What a member has to merge of dormant partitions.

    It counts once the member has acknowledged the table, with what it has read of them: 1. A's process merges a partition into a side, and
    then owns it there. 2. A stops, and comes back to a side by whose table the partition waits for that process. 3. A's report that its process
    was the one overtakes its acknowledgement, which waits for a sync. Did the partition begin empty at A, what A has read would be in its way.
    """

    since: int
    """The version of the table when it reported this first."""
    sides: tuple[DormantOrphans, ...]


class DormantPartitions:
    """What present members have of dormant partitions."""

    def __init__(
        self, publication: TablePublication, installed_table: InstalledTable, losses: LossRecords, outbox: Outbox
    ) -> None:
        self._publication = publication
        self._installed = installed_table
        self._losses = losses
        self._out = outbox
        self._claims: dict[MemberId, Claims] = {}
        """Other members to what they have read from their folders."""
        self._acknowledged: dict[MemberId, int] = {}
        """Other members to the version of the table for which they have said what they have. A heartbeat confirms a version, too, and does
        not say that."""
        self._orphans: dict[MemberId, Orphans] = {}
        """Members to what they have to merge."""
        self.away: Departures = ()
        """The members that keep in their folders what they held."""

    def __repr__(self) -> str:
        return f"DormantPartitions({list(self._publication.table.dormant)}, claims={list(self._claims)})"

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Forget what members had that have left."""
        self._claims = {member: claims for member, claims in self._claims.items() if member in members}
        self._acknowledged = {member: version for member, version in self._acknowledged.items() if member in members}
        self._orphans = {member: orphans for member, orphans in self._orphans.items() if member in members}

    def on_ack(self, sender: MemberId, message: TableAck) -> None:
        """Note what a member has."""
        self._acknowledged[sender] = message.version
        self._claims.pop(sender, None)
        if message.formers:
            positions = {each.partition: each for each in message.positions}
            self._claims[sender] = Claims(sender, message.formers, positions, lacks_majority=message.lacks_majority)

    def on_report(self, sender: MemberId, message: KeptReport) -> None:
        """Note what a member has to merge."""
        before = self._orphans.pop(sender, None)
        if before is not None and before.sides == message.dormant:
            self._orphans[sender] = before
        elif message.dormant:
            self._orphans[sender] = Orphans(self._publication.table.version, message.dormant)

    def wake(self, now: Millis) -> str:
        """Let the partitions go on of which a holder is back. Return why targets must be planned again; empty: they need not."""
        table = self._publication.table
        if not table.dormant:
            return ""
        claims, confirming, back = self._all_claims(), confirming_index(table), self._back()
        rows = {
            partition: row
            for partition, slots in table.dormant.items()
            if (
                row := self._choose_later(partition, claims)
                or choose_row(slots, partition, claims, confirming, _holders_at(back, slots))
                or _choose_elsewhere(slots, partition, claims, back)
            )
        }
        merged = self._to_merge(confirming, back, rows, claims)
        rows |= {p: (member,) for p, (member, _) in merged.items()}
        if not rows:
            return ""
        # They are lost until they are merged: their holder can end before that.
        gone = holders_of(table.dormant[p] for p in merged)
        losses = self._losses.with_losses({LossKind.EMPTY: (merged, gone)}, self._publication.joined(), now)
        self._publication.change_rows(
            rows, now, at_once=True, increments=self._increments(rows), lost=LostRows(merged, losses=losses)
        )
        version = self._publication.table.version
        self._out.record(PartitionsWoken(tuple(rows), holders_of(rows.values()), version))
        return "holders of dormant partitions are back"

    def give_up(
        self, request: GiveUpHolders, first_rows: Callable[[list[int]], Mapping[int, Slots]], now: Millis
    ) -> None:
        """Let partitions go on without holders that do not come back, as an operator says. Raises `UsageError` unless that is clear.

        `first_rows`: says who gets partitions that begin empty.
        """
        dormant, claims = self._publication.table.dormant, self._all_claims()
        present = {former for each in claims for former in each.formers}
        gone = {p: _absent(slots, present) for p, slots in dormant.items()}
        asked = set(request.holders)
        # A holder that is back can have nothing of it: its folder was put back from an earlier time.
        given_up = {
            p: dormant[p]
            for p, members in gone.items()
            if set(map(address_of, members)) <= asked
            and not asked.isdisjoint(map(address_of, holders_of([dormant[p]])))
        }
        if not given_up:
            waits = (
                ", ".join(map(address_of, holders_of(members or dormant[p] for p, members in gone.items()))) or "nobody"
            )
            raise UsageError(
                f"no partition waits for {', '.join(request.holders) or 'nobody'} alone: dormant partitions wait for {waits}"
            )
        rows = {p: row for p in given_up if (row := choose_greatest(p, claims))}
        begun, kept = [p for p in given_up if p not in rows], self._kept_to_merge()
        empty = [p for p in begun if p not in kept]
        if len(empty) != request.begin_empty:
            begin = counted(len(empty), "partition begins", "partitions begin")
            raise UsageError(
                f"{begin} empty, because no member that is here has anything of them, and not {request.begin_empty}"
            )
        first = first_rows(begun)
        if len(first) < len(begun):
            raise UsageError("no member is here that can hold data")
        members = tuple(each for each in holders_of(given_up.values()) if address_of(each) in asked)
        losses = self._losses.with_losses(
            {LossKind.EMPTY: (begun, members), LossKind.BEHIND: (list(rows), members)}, self._publication.joined(), now
        )
        rows |= first
        self._publication.change_rows(
            rows, now, at_once=True, increments=self._increments(rows), lost=LostRows(begun, losses=losses)
        )
        version = self._publication.table.version
        self._out.record(
            HoldersGivenUp(
                tuple(rows), tuple(empty), members, request.by, version, tuple(p for p in begun if p in kept)
            )
        )

    def _choose_later(self, partition: int, claims: list[Claims]) -> Slots:
        """Return the row of those that follow a rule which this table does not know, and that is not older; empty: nobody does.

        1. Master A lets a partition go on at B. 2. A and B end, and only B has heard of it. 3. By C's table the partition waits for the
        incarnation of B before that, and B's folder names it no more.

        Nobody rules by a row that waits: with the same number it is another one, which others gave. 1. D is cut off, and B's partition waits.
        2. B leaves, and hands the partition to A. 3. A comes back to D: B, for which D waits, does not.
        """
        version = self._publication.table.versions[partition]
        later = [
            each
            for each in claims
            if partition in each.positions and each.positions[partition].epoch >= version and not each.lacks_majority
        ]
        return choose_greatest(partition, later)

    def _all_claims(self) -> list[Claims]:
        formers, positions, lacks = self._installed.dormant_here()
        own = Claims(
            self._publication.this, formers, {each.partition: each for each in positions}, lacks_majority=lacks
        )
        return [own, *self._claims.values()]

    def _increments(self, rows: Collection[int]) -> dict[int, int]:
        """Return by how much to raise the versions of partitions: above every epoch that a claim has.

        A holder can have gone on alone before it ended.
        """
        claims, versions = self._all_claims(), self._publication.table.versions
        epochs = {p: max((c.positions[p].epoch for c in claims if p in c.positions), default=0) for p in rows}
        return {p: max(0, epochs[p] - versions[p]) + WAKING_STEP for p in rows}

    def _back(self) -> set[Address]:
        """Return the addresses of the members that have said what they have of the present table's dormant partitions.

        Not those of folders that are awaited: a process can have begun there with another folder, which says nothing of what they have.
        """
        version = self._publication.table.version
        known = self._publication.confirmed | {self._publication.this: version}
        back = {address_of(member) for member, installed in known.items() if installed >= version}
        return back.difference(address_of(each.member) for each in self.away)

    def _kept_to_merge(self) -> set[int]:
        """Return the partitions of which members have something to merge, whatever incarnations held it.

        1. C hangs, and is out of the row. 2. B, the only holder, ends. 3. C goes on, and its process has what it had before that.
        """
        found = set[int]()
        for each in chain.from_iterable(orphans.sides for orphans in self._orphans.values()):
            found.update(each.partitions if each.is_as_read else (position.partition for position in each.positions))
        return found

    def _to_merge(
        self, confirming: int, back: Collection[Address], but: Collection[int], claims: Collection[Claims]
    ) -> dict[int, tuple[MemberId, MemberId]]:
        """Return the partitions that members are to merge all of, without some, with the member and its former incarnation.

        1. A ends, and the cluster goes on without the majority. 2. A comes back, finds others in its place, merges what it had, and gets
        copies. 3. All end, and by the last table that the majority had the partition waits for the first A.
        """
        dormant, found = self._publication.table.dormant, dict[int, tuple[MemberId, MemberId]]()
        for member, orphans in self._orphans.items():
            if self._acknowledged.get(member, -1) < orphans.since and member != self._publication.this:
                continue
            for each in orphans.sides:
                positions = {position.partition: position for position in each.positions}
                for p in each.partitions:
                    if p not in dormant or p in but:
                        continue
                    # A process that has begun since can have more of it, and is asked first (`wake`).
                    is_all = each.former in dormant[p][: confirming + 1] and not each.is_as_read
                    is_all = is_all and not has_later(p, positions.get(p), claims)
                    if is_all or _are_all_back(dormant[p], back):
                        found.setdefault(p, (member, each.former))
        return found


def _absent(slots: Slots, present: Collection[MemberId]) -> tuple[MemberId, ...]:
    return tuple(member for member in slots if member is not None and member not in present)


def _choose_elsewhere(slots: Slots, partition: int, claims: Collection[Claims], back: Collection[Address]) -> Slots:
    """Return a row of those that have most of a partition, where all that held it last are back; empty: they are not, or nobody has any.

    1. A is cut off, and p is dormant, because only A had it. 2. A, on its side, hands p over to B, or merges it there. 3. Both end, and
    come back: B has p, and nobody else.
    """
    return choose_greatest(partition, claims) if _are_all_back(slots, back) else ()


def _are_all_back(slots: Slots, back: Collection[Address]) -> bool:
    return len(_holders_at(back, slots)) == len(holders_of([slots]))


def _holders_at(addresses: Collection[Address], slots: Slots) -> list[MemberId]:
    """Return the members of a row that were at one of these addresses."""
    return [member for member in holders_of([slots]) if address_of(member) in addresses]
