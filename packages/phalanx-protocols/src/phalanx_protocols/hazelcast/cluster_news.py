"""Send one client the members and partitions that have changed since it last heard of them."""

from __future__ import annotations

from typing import Any

from phalanx.endpoints.protocol import GridAccess
from phalanx_protocols.hazelcast.views import members_event, partitions_event


class ClusterNews:
    """The views of one connection."""

    def __init__(self, grid: GridAccess) -> None:
        self._grid = grid
        self.partition_count = 0
        """How many partitions the client knows."""
        self._number: int | None = None
        """The number under which the client wants events of the cluster; None: it wants none on this connection."""
        self._sent: tuple[Any, Any] = (None, None)
        """The id of the view and the version of the table that it was sent last."""

    def watch(self, number: int) -> None:
        """Send the client everything again, under this number."""
        self._number, self._sent = number, (None, None)

    def events(self) -> list[bytes]:
        """Return the events that the client has not been sent yet."""
        view, table, number = self._grid.view, self._grid.table, self._number
        if number is None or view is None:
            return []
        found = []
        sent_view, sent_table = self._sent
        if sent_view != view.id:
            found.append(members_event(number, view))
        if table is not None and (sent_table != table.version or sent_view != view.id):
            found.append(partitions_event(number, view, table, self.partition_count))
        self._sent = view.id, table.version if table is not None else None
        return found
