"""Assignments: balanced within one, nobody twice, as few moves as balance needs; small cases all, larger ones drawn."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.planning import count_moves, find_fewest_moves
from phalanx.common.errors import InvariantViolation
from phalanx.partition.assignment import Candidate, assign

Row = tuple[str, ...]
NOBODY: list[tuple[Any, ...]] = [()]
"""The rows of a table in which no partition has a replica; members may be any values."""


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


@given(st.data())
def test_no_smaller_number_of_moves_reaches_balance_from_any_small_table(data: st.DataObject) -> None:
    members = "ABC"[: data.draw(st.integers(1, 3))]
    backups = data.draw(st.integers(0, 1))
    row = st.lists(st.sampled_from("ABCX"), unique=True, max_size=backups + 1)
    table = data.draw(st.lists(row, min_size=1, max_size=4))
    rows = check(table, members, backups)
    assert moves(table, rows) == fewest_moves(table, members, backups), (table, members, rows)


@pytest.mark.rows("DL-02")
@given(st.data())
def test_with_two_backups_too_no_smaller_number_of_moves_reaches_balance(data: st.DataObject) -> None:
    members = "ABCD"
    row = st.lists(st.sampled_from(["A", "B", "C", "D", "X", None]), unique_by=lambda m: m or object(), max_size=3)
    table = data.draw(st.lists(row, min_size=1, max_size=4))
    backups = data.draw(st.integers(0, 2))
    rows = check(table, members, backups)
    assert moves(table, rows) == count_moves(table, rows) == fewest_moves(table, members, backups), (table, rows)
    assert count_moves(table, rows) >= find_fewest_moves(table, members, backups)


@pytest.mark.rows("DL-02")
@pytest.mark.parametrize(
    ("table", "members", "backups"),
    [([["B", "C"], []], "ABC", 1), ([[], ["C", "B"]], "ABC", 1), ([[], ["D", "C"]], "ABCD", 2)],
)
def test_an_empty_row_is_filled_without_moving_what_others_hold(
    table: list[list[str]], members: str, backups: int
) -> None:
    rows = check(table, members, backups)
    held = sum(len(row) for row in table)
    assert moves(table, rows) == fewest_moves(table, members, backups) == sum(len(row) for row in rows) - held


@pytest.mark.rows("DL-02")
@pytest.mark.parametrize(("partitions", "count"), [(271, 10), (271, 3), (1_000, 37)])
@pytest.mark.parametrize("backups", [0, 1, 2, 6])
def test_the_moves_after_a_change_are_the_fewest_in_theory(partitions: int, count: int, backups: int) -> None:
    names = [f"m{number}" for number in range(count)]
    before = assign([()] * partitions, names, backups)
    joined = [f"n{number}" for number in range(10)]
    for after in (names, [*names, "n0"], names[1:], names + joined, joined + names[2:]):
        rows = check(before, after, backups)
        assert count_moves(before, rows) == find_fewest_moves(before, after, backups), after


def test_who_stays_keeps_the_index_and_who_comes_new_takes_what_is_open() -> None:
    names = [f"m{number}" for number in range(10)]
    before = assign([()] * 271, names, 2)
    rows = check(before, [*names, "new"], 2)
    for old, row in zip(before, rows, strict=True):
        gave_way = old[0] if row[0] == "new" else "new"
        assert all(now in (was, "new", gave_way) for was, now in zip(old, row, strict=True)), (old, row)
    assert sum(row[0] == "new" for row in rows) in (24, 25), "owners too, without an exchange"


def test_a_newcomer_becomes_the_owner_of_a_partition_that_lacks_a_backup() -> None:
    """(A, None) -> (X, A) is one copy, and nobody exchanges anything."""
    assert sorted(assign([("A", None), ("A", None)], "AX", 1)) == [("A", "X"), ("X", "A")]


def test_where_nothing_moves_owners_are_levelled_by_exchanges_with_backups() -> None:
    table = [("A", "B")] * 3 + [("B", "C")] * 3 + [("A", "C")] * 3
    rows = check(table, "ABC", 1)
    assert [set(row) for row in rows] == [set(row) for row in table]
    assert sum(row != old for row, old in zip(rows, table, strict=True)) == 3


def test_a_hole_between_replicas_is_filled_where_it_is() -> None:
    assert assign([("B", None, "C")], "ABC", 2) == [("B", "A", "C")]
    assert assign([("B", "gone", "C")], "ABC", 2) == [("B", "A", "C")]


def check_zones(table: Sequence[Sequence[str | None]], members: Sequence[Candidate[str]], backups: int) -> list[Row]:
    rows = assign(table, members, backups)
    zone_of = {c.member: c.zone if any(c.zone for c in members) else c.host for c in members}
    sizes = Counter(zone_of.values())
    for row in rows:
        assert len(row) == len(set(row)) == min(backups + 1, len(members))
        counts = Counter(zone_of[member] for member in row)
        # None holds two more than another with room: as even as can be.
        assert all(counts[a] - counts[b] <= 1 for a in sizes for b in sizes if counts[b] < sizes[b]), (row, members)
    return rows


@pytest.mark.rows("DL-02")
@given(st.data())
def test_replicas_are_kept_apart_and_members_level_within_their_zone(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(["zone", "host"]))
    drawn = data.draw(st.lists(st.sampled_from("XYZ"), min_size=1, max_size=8))
    names = [f"m{number}" for number in range(len(drawn))]
    members = [
        Candidate(name, zone=where) if field == "zone" else Candidate(name, host=where)
        for name, where in zip(names, drawn, strict=True)
    ]
    row = st.lists(st.sampled_from([*names, "gone", None]), unique_by=lambda m: m or object(), max_size=5)
    table = data.draw(st.lists(row, min_size=1, max_size=20))
    rows = check_zones(table, members, data.draw(st.integers(0, 6)))
    counts = replica_counts(rows, names)
    for where in "XYZ":
        if together := [name for name, other in zip(names, drawn, strict=True) if other == where]:
            assert spread(counts, together) <= 1, (counts, members, rows)


def test_zones_of_one_size_are_level_and_a_small_zone_holds_what_it_must() -> None:
    three = [Candidate(f"m{n}", zone="XYZ"[n % 3]) for n in range(9)]
    assert (
        spread(replica_counts(check_zones([()] * 271, three, 1), [c.member for c in three]), [c.member for c in three])
        <= 1
    )
    uneven = [Candidate("A", zone="X"), Candidate("B", zone="Y"), Candidate("C", zone="Y")]
    assert replica_counts(check_zones([()] * 100, uneven, 1), "ABC") == {"A": 100, "B": 50, "C": 50}


def test_hosts_count_only_where_no_member_names_a_zone() -> None:
    members = [Candidate(name, zone=zone, host=host) for name, zone, host in ("AX1", "BX2", "CY1", "DY2")]
    for row in assign(NOBODY * 50, members, 1):
        assert {"AB".find(m) >= 0 for m in row} == {True, False}, "one in zone X, one in zone Y"


@given(st.data())
def test_loads_follow_weights_within_one(data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=8))
    partitions = data.draw(st.integers(1, 60))
    members = [Candidate(n, weight=float(weight)) for n, weight in enumerate(weights)]
    rows = assign(NOBODY * partitions, members, 0)
    rows = assign(rows, members[1:], 0)
    for member in members[1:]:
        share = partitions * member.weight / sum(weights[1:])
        assert abs(sum(row[0] == member.member for row in rows) - share) < 1


def test_a_heavy_member_holds_every_partition_at_most_once() -> None:
    rows = assign(NOBODY * 30, [Candidate("A", weight=100.0), Candidate("B"), Candidate("C")], 1)
    assert replica_counts(rows, "ABC") == {"A": 30, "B": 15, "C": 15}
    assert sum(row[0] == "A" for row in rows) == 15


def test_a_weight_of_nothing_is_a_defect() -> None:
    with pytest.raises(InvariantViolation, match="weights are above zero"):
        assign(NOBODY, [Candidate("A", weight=0.0)], 0)


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
    assert assign([()], "BA", 0) == [("B",)]
