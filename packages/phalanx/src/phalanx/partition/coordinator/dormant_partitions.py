"""On the master: partitions that wait for members which have them in their folders.

The last holder of a partition goes, and has it on its disk: then the partition is dormant, and nobody serves it. Members that
have something of a dormant partition in their folders say so with each table that they acknowledge. The partition goes on when one of
those that held it last is back and has all of it, by the rule of a restart (`recovery.restart`).

A holder whose process never ended has what it held among its orphaned replicas, and is to merge it: then the partition begins empty at
that member, and gets all of it by the merge.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import Slots, holders_of
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.partition.recovery.repair import confirming_index
from phalanx.partition.recovery.restart import VERSION_STEP, Claims, choose_row
from phalanx.wire.merge_messages import DormantOrphans
from phalanx.wire.messages import KeptReport, TableAck
from phalanx.wire.table_events import PartitionsWoken


class DormantPartitions:
    """What present members have of dormant partitions."""

    def __init__(self, publication: TablePublication, installed_table: InstalledTable, outbox: Outbox) -> None:
        self._publication = publication
        self._installed = installed_table
        self._out = outbox
        self._claims: dict[MemberId, Claims] = {}
        """Other members to what they have read from their folders."""
        self._orphans: dict[MemberId, tuple[DormantOrphans, ...]] = {}
        """Members to what they have to merge."""

    def __repr__(self) -> str:
        return f"DormantPartitions({list(self._publication.table.dormant)}, claims={list(self._claims)})"

    def keep_only(self, members: Collection[MemberId]) -> None:
        """Forget what members had that have left."""
        self._claims = {member: claims for member, claims in self._claims.items() if member in members}
        self._orphans = {member: orphans for member, orphans in self._orphans.items() if member in members}

    def on_ack(self, sender: MemberId, message: TableAck) -> None:
        """Note what a member has."""
        self._claims.pop(sender, None)
        if message.formers:
            self._claims[sender] = Claims(sender, message.formers, {each.partition: each for each in message.positions})

    def on_report(self, sender: MemberId, message: KeptReport) -> None:
        """Note what a member has to merge."""
        self._orphans.pop(sender, None)
        if message.dormant:
            self._orphans[sender] = message.dormant

    def wake(self, now: Millis) -> str:
        """Let the partitions go on of which a holder is back. Return why targets must be planned again; empty: they need not."""
        table = self._publication.table
        if not table.dormant:
            return ""
        formers, positions = self._installed.dormant_here()
        own = Claims(self._publication.this, formers, {each.partition: each for each in positions})
        claims, confirming = [own, *self._claims.values()], confirming_index(table)
        rows = {
            partition: row
            for partition, slots in table.dormant.items()
            if (row := choose_row(slots, partition, claims, confirming)) is not None
        }
        merged = self._to_merge(confirming, rows)
        rows |= merged
        if not rows:
            return ""
        # Above every epoch that a claim can have: a holder can have gone on alone before it ended.
        epochs = {p: max((c.positions[p].epoch for c in claims if p in c.positions), default=0) for p in rows}
        increments = {p: max(0, epochs[p] - table.versions[p]) + VERSION_STEP for p in rows}
        self._publication.change_rows(rows, now, at_once=True, increments=increments, lost=merged)
        version = self._publication.table.version
        self._out.record(PartitionsWoken(tuple(rows), holders_of(rows.values()), version))
        return "holders of dormant partitions are back"

    def _to_merge(self, confirming: int, but: Collection[int]) -> dict[int, Slots]:
        """Return the first rows of partitions that members are to merge all of, without some."""
        dormant, rows = self._publication.table.dormant, dict[int, Slots]()
        for member, orphans in self._orphans.items():
            for each in orphans:
                for p in each.partitions:
                    if p in dormant and p not in but and each.former in dormant[p][: confirming + 1]:
                        rows.setdefault(p, (member,))
        return rows
