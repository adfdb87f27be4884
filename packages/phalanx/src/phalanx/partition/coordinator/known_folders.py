"""Which members have folders, also those that have left the view just now: what only these have is not lost.

Each member follows the views, because the next master must know it of members that left before it led.
"""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Slots, holders_of
from phalanx.common.versions import DORMANT_FROM
from phalanx.common.view import MembersView


class KnownFolders:
    """Who has a folder, of the members that are in the view and those that the table names."""

    def __init__(self, own: bool) -> None:
        """`own`: whether this member has one. It is taken for the answer of members of which no view has told it."""
        self._own = own
        self._known: dict[MemberId, bool | None] = {}
        """None: it is unknown, because the member joined when the cluster spoke a version whose views do not tell it."""

    def __repr__(self) -> str:
        return f"KnownFolders({[member for member, has in self._known.items() if has]})"

    def follow(self, before: MembersView | None, view: MembersView, table: PartitionTable) -> None:
        """Take a view. Members that left stay known as long as the table can name them."""
        named = {*view.members, *table.members, *holders_of(table.dormant.values())}
        named.update(before.members if before is not None else ())
        self._known = {member: has for member, has in self._known.items() if member in named}
        stores = dict(view.stores)
        for member in view.members:
            if member in stores or view.speaks(DORMANT_FROM):
                self._known[member] = member in stores
            else:
                self._known.setdefault(member, None)  # an older master names no folders: its members tell theirs later

    def has_any(self, slots: Slots, confirming: int) -> bool:
        """Return whether one of those that held a partition, and confirmed its writes, has it in a folder.

        `confirming`: the index of the last replica that confirms every write.
        """
        holders = [member for member in slots[: confirming + 1] if member is not None]
        has = [self._known.get(member) for member in holders]
        return any(self._own if each is None else each for each in has)
