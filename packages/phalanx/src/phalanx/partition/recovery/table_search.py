"""A new master looks for the most recent partition table before it publishes any (docs/protocol/partition-table.md).

Every other member of the view is asked for its table and for the migrations that it knows of; the search ends when
each has answered or has left the view. Until then the master publishes nothing, and nothing is repaired or migrated.
`most_recent_table` combines the answers.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId, Millis
from phalanx.common.view import MembersView
from phalanx.machine.local_context import LocalContext
from phalanx.partition.recovery.most_recent_table import Recovery, recover
from phalanx.wire.messages import FetchedTable, FetchTable, StoredSide


class TableSearch:
    """One search, from a change of master to the table with which the new master continues."""

    def __init__(self, local: LocalContext, own: FetchedTable, view: MembersView) -> None:
        self._search_id = own.search_id
        self._out = local.out
        self._retry_ms = local.config.retry_interval_ms
        self._answers = {local.this: own}
        self.waiting_for: dict[MemberId, None] = dict.fromkeys(view.others(local.this))
        """Members that have not answered yet, oldest first."""
        self._ask_at = 0
        self.asks_newcomers = False
        """Whether another search begins when members join: a cluster that was switched off is coming back."""

    def __repr__(self) -> str:
        return f"TableSearch({self._search_id}, waiting_for={list(self.waiting_for)})"

    def ask(self, now: Millis) -> None:
        """Ask the members that have not answered, if the retry interval is over."""
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
            self._answers[sender] = message

    def on_view(self, view: MembersView) -> None:
        """Drop members that left: do not wait for their answers, and ignore those they gave.

        1. D has committed the move of a partition from S to D, and says so. 2. D leaves before the search is over.
        3. According to D's table no holder of the partition would be left; but S still holds it, and waits for the
        outcome. A member that acted upon a row has that row, so a row that only departed members have can be ignored.
        """
        self.waiting_for = dict.fromkeys(member for member in view.members if member in self.waiting_for)
        self._answers = {member: answer for member, answer in self._answers.items() if member in view}

    def is_over(self) -> bool:
        return not self.waiting_for

    def stored_sides(self) -> dict[MemberId, StoredSide]:
        """Return what the members that have answered have read from their folders, and no cluster has taken up."""
        return {member: answer.stored for member, answer in self._answers.items() if answer.stored is not None}

    def result(self) -> Recovery:
        """Return the table and the outcomes with which the new master continues."""
        return recover(self._answers)
