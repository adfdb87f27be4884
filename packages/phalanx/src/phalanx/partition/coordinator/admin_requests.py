"""On the master: requests of operators that change the table: other settings of a map, more partitions.

Settings are in the next table. Partitions are divided when no migration is under way, and none begins before that.

A schema is said to be set when every member knows it. Otherwise: 1. a writer widens a map's schema, the master M answers, and the
writer stores rows by it; 2. M dies before it has published its table. The rows would be there, and their schema not.
"""

from __future__ import annotations

from collections.abc import Collection

from phalanx.common.config import MAX_PARTITIONS
from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId, Millis
from phalanx.common.map_plan import MAX_NAMED_SETTINGS
from phalanx.common.map_settings import MapChange
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.map_replacement import NOT_KNOWN
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.partition.installed_table import InstalledTable
from phalanx.wire.table_events import BackupsChanged, MapProtected, MergePolicyChanged, PartitionsDivided

MOST_PARTS = 64
"""Most parts into which one request divides a partition: a typing error should not create a million partitions."""


class AdminRequests:
    """Keeps requests of operators until they can be fulfilled, and installs the tables that fulfil them."""

    def __init__(self, installed_table: InstalledTable, publication: TablePublication, outbox: Outbox) -> None:
        self._installed = installed_table
        self._publication = publication
        self._out = outbox
        self.count = 0
        """The partition count to reach as soon as no migration is under way; 0: no division was asked for."""
        self._known_from: dict[str, tuple[str, int]] = {}
        """Map to the schema that it had when that was asked for, and the table version from which a member knows it."""

    def forget(self) -> None:
        """Forget everything: another member leads."""
        self.count = 0
        self._known_from.clear()

    def check_schema(self, name: str, schema: str, before: str | None) -> None:
        """Raise `UsageError` for a schema that was made from another one (None: from none) than the map has."""
        present = self._installed.table.maps.of(name).schema
        if before is not None and present not in (before, schema):
            raise UsageError(f"the schema of the map {name!r} was changed by others meanwhile: read it again")

    def why_schema_unknown(self, name: str, others: Collection[MemberId]) -> str:
        """Return why the schema of a map cannot be relied upon yet; empty: every member knows it."""
        table = self._installed.table
        schema = table.maps.of(name).schema
        known, version = self._known_from.get(name, ("", 0))
        if known != schema or not version:
            if len(self._known_from) >= MAX_NAMED_SETTINGS:
                self._known_from.clear()  # the next to ask begin anew
            version = table.version
            self._known_from[name] = schema, version
        return "" if self._publication.have(others, version) else NOT_KNOWN

    def change_map(self, name: str, change: MapChange, now: Millis) -> bool:
        """Change the settings of a map (empty name: of all maps without own settings). Return whether the number of
        backups is set.

        Raise `UsageError` for settings that no map can have.
        """
        before = self._installed.table.maps
        plan = before.with_change(name, change)
        if change.schema is not None and (plan.usual, plan.maps) == (before.usual, before.maps):
            return False  # asked for again, until every member knows it
        table = self._installed.table.with_maps(plan)
        self._installed.install(table, table.version)
        self._publication.note_all_changed(now)
        if change.protection is not None:
            p = change.protection
            self._out.record(MapProtected(name, p.minimum, p.majority, p.reads, p.writes, table.version))
        if change.merge_policy is not None:
            self._out.record(MergePolicyChanged(name, change.merge_policy, table.version))
        if change.backups is not None:
            count = change.backups
            self._out.record(BackupsChanged(name, count.synchronous, count.asynchronous, table.version))
        return change.backups is not None

    def want_count(self, count: int) -> bool:
        """Note a request to divide all partitions. Return False if the table has this count already.

        Raises `UsageError` if the table cannot have it.
        """
        present = self._installed.table.partition_count
        if count == present:
            self.count = 0  # This can also withdraw a request that was made by mistake.
            return False
        if not self._installed.is_assigned:
            raise UsageError("nothing is stored yet: set partition_count in the configuration of all members instead")
        most = min(present * MOST_PARTS, MAX_PARTITIONS)
        if not present < count <= most or count % present:
            raise UsageError(
                f"{count} partitions cannot be made of {present}: give a multiple of {present}, at most {most}"
            )
        self.count = count
        return True

    def divide(self, now: Millis) -> None:
        """Divide the partitions as requested: this takes one version of the table, and no data moves."""
        count, self.count = self.count, 0
        before = self._installed.table
        table = before.with_partition_count(count)
        self._installed.install(table, table.version)
        self._publication.note_all_changed(now)
        self._out.record(PartitionsDivided(before.partition_count, count, table.version))
