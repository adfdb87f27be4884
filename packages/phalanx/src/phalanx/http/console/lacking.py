"""Since when each partition lacks a replica, as this member has installed the tables."""

from __future__ import annotations

import time

from phalanx.common.ids import Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.reports.placement import Placement


class LackingSince:
    """Looks at each table and member list. Nothing is done while both are as they were."""

    def __init__(self) -> None:
        self.since: dict[int, Millis] = {}
        """Partition to the time at which this member learned that it lacks a replica, in milliseconds since 1970."""
        self._seen: tuple[PartitionTable, MembersView] | None = None

    def look(self, view: MembersView | None, table: PartitionTable) -> bool:
        """Return whether something is new."""
        if view is None or not table.is_assigned:
            is_new, self._seen, self.since = bool(self._seen), None, {}
            return is_new
        seen = self._seen
        if seen is not None and seen[0] is table and seen[1] is view:
            return False
        now = time.time_ns() // 1_000_000
        found = Placement(view, table, table.maps.depth).lacking()
        self._seen, self.since = (table, view), {each: self.since.get(each, now) for each in found}
        return True
