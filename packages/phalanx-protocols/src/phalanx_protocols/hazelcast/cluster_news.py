"""What one client is told of members and partitions: where they are others than it knows."""

from __future__ import annotations

from typing import Any

from phalanx.endpoints.protocol import GridAccess
from phalanx_protocols.hazelcast.views import members_event, partitions_event


class ClusterNews:
    """The views of one connection."""

    def __init__(self, grid: GridAccess) -> None:
        self._grid = grid
        self.told_count = 0
        """How many partitions the client was told that there are."""
        self._number: int | None = None
        """The number under which the client wants to be told of the cluster; None: it does not, on this connection."""
        self._told: tuple[Any, Any] = (None, None)
        """The id of the view and the version of the table that it was told last."""

    def watch(self, number: int) -> None:
        """Tell the client everything anew, under this number."""
        self._number, self._told = number, (None, None)

    def events(self) -> list[bytes]:
        """Return what the client does not know yet."""
        view, table, number = self._grid.view, self._grid.table, self._number
        if number is None or view is None:
            return []
        found = []
        told_view, told_table = self._told
        if told_view != view.id:
            found.append(members_event(number, view))
        if table is not None and (told_table != table.version or told_view != view.id):
            found.append(partitions_event(number, view, table, self.told_count))
        self._told = view.id, table.version if table is not None else None
        return found
