"""Asks for the first assignment of partitions again, as long as something here waits for it.

What was asked for before may have been lost, or have come while the master could not decide.
"""

from __future__ import annotations

from phalanx.calls.call_router import CallRouter
from phalanx.common.ids import Millis
from phalanx.grid.merge.merging import DataMerging
from phalanx.membership.service import MembershipService
from phalanx.partition.coordinator.coordinator import PartitionCoordinator
from phalanx.partition.installed_table import InstalledTable


class TableWish:
    """The wish of one member for a table that assigns the partitions."""

    def __init__(
        self,
        membership: MembershipService,
        installed_table: InstalledTable,
        coordinator: PartitionCoordinator,
        calls: CallRouter,
        data_merging: DataMerging,
        retry_ms: Millis,
    ) -> None:
        self._membership = membership
        self._installed = installed_table
        self._coordinator = coordinator
        self._calls = calls
        self._data_merging = data_merging
        self._retry_ms = retry_ms
        self._again_at: Millis = 0

    @property
    def _is_open(self) -> bool:
        """Whether a call, or the merge of orphaned replicas, waits for the assignment."""
        waits = bool(self._calls.waiting) or bool(self._data_merging)
        return waits and not self._installed.is_assigned and self._membership.view is not None

    def next_deadline(self) -> Millis | None:
        return self._again_at if self._is_open else None

    def on_time(self, now: Millis) -> None:
        if self._is_open and now >= self._again_at:
            self._again_at = now + self._retry_ms
            self._coordinator.want_table(now)
