"""Assignments: balanced within one, nobody twice, as few moves as balance needs; small cases all, larger ones drawn."""

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.common.errors import InvariantViolation
from phalanx.partition.assignment import assign, least_loaded

Row = tuple[str, ...]


def replica_counts(rows: Sequence[Row], members: Sequence[str]) -> Counter[str]:
    return Counter(dict.fromkeys(members, 0)) + Counter(member for row in rows for member in row)


def spread(counts: dict[str, int], members: Sequence[str]) -> int:
    values = [counts.get(member, 0) for member in members]
    return max(values) - min(values)


def check(table: Sequence[Sequence[str | None]], members: Sequence[str], backups: int) -> list[Row]:
    rows = assign(table, members, backups)
    assert len(rows) == len(table)
    for row in rows:
        assert len(row) == len(set(row)) == min(backups + 1, len(members))
        assert set(row) <= set(members)
    assert spread(replica_counts(rows, members), members) <= 1, rows
    assert spread(Counter(row[0] for row in rows), members) <= 1, rows
    return rows


def moves(table: Sequence[Sequence[str | None]], rows: Sequence[Row]) -> int:
    """Replicas that have to be copied somewhere: members in a row that were not in it before."""
    return sum(len(set(row).difference(before)) for before, row in zip(table, rows, strict=True))


def fewest_moves(table: Sequence[Sequence[str | None]], members: Sequence[str], backups: int) -> int:
    """The slow twin: every assignment that is balanced is tried."""
    size = min(backups + 1, len(members))
    sets = list(itertools.combinations(members, size))
    best = 10**9
    for chosen in itertools.product(sets, repeat=len(table)):
        counts = Counter(member for row in chosen for member in row)
        if spread(counts, members) <= 1:
            best = min(best, sum(len(set(row).difference(old)) for row, old in zip(chosen, table, strict=True)))
    return best


@pytest.mark.rows("DL-02")
@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 13, 271])
@pytest.mark.parametrize("members", range(1, 9))
@pytest.mark.parametrize("backups", [0, 1, 2, 6])
def test_a_first_assignment_is_balanced(partitions: int, members: int, backups: int) -> None:
    names = [f"m{number}" for number in range(members)]
    check([()] * partitions, names, backups)


@pytest.mark.rows("DL-02", "DL-01")
@settings(max_examples=300)
@given(st.data())
def test_any_table_becomes_balanced_whoever_is_left(data: st.DataObject) -> None:
    old = [f"m{number}" for number in range(data.draw(st.integers(1, 7)))]
    gone = data.draw(st.integers(0, len(old) - 1))
    members = old[gone:] + [f"n{number}" for number in range(data.draw(st.integers(0, 3)))]
    row = st.lists(st.sampled_from([*old, None]), unique_by=lambda member: member or object(), max_size=4)
    table = data.draw(st.lists(row, max_size=30))
    backups = data.draw(st.integers(0, 6))
    rows = check(table, members, backups)
    assert assign(table, members, backups) == rows, "a function of its arguments alone"
    assert moves(rows, check(rows, members, backups)) == 0, "what is balanced stays as it is"


def test_a_balanced_table_is_not_touched() -> None:
    rows = assign([()] * 271, "ABCDE", 2)
    assert assign(rows, "ABCDE", 2) == rows


@pytest.mark.parametrize("backups", [0, 1])
def test_no_smaller_number_of_moves_reaches_balance_after_a_join_or_a_departure(backups: int) -> None:
    """All small tables that a first assignment gives, with one member more or one fewer, against brute force."""
    for partitions in range(1, 5):
        for count in range(1, 4):
            names = "ABCD"[:count]
            before = assign([()] * partitions, names, backups)
            for after in {names + "X", names[1:], names[:-1], names}:
                if after:
                    rows = check(before, after, backups)
                    assert moves(before, rows) == fewest_moves(before, after, backups), (before, after, rows)


@settings(max_examples=100)
@given(st.data())
def test_no_smaller_number_of_moves_reaches_balance_from_any_small_table(data: st.DataObject) -> None:
    members = "ABC"[: data.draw(st.integers(1, 3))]
    backups = data.draw(st.integers(0, 1))
    row = st.lists(st.sampled_from("ABCX"), unique=True, max_size=backups + 1)
    table = data.draw(st.lists(row, min_size=1, max_size=4))
    rows = check(table, members, backups)
    assert moves(table, rows) == fewest_moves(table, members, backups), (table, members, rows)


def test_the_backups_of_one_member_are_spread_over_all_others() -> None:
    rows = assign([()] * 120, "ABCDE", 1)
    pairs = Counter(rows)
    assert max(pairs.values()) - min(pairs.values()) <= 2
    assert len(pairs) == 20


def test_a_holder_that_is_kept_stays_although_the_table_names_it_twice_or_after_a_gap() -> None:
    assert assign([("A", None, "A", "B")], "AB", 1) in ([("A", "B")], [("B", "A")])


def test_without_members_nobody_holds_anything() -> None:
    assert assign([("A",), ()], "", 1) == [(), ()]
    assert assign([], "AB", 1) == []


def test_a_member_listed_twice_is_a_defect() -> None:
    with pytest.raises(InvariantViolation, match="no member is listed twice"):
        assign([()], "AA", 1)


def test_ties_go_to_the_member_named_first() -> None:
    assert least_loaded("ABC", {"A": 1, "B": 0}) == "B"
    assert assign([()], "BA", 0) == [("B",)]
