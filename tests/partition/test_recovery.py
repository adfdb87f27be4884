"""What a new master goes on with: the newest row of every partition, and a decision for every migration left open."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.backups import BackupCount
from phalanx.common.map_plan import MapPlan
from phalanx.common.map_settings import MapSettings
from phalanx.common.table import PartitionTable, build_table
from phalanx.partition.recovery.most_recent_table import Recovery, recover
from phalanx.wire import messages as m
from phalanx.wire.table_events import TableSearchEnded
from support.harness import lone_id
from support.masters import Master, follower, rows_of, slots_of, step_of, table_of

STEP = step_of("BC", "DC")


def told(
    table: PartitionTable,
    *,
    active: tuple[tuple[int, int], ...] = (),
    completed: tuple[tuple[int, int, bool], ...] = (),
    rules: tuple[tuple[int, int, str, int], ...] = (),
) -> m.FetchedTable:
    """What a member answers: migrations by partition and base version, rules by partition, epoch, leader and number."""
    return m.FetchedTable(
        1,
        table,
        tuple(m.CompletedMigration(partition, version, STEP, done) for partition, version, done in completed),
        tuple(m.ActiveMigration(partition, version, STEP) for partition, version in active),
        tuple(m.OwnerEpoch(partition, epoch, lone_id(leader), seq) for partition, epoch, leader, seq in rules),
    )


def recovered(**answers: m.FetchedTable) -> Recovery:
    """The new master is the first that is named."""
    return recover({lone_id(name): answer for name, answer in answers.items()})


def result(found: Recovery) -> tuple[list[str], tuple[int, ...]]:
    return rows_of(found.table), found.table.versions


def outcomes(found: Recovery) -> set[tuple[int, int, bool]]:
    return {(each.partition, each.base_version, each.committed) for each in found.completed}


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-11", "DL-12")
def test_of_each_partition_the_newest_row_that_anybody_has_counts() -> None:
    found = recovered(
        A=told(table_of("AB", "BC", "CA", versions=[1, 5, 1])),
        B=told(table_of("BA", "CB", "CA", versions=[3, 2, 1])),
        C=told(table_of("AB", "CB", "DA", versions=[1, 2, 2])),
    )
    assert result(found) == (["BA", "BC", "DA"], (3, 5, 2))
    assert found.table.version == 10
    assert (found.rolled_back, found.adopted) == ((), ())


@pytest.mark.rows("DL-11")
@pytest.mark.parametrize("knows", "ABC")
def test_it_does_not_matter_who_has_the_newest_table(knows: str) -> None:
    newest = table_of("BA", versions=[6])
    answers = {name: told(newest if name == knows else table_of("AB", versions=[5])) for name in "ABC"}
    found = recovered(**answers)
    assert result(found) == (["BA"], (6,))
    assert found.found_at == lone_id(knows)


TABLES = st.lists(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["", "A", "AB", "BA", "B-A"])), min_size=3, max_size=3),
    min_size=1, max_size=4,
)  # fmt: skip


@pytest.mark.rows("DL-11")
@given(TABLES)
def test_nobodys_newest_row_is_older_than_what_is_found(drawn: list[list[tuple[int, str]]]) -> None:
    tables = [
        build_table([slots_of(row) for _, row in rows], [version for version, _ in rows], [version for version, _ in rows])
        for rows in drawn
    ]  # fmt: skip
    found = recover({lone_id(f"m{number}"): told(table) for number, table in enumerate(tables)})
    for partition in range(3):
        newest = max(table.versions[partition] for table in tables)
        rows = [table.slots(partition) for table in tables if table.versions[partition] == newest]
        assert found.table.versions[partition] == newest
        assert found.table.births[partition] == newest
        assert found.table.slots(partition) in rows
    assert found.table.version == sum(found.table.versions)


def test_the_newest_number_of_backups_is_kept_whoever_has_it() -> None:
    deep = MapPlan(3, MapSettings(BackupCount(4)))
    found = recovered(
        A=told(table_of("AB", versions=[9])), B=told(build_table([slots_of("AB")], [4], maps=deep))
    )  # fmt: skip
    assert found.table.maps == deep
    assert (found.table.versions, found.table.version) == ((9,), 12)


# --- migrations ---------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-29", "DL-30")
@pytest.mark.parametrize("open_at", ["B", "D", "BD"])
def test_what_nobody_has_committed_is_rolled_back_on_both_sides(open_at: str) -> None:
    table = table_of("BC", "CB", versions=[4, 7])
    found = recovered(**{name: told(table, active=((0, 4),) * (name in open_at)) for name in "ABCD"})
    assert result(found) == (["BC", "CB"], (6, 7)), "by two, as any that fails"
    assert outcomes(found) == {(0, 4, False)}
    assert [state.partition for state in found.rolled_back] == [0]


@pytest.mark.rows("DL-29", "DL-31")
def test_what_the_destination_has_committed_is_committed_for_all() -> None:
    table = table_of("BC", "CB", versions=[4, 7])
    found = recovered(
        A=told(table),
        B=told(table, active=((0, 4),)),
        C=told(table),
        D=told(table_of("DC", "CB", versions=[5, 7]), completed=((0, 4, True),)),
    )
    assert result(found) == (["DC", "CB"], (5, 7))
    assert outcomes(found) == {(0, 4, True)}
    assert found.rolled_back == ()


@pytest.mark.rows("DL-31")
def test_the_source_is_told_that_its_destination_has_committed_although_no_list_says_so() -> None:
    """Only the destination's own row does: its answer to the old master was lost with it."""
    table = table_of("BC", versions=[4])
    found = recovered(A=told(table), B=told(table, active=((0, 4),)), D=told(table_of("DC", versions=[5])))
    assert (result(found), outcomes(found)) == ((["DC"], (5,)), {(0, 4, True)})


@pytest.mark.rows("DL-29")
def test_all_outcomes_that_anybody_remembers_are_collected() -> None:
    table = table_of("BC", "CB", versions=[4, 7])
    found = recovered(
        A=told(table, completed=((0, 2, True),)),
        B=told(table, completed=((0, 2, True), (1, 3, False))),
        C=told(table, completed=((1, 5, False),)),
    )
    assert outcomes(found) == {(0, 2, True), (1, 3, False), (1, 5, False)}


@pytest.mark.rows("DL-30")
def test_a_migration_that_is_over_is_not_rolled_back_again() -> None:
    """B has not heard yet how the one of version 4 ended; the table has moved on since."""
    found = recovered(A=told(table_of("BC", versions=[6])), B=told(table_of("BC", versions=[4]), active=((0, 4),)))
    assert result(found) == (["BC"], (6,))
    assert found.rolled_back == ()


# --- rules that no table knows ------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-32", "DL-16")
def test_who_follows_a_rule_newer_than_any_table_is_a_replica_and_who_heard_most_the_owner() -> None:
    """D committed, ruled with C and E as its backups, and died; B, that the table names, has missed what D confirmed."""
    old = table_of("BCE", versions=[4])
    found = recovered(
        A=told(old),
        B=told(old, active=((0, 4),)),
        C=told(old, rules=((0, 5, "D", 8),)),
        E=told(old, rules=((0, 5, "D", 9),)),
    )
    assert result(found) == (["EC"], (7,)), "behind what D had, and what its master may have made of it since"
    assert found.adopted == (0,)


@pytest.mark.rows("DL-32")
def test_of_several_rules_the_newest_counts_and_none_that_a_table_knows() -> None:
    found = recovered(
        A=told(table_of("BC", "CB", versions=[4, 9])),
        B=told(table_of("BC", "CB", versions=[4, 9]), rules=((0, 5, "D", 30), (1, 9, "C", 3))),
        C=told(table_of("BC", "CB", versions=[4, 9]), rules=((0, 7, "E", 2),)),
    )
    assert result(found) == (["C", "CB"], (9, 9))
    assert found.adopted == (0,)


# --- the search -----------------------------------------------------------------------------------------------------------


def searching() -> Master:
    """B has been the master; A is it now, and asks C and D."""
    a = Master("ACD", "BC", versions=[4], silent="ACD")
    assert a.coordinator.searching_for == [lone_id("C"), lone_id("D")]
    return a


@pytest.mark.rows("DL-12", "DL-29", "DL-30")
def test_the_new_master_tells_all_what_it_has_rolled_back() -> None:
    a = searching()
    a.hear("C", told(table_of("CD", versions=[4]), active=((0, 4),)))
    a.hear("D", told(table_of("CD", versions=[4]), active=((0, 4),)))
    (ended,) = a.events_of(TableSearchEnded)
    assert (ended.table_version, ended.rolled_back) == (6, (0,))
    update = a.update(m.CompletedMigration(0, 4, STEP, False))
    assert a.published() == [("C", update), ("D", update)]
    assert (a.rows, a.table.versions) == (["CD"], (6,))


@pytest.mark.rows("DL-12")
def test_answers_to_another_search_or_of_others_do_not_count() -> None:
    a = searching()
    a.hear("C", m.FetchedTable(2, table_of("CD", versions=[9])))
    a.hear("E", m.FetchedTable(1, table_of("CD", versions=[9])))
    assert a.coordinator.searching_for == [lone_id("C"), lone_id("D")]
    for name in "CD":
        a.hear(name, m.FetchedTable(1, table_of("DC", versions=[4])))
    assert (a.rows, a.table.versions) == (["DC"], (4,))


@pytest.mark.rows("DL-12", "DL-13")
def test_those_that_have_not_answered_are_asked_again() -> None:
    a = searching()
    a.hear("C", told(table_of("CD", versions=[4])))
    a.forget_sent()
    a.advance(3_000)
    assert {to for to, _ in a.sent} == {"D"}
    assert len(a.sent_to("D", m.FetchTable)) >= 3


@pytest.mark.rows("DL-13", "DL-16")
def test_what_one_that_has_left_answered_does_not_count() -> None:
    """It was told to commit, and nobody else was: whoever waits for the outcome holds the partition still."""
    a = searching()
    a.hear("D", told(table_of("DC", versions=[5]), completed=((0, 4, True),)))
    a.view("AC")
    a.hear("C", told(table_of("CD", versions=[4]), active=((0, 4),)))
    assert (a.rows, a.table.versions) == (["C"], (7,))
    assert a.outcomes() == [(0, 4, False)]


@pytest.mark.rows("DL-10", "DL-11")
def test_who_committed_ahead_of_a_table_keeps_its_row_when_an_older_table_comes() -> None:
    a, d = lone_id("A"), follower("D", "A", partition_count=2)
    d.on_table_update(a, m.TableUpdate(table_of("BC", "CB", versions=[4, 7])), 0)
    d.commit(m.MigrationCommit(0, 4, STEP, m.RowChange(0, 5, 0, slots_of("DC")), 1, 7))
    d.on_table_update(a, m.TableUpdate(table_of("BC", "EB", versions=[4, 9])), 0)
    assert (rows_of(d.table), d.table.versions) == (["DC", "EB"], (5, 9))
    assert (d.installed_version, d.ahead) == (13, frozenset({0}))
    d.on_table_update(a, m.TableUpdate(table_of("DC", "EB", versions=[5, 9])), 0)
    assert (rows_of(d.table), d.installed_version, d.ahead) == (["DC", "EB"], 14, frozenset())
