"""The rows of one partition, one after another: what a row says, and which rows can follow from it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from phalanx.common.ids import MemberId, Millis
from phalanx.common.table import Replicas, Slots
from phalanx.common.view import MembersView
from phalanx.wire.table_events import MigrationStarted


class TableStep:
    """One row of a partition, when somebody had it first."""

    __slots__ = ("at", "before", "is_commit", "is_published", "maker", "makers", "replicas", "slots", "version", "view")

    def __init__(
        self, at: Millis, version: int, slots: Slots, maker: MemberId, view: MembersView, before: Replicas, *,
        is_commit: bool,
    ) -> None:  # fmt: skip
        self.at = at
        self.version = version
        self.slots = slots
        self.replicas: Replicas = tuple(member for member in slots if member is not None)
        self.maker = maker
        self.makers = {maker}
        """`maker`, and masters that made the same row without knowing of the first one."""
        self.view = view.members
        """The maker's view then."""
        self.before = before
        """The replicas in the maker's previous row."""
        self.is_commit = is_commit
        """Whether a migration led here: then the new replicas hold what the old ones held."""
        self.is_published = len(view.members) == 1
        """Whether another member has installed it. A row that a master told nobody before it died binds nobody."""


class RowTransition(NamedTuple):
    """A row that can follow from another one, and how."""

    version: int
    slots: Slots
    migrated: bool
    repaired: bool


def row_after(slots: Slots, order: MigrationStarted) -> Slots:
    """Return the row that a migration makes of this one."""
    indexes = (
        order.source_current_index, order.source_new_index, order.destination_current_index, order.destination_new_index,
    )  # fmt: skip
    length = max(len(slots), *(index + 1 for index in indexes))
    row: list[MemberId | None] = [*slots, *[None] * (length - len(slots))]
    if any(row[at] != who for who, at in ((order.source, indexes[0]), (order.destination, indexes[2])) if at >= 0):
        return slots
    for left in (order.source_current_index, order.destination_current_index):
        if left >= 0:
            row[left] = None
    for member, taken in (
        (order.source, order.source_new_index),
        (order.destination, order.destination_new_index),
    ):
        if taken >= 0:
            row[taken] = member
    while row and row[-1] is None:
        row.pop()
    return tuple(row)


def row_without(slots: Slots, view: Collection[MemberId]) -> Slots:
    """Return the row without members that have left; the hottest of the others is the owner."""
    row = [member if member in view else None for member in slots]
    if row and row[0] is None:
        hottest = next((index for index, member in enumerate(row) if member is not None), 0)
        row[0], row[hottest] = row[hottest], row[0]
    while row and row[-1] is None:
        row.pop()
    return tuple(row)
