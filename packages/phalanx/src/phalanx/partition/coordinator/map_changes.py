"""On the master: change the settings of maps when an operator asks for it. They are in the next table.

A schema, or what writes wait for on disk, is said to be set when every member knows it. Otherwise: 1. a writer widens a map's
schema, the master M answers, and the writer stores rows by it; 2. M dies before it has published its table. The rows would be
there, and their schema not.
"""

from __future__ import annotations

from phalanx.common.errors import UsageError
from phalanx.common.ids import Millis
from phalanx.common.map_plan import MAX_NAMED_SETTINGS
from phalanx.common.map_settings import MapChange
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.map_replacement import NOT_KNOWN
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.wire.table_events import BackupsChanged, MapProtected, MergePolicyChanged


class MapChanges:
    """Installs tables with other settings of maps, and knows which schemas every member has."""

    def __init__(self, publication: TablePublication, outbox: Outbox) -> None:
        self._publication = publication
        self._out = outbox
        self._known_from: dict[str, tuple[str, str, int]] = {}
        """Map to the schema and the durability that it had when that was asked for, and the table version from which a member knows them."""

    def forget(self) -> None:
        """Forget everything: another member leads."""
        self._known_from.clear()

    def why_unknown(self, name: str) -> str:
        """Return why the schema and the durability of a map cannot be relied upon yet; empty: every member knows them."""
        table = self._publication.table
        present = table.maps.of(name).schema, table.maps.of(name).durability
        *known, version = self._known_from.get(name, ("", "", 0))
        if tuple(known) != present or not version:
            if len(self._known_from) >= MAX_NAMED_SETTINGS:
                self._known_from.clear()  # the next to ask begin anew
            version = table.version
            self._known_from[name] = (*present, version)
        return "" if self._publication.all_have(version) else NOT_KNOWN

    def change(self, name: str, change: MapChange, schema_before: str | None, now: Millis) -> bool:
        """Change the settings of a map (empty name: of all maps without own settings). Return whether the number of
        backups is set.

        Raise `UsageError` for settings that no map can have, and for a schema that was made from another one
        (`schema_before`; None: from none) than the map has.
        """
        before = self._publication.table.maps
        schema = change.schema
        if schema is not None and schema_before is not None and before.of(name).schema not in (schema_before, schema):
            raise UsageError(f"the schema of the map {name!r} was changed by others meanwhile: read it again")
        plan = before.with_change(name, change)
        is_awaited = schema is not None or change.durability is not None
        if is_awaited and (plan.usual, plan.maps) == (before.usual, before.maps):
            return False  # asked for again, until every member knows it
        self._publication.change(self._publication.table.with_maps(plan), now)
        version = self._publication.table.version
        if change.protection is not None:
            p = change.protection
            self._out.record(MapProtected(name, p.minimum, p.majority, p.reads, p.writes, version))
        if change.merge_policy is not None:
            self._out.record(MergePolicyChanged(name, change.merge_policy, version))
        if change.backups is not None:
            count = change.backups
            self._out.record(BackupsChanged(name, count.synchronous, count.asynchronous, version))
        return change.backups is not None
