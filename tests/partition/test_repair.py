"""Tables as values, and what departures do to them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import lone_id
from phalanx.common.ids import MemberId
from phalanx.common.table import PartitionTable, build_table, unassigned_table
from phalanx.partition.repair import newest, repair


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


@pytest.mark.rows("DL-05", "DL-06", "DL-09")
def test_survivors_move_up_in_their_order() -> None:
    result = repair(table_of("ABC", "BCA", "CAB", "BA", "A", "BC"), ids("AC"))
    assert rows_of(result.table) == ["AC", "CA", "CA", "A", "A", "C"]
    assert result.table.versions == (2, 2, 2, 2, 1, 2)
    assert (result.changed, result.promoted, result.lost) == ([0, 1, 2, 3, 5], [1, 3, 5], [])


@pytest.mark.rows("DL-05")
def test_a_partition_without_a_survivor_is_lost() -> None:
    result = repair(table_of("B", "AB"), ids("AC"))
    assert rows_of(result.table) == ["", "A"]
    assert result.lost == [0]


def test_a_table_whose_members_are_all_there_is_the_same_object() -> None:
    table = table_of("AB", "BC")
    assert repair(table, ids("ABCD")).table is table


@given(st.lists(st.permutations("ABCDE").flatmap(lambda row: st.integers(0, 5).map(lambda n: "".join(row[:n]))), max_size=8),
       st.sets(st.sampled_from("ABCDE")))  # fmt: skip
def test_a_repair_keeps_every_living_replica_and_no_other(rows: list[str], alive: set[str]) -> None:
    result = repair(table_of(*rows), ids("".join(alive)))
    assert rows_of(result.table) == ["".join(name for name in row if name in alive) for row in rows]
    for partition, row in enumerate(rows):
        changed = any(name not in alive for name in row)
        assert (partition in result.changed) == changed
        assert result.table.versions[partition] == 1 + changed


@pytest.mark.rows("DL-12")
def test_the_newest_table_has_the_greatest_version() -> None:
    tables = [table_of("A", versions=[2]), table_of("B", versions=[7]), table_of("C", versions=[3])]
    assert newest(tables) is tables[1]
