"""Migrations as values: what they carry over the wire, and which replicas they fit."""

from collections.abc import Sequence

import msgspec
import pytest

from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId
from phalanx.common.migration import Migration, MigrationKind, apply_migration
from support.plans import clear, copy, move, replicas, shift_down, shift_up, shift_up_down, text

EACH = [
    (move(1, "B", "X"), "ABC-", "AXC-"),
    (copy("X", 3), "ABC-", "ABCX"),
    (shift_up("C", 2, 1), "A-C-", "AC--"),
    (shift_up("C", 2, 1, source="B"), "ABC-", "AC--"),
    (shift_down("A", 0, 3, "X"), "ABC-", "XBCA"),
    (shift_down("C", 2, 3, None), "ABC-", "AB-C"),
    (shift_up_down("A", 0, 3, "C", 2), "ABC-", "CB-A"),
    (shift_up_down("A", 0, 2, "C", 2), "ABC-", "CBA-"),
    (clear("C", 2), "ABC-", "AB--"),
]


@pytest.mark.parametrize(("migration", "before", "after"), EACH)
def test_what_each_kind_does(migration: Migration[str], before: str, after: str) -> None:
    given: Sequence[str | None] = replicas(before)
    assert apply_migration(given, migration) == list(replicas(after))
    assert text(tuple(given)) == before, "the replicas given are not changed"


@pytest.mark.parametrize("migration", [migration for migration, _, _ in EACH])
def test_a_migration_survives_the_wire(migration: Migration[str]) -> None:
    kind = Migration[MemberId]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(migration), type=kind) == migration


@pytest.mark.parametrize("migration", [migration for migration, _, _ in EACH])
def test_who_takes_part_and_where(migration: Migration[str]) -> None:
    assert migration.participants == tuple(end for end in (migration.source, migration.destination) if end)
    assert 0 <= migration.index <= 3


@pytest.mark.parametrize(
    ("migration", "before", "fault"),
    [
        (move(1, "B", "X"), "AC", "B is not at index 1"),
        (move(1, "B", "A"), "AB", "A is new in .* but is among"),
        (move(2, "C", "X"), "AB", "C is not at index 2"),
        (copy("X", 1), "AB", "index 1 .* not free for X"),
        (copy("X", 2), "AB", "index 2 .* not free for X"),
        (copy("A", 1), "A-", "A is new"),
        (shift_up("C", 2, 1), "ABC", "index 1 .* not free for C"),
        (shift_up("C", 2, 1), "A-B", "C is not at index 2"),
        (shift_up("C", 2, 1, source="B"), "A-C", "B is not at index 1"),
        (shift_down("A", 0, 1, "X"), "AB", "index 1 .* not free for A"),
        (shift_down("A", 0, 2, "X"), "A-", "index 2 .* not free for A"),
        (shift_up_down("A", 0, 1, "C", 2), "ABC", "index 1 .* not free for A"),
        (clear("B", 1), "A-", "B is not at index 1"),
    ],
)
def test_a_migration_that_does_not_fit_is_refused_with_what_does_not(
    migration: Migration[str], before: str, fault: str
) -> None:
    with pytest.raises(UsageError, match=fault):
        apply_migration(replicas(before), migration)


@pytest.mark.parametrize("before", ["ABC-", "-BC-", "A-C-", "AB--"])
@pytest.mark.parametrize(
    "migration",
    [
        Migration(MigrationKind.MOVE, "A", 0, 3, "X", -1, 0),
        Migration(MigrationKind.MOVE, "A", 0, -1, "X", -1, 1),
        Migration(MigrationKind.MOVE, None, -1, -1, "X", -1, 0),
        Migration(MigrationKind.MOVE, "A", 0, -1, None, -1, -1),
        Migration(MigrationKind.MOVE, "A", 0, -1, "A", -1, 0),
        Migration(MigrationKind.COPY, "A", 0, -1, "X", -1, 0),
        Migration(MigrationKind.COPY, None, -1, -1, "C", 2, 1),
        Migration(MigrationKind.SHIFT_UP, None, -1, -1, "B", 1, 3),
        Migration(MigrationKind.SHIFT_UP, "A", 0, 3, "B", 1, 0),
        Migration(MigrationKind.SHIFT_UP, None, -1, -1, None, -1, -1),
        Migration(MigrationKind.SHIFT_DOWN, "C", 2, 1, "X", -1, 2),
        Migration(MigrationKind.SHIFT_DOWN, "A", 0, -1, "X", -1, 0),
        Migration(MigrationKind.SHIFT_DOWN, None, -1, -1, None, -1, -1),
        Migration(MigrationKind.SHIFT_UP_DOWN, "C", 2, 3, "A", 0, 2),
        Migration(MigrationKind.SHIFT_UP_DOWN, "A", 0, -1, "C", 2, 0),
        Migration(MigrationKind.CLEAR, "A", 0, 3, None, -1, -1),
        Migration(MigrationKind.CLEAR, "A", 0, -1, "X", -1, 0),
        Migration(MigrationKind.CLEAR, None, -1, -1, None, -1, -1),
        Migration(MigrationKind.CLEAR, "A", -1, -1, None, -1, -1),
    ],
)
def test_a_migration_that_contradicts_its_kind_fits_nowhere(migration: Migration[str], before: str) -> None:
    with pytest.raises(UsageError, match=f"do not fit a {migration.kind}"):
        apply_migration(replicas(before), migration)
