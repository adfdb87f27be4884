"""A new master looks for the most recent partition table before it publishes any (reference 004).

The old master may have told only some members of its last change before it died. So every other member of the view is
asked for its table; the search ends when each has answered or has left the view. Until then the master publishes
nothing, and nothing is repaired or copied.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.partition.repair import newest
from phalanx.wire.effects import Outbox
from phalanx.wire.messages import FetchedTable, FetchTable


class TableSearch:
    """One search, from a change of master to the table that the new master goes on with."""

    def __init__(
        self, search_id: int, this: MemberId, own: PartitionTable, view: MembersView, retry_ms: Millis, outbox: Outbox
    ) -> None:
        self._search_id = search_id
        self._out = outbox
        self._retry_ms = retry_ms
        self._tables = {this: own}
        self.waiting_for: dict[MemberId, None] = dict.fromkeys(view.others(this))
        """In the order of age."""
        self._ask_at = 0

    def __repr__(self) -> str:
        return f"TableSearch({self._search_id}, waiting_for={list(self.waiting_for)})"

    def ask(self, now: Millis) -> None:
        """Ask those that have not answered, if it is time."""
        if now < self._ask_at:
            return
        self._ask_at = now + self._retry_ms
        for member in self.waiting_for:
            self._out.send(member, FetchTable(self._search_id))

    def next_deadline(self) -> Millis:
        return self._ask_at

    def on_answer(self, sender: MemberId, message: FetchedTable) -> None:
        if message.search_id == self._search_id and sender in self.waiting_for:
            del self.waiting_for[sender]
            self._tables[sender] = message.table

    def on_view(self, view: MembersView) -> None:
        """Members that left will not answer."""
        self.waiting_for = dict.fromkeys(member for member in view.members if member in self.waiting_for)

    def is_over(self) -> bool:
        return not self.waiting_for

    def result(self) -> tuple[MemberId, PartitionTable]:
        """The most recent table, and who had it."""
        best = newest(self._tables.values())
        return next(member for member, table in self._tables.items() if table is best), best
