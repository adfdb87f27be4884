"""One step in the replicas of a partition, as a value: who goes from which index to which.

A migration changes hands at one replica index; the *source* holds it before and the *destination* after. It is atomic:
all of it is committed or nothing. Backups are numbered from 1, the owner is 0; an index is hotter the smaller it is.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import msgspec

from phalanx.common.errors import UsageError

M = TypeVar("M", bound=Hashable)


class MigrationKind(enum.StrEnum):
    """What happens to the two ends. In this order: source, destination; `i` is the index that changes hands."""

    MOVE = "move"
    """i to nowhere, nowhere to i: a new member takes the place of one that leaves."""
    COPY = "copy"
    """A new member gets a replica at index i, which was empty. Nobody loses one."""
    SHIFT_UP = "shift-up"
    """The replica at index j moves to the hotter index i (i < j). Index i was empty, or its member loses its replica."""
    SHIFT_DOWN = "shift-down"
    """The replica at index i moves to the colder index j (i < j), which was empty. A new member takes index i; or nobody does,
    where the planned replicas have a hole before j."""
    SHIFT_UP_DOWN = "shift-up-down"
    """The replica at i moves to j and the one at k moves to i (i < j, i < k). Index j was empty, or j = k: the two change places."""
    CLEAR = "clear"
    """The member at index i loses its replica, and nobody gets it: the plan has fewer replicas."""


class Migration(msgspec.Struct, Generic[M], frozen=True, array_like=True):
    """One migration of one partition; None and -1 if there is none.

    The index before is -1 for a member that holds no replica of the partition yet, the index after is -1 for one that
    keeps none.
    """

    kind: MigrationKind
    source: M | None
    source_current_index: int
    source_new_index: int
    destination: M | None
    destination_current_index: int
    destination_new_index: int

    @property
    def index(self) -> int:
        """The replica index that changes hands."""
        return self.destination_new_index if self.destination is not None else self.source_current_index

    @property
    def participants(self) -> tuple[M, ...]:
        """The members whose replica changes, source first."""
        return tuple(member for member in (self.source, self.destination) if member is not None)


def apply_migration(replicas: Sequence[M | None], migration: Migration[M]) -> list[M | None]:
    """Return the replicas of the partition after the migration: as many as before, None at an empty index.

    Raises `UsageError` (a ValueError) that says what does not fit: a migration that contradicts its kind, or one that
    was planned for other replicas.
    """
    source, destination = migration.source, migration.destination
    if not _follows_its_kind(migration):
        raise UsageError(f"the members and indexes do not fit a {migration.kind}: {migration}")
    result = list(replicas)
    for member, index in (
        (source, migration.source_current_index),
        (destination, migration.destination_current_index),
    ):
        if member is None:
            continue
        if index < 0:
            if member in result:
                raise UsageError(f"{member} is new in {migration}, but is among the replicas {list(replicas)}")
            continue
        if index >= len(result) or result[index] != member:
            raise UsageError(f"{member} is not at index {index} of {list(replicas)}, as {migration} says")
        result[index] = None
    for member, index in ((source, migration.source_new_index), (destination, migration.destination_new_index)):
        if member is None or index < 0:
            continue
        if index >= len(result) or result[index] is not None:
            raise UsageError(f"index {index} of {list(replicas)} is not free for {member}, as {migration} says")
        result[index] = member
    return result


def _follows_its_kind(migration: Migration[M]) -> bool:
    """Return whether source, destination and their indexes fit the kind of the migration."""
    index = migration.index
    leaver, left, colder = migration.source, migration.source_current_index, migration.source_new_index
    comer, came, taken = migration.destination, migration.destination_current_index, migration.destination_new_index
    no_leaver = leaver is None and left == colder == -1
    no_comer = comer is None and came == taken == -1
    from_here = leaver is not None and left == index >= 0
    to_here = comer is not None and taken == index >= 0
    if leaver is not None and leaver == comer:
        return False
    match migration.kind:
        case MigrationKind.MOVE:
            return from_here and colder == -1 and to_here and came == -1
        case MigrationKind.COPY:
            return no_leaver and to_here and came == -1
        case MigrationKind.SHIFT_UP:
            return (no_leaver or (from_here and colder == -1)) and to_here and came > index
        case MigrationKind.SHIFT_DOWN:
            return from_here and colder > index and (no_comer or (to_here and came == -1))
        case MigrationKind.SHIFT_UP_DOWN:
            return from_here and colder > index and to_here and came > index
        case MigrationKind.CLEAR:
            return from_here and colder == -1 and no_comer
