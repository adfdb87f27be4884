"""Tables as values, and what departures do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, Slots, build_table, unassigned_table
from phalanx.partition.recovery.repair import repair
from support.harness import lone_id


def ids(names: str) -> tuple[MemberId, ...]:
    return tuple(lone_id(name) for name in names)


def table_of(*rows: str, versions: list[int] | None = None) -> PartitionTable:
    return build_table([ids(row) for row in rows], versions or [1] * len(rows))


def rows_of(table: PartitionTable) -> list[str]:
    return ["".join(member[0] for member in table.replicas(p)) for p in range(table.partition_count)]


def test_a_table_tells_who_holds_what() -> None:
    table = table_of("AB", "", "BCA", versions=[3, 0, 5])
    assert table.version == 8
    assert table.partition_count == 3
    assert table.owner(0) == lone_id("A")
    assert table.owner(1) is None
    assert table.owners() == [lone_id("A"), None, lone_id("B")]
    assert table.loads() == {lone_id("A"): 2, lone_id("B"): 2, lone_id("C"): 1}
    assert unassigned_table(3).version == 0
    assert unassigned_table(3).owners() == [None] * 3


@pytest.mark.rows("DL-03", "DL-06", "DL-20", "DL-22")
def test_every_change_of_a_partition_raises_its_version_and_the_tables() -> None:
    table = table_of("AB", "BC")
    after = table.with_changes({1: ids("B")})
    assert (after.versions, after.version) == ((1, 2), 3)
    failed = after.with_changes({0: ids("AB")}, increment=2)
    assert (failed.versions, failed.version, rows_of(failed)) == ((3, 2), 5, ["AB", "B"])
    lost = failed.with_changes({0: ids("C")}, lost=[0])
    assert lost.births == (4, 0)
    assert lost.with_changes({0: ids("CB")}).births == (4, 0)


def slots_of(row: str) -> Slots:
    """`A-B`: A owns, the first backup is missing, B is the second."""
    return tuple(None if name == "-" else lone_id(name) for name in row)


@pytest.mark.rows("DL-05", "DL-08", "DL-09")
def test_the_hottest_survivor_becomes_the_owner_and_other_places_stay_empty() -> None:
    result = repair(table_of("ABC", "BCA", "CAB", "BA", "A", "BC"), ids("AC"))
    repaired = {0: "A-C", 1: "C-A", 2: "CA-", 3: "A-", 5: "C-"}
    assert result.changes == {partition: slots_of(row) for partition, row in repaired.items()}
    assert (result.promoted, result.lost) == ([1, 3, 5], [])


@pytest.mark.rows("DL-05")
def test_a_partition_without_a_survivor_is_lost() -> None:
    result = repair(table_of("B", "AB"), ids("AC"))
    assert result.changes == {0: (), 1: slots_of("A-")}
    assert result.lost == [0]


def test_a_table_whose_members_are_all_there_needs_nothing() -> None:
    result = repair(table_of("AB", "BC"), ids("ABCD"))
    assert result == ({}, [], [], [])


@pytest.mark.rows("DL-19")
def test_the_row_of_an_undecided_migration_waits_for_its_destination() -> None:
    result = repair(table_of("AB", "BC"), ids("A"), undecided=[1])
    assert result.changes == {0: slots_of("A-")}


ROWS = st.permutations("ABCDE").flatmap(
    lambda row: st.tuples(st.integers(0, 5), st.sets(st.integers(1, 4))).map(
        lambda drawn: "".join("-" if i in drawn[1] else name for i, name in enumerate(row[: drawn[0]]))
    )
)


@given(st.lists(ROWS, max_size=8), st.sets(st.sampled_from("ABCDE")))
def test_a_repair_keeps_every_living_replica_at_its_index_but_for_the_owner(rows: list[str], alive: set[str]) -> None:
    result = repair(build_table([slots_of(row) for row in rows], [1] * len(rows)), ids("".join(alive)))
    for partition, row in enumerate(rows):
        names = set(row) - {"-"}
        assert (partition in result.changes) == bool(names - alive)
        if partition not in result.changes:
            continue
        after = ["-" if member is None else member[0] for member in result.changes[partition]]
        assert set(after) - {"-"} == names & alive
        assert not after or after[0] in alive
        moved = [name for index, name in enumerate(after) if name != "-" and row.index(name) != index]
        assert moved == (after[:1] if partition in result.promoted else [])
        assert (partition in result.lost) == (not names & alive)
