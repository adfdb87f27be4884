"""What the master does when members come and go: in which order, how much at a time, and what it forgets (DL-58, DL-59)."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.common.ids import NEVER
from phalanx.partition.migrations import LOOK_AHEAD
from phalanx.partition.row_steps import plan_steps
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationsPlanned
from support.harness import lone_id
from support.masters import Master, rows_of, slots_of, step_of, table_of


def kinds_told(a: Master) -> list[str]:
    return [type(each).__name__ for each in a.told]


# --- one by one, or several -----------------------------------------------------------------------------------------------


def finish(a: Master, partition: int, *, accepted: bool = True) -> None:
    a.ready(partition)
    a.answer(partition, accepted=accepted)


@pytest.mark.rows("DL-35")
def test_one_by_one_the_next_migration_begins_when_the_last_is_over() -> None:
    a = Master("ABCDE", "BC", "BC", "BD", targets=["BE", "CB", "EBD"], backup_count=2, max_parallel_migrations=1)
    begun = []
    while a.coordinator.migrations.underway:
        partition = a.the_only_one()
        begun.append(partition)
        finish(a, partition)
        a.advance(20)
    assert sorted(begun) == [0, 1, 2, 2]
    assert a.rows == ["BE", "CB", "EBD"]


@pytest.mark.rows("DL-35")
def test_a_failure_too_makes_room_for_the_next() -> None:
    a = Master("ABCDE", "BC", "BC", targets=["BE", "BD"], max_parallel_migrations=1)
    first = a.the_only_one()
    finish(a, first, accepted=False)
    assert {first, a.the_only_one()} == {0, 1}, "the pair that failed pauses, the other goes on"


def test_several_partitions_migrate_at_once_but_no_member_takes_part_in_too_many() -> None:
    rows = ["BC", "BC", "BC", "CB", "CB"]
    a = Master("ABCDEF", *rows, targets=["BD", "BD", "BE", "CE", "CF"], migrations_per_member=2)
    assert sorted(a.coordinator.migrations.underway) == [0, 1, 3, 4], "B sends two already"
    finish(a, 0)
    a.advance(20)
    assert sorted(a.coordinator.migrations.underway) == [1, 2, 3, 4]


def test_a_destination_takes_no_more_than_its_share_from_all_owners() -> None:
    a = Master("ABCDE", "BA", "CA", "DA", targets=["BE", "CE", "DE"], migrations_per_member=2)
    assert len(a.coordinator.migrations.underway) == 2
    finish(a, min(a.coordinator.migrations.underway))
    assert len(a.coordinator.migrations.underway) == 2


def test_partitions_that_miss_replicas_come_first() -> None:
    a = Master("ABCDE", "BCD", "BC-", "B--", targets=["BCE", "BCE", "BCE"], max_parallel_migrations=1)
    assert list(a.coordinator.migrations.underway) == [2]
    a = Master("ABCDE", "BCD", "BC-", targets=["BCE", "BCE"], max_parallel_migrations=1)
    assert list(a.coordinator.migrations.underway) == [1]


@pytest.mark.rows("DL-82")
def test_partitions_that_miss_replicas_come_before_those_of_other_owners() -> None:
    a = Master("ABCDE", "BC", "B-", "C-", targets=["BD", "BD", "CD"], migrations_per_member=2)
    assert list(a.coordinator.migrations.underway) == [1, 2], "D has room for two"


@pytest.mark.rows("DL-82")
@pytest.mark.parametrize("rows", [["B", "B", "B", "B"], ["B", "C", "B", "C"]], ids=["one owner", "two owners"])
def test_no_partition_gets_its_next_replica_while_one_with_fewer_can_get_it_too(rows: list[str]) -> None:
    a = Master("ABCDE", *rows, targets=[row + "DE" for row in rows], backup_count=2, max_parallel_migrations=1)
    replicas_before = []
    while a.coordinator.migrations.underway:
        partition = a.the_only_one()
        replicas_before.append(held(a.rows[partition]))
        finish(a, partition)
        a.advance(20)
    assert replicas_before == [1] * 4 + [2] * 4
    assert a.rows == [row + "DE" for row in rows]


# --- the order of things --------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-58", "DL-12", "DL-14", "DL-15")
def test_search_repair_plan_and_migrate_in_this_order() -> None:
    """A has just become the master; E has left with the last one, and a replica of the partition with it."""
    a = Master("ABCD", "BE", versions=[4], targets=["BD"])
    steps = [kind for kind in kinds_told(a) if kind.startswith(("Table", "Partitions", "Migration", "Fetch"))]
    assert list(dict.fromkeys(steps)) == [
        "TableSearchStarted", "FetchTable", "TableSearchEnded", "TableInstalled", "TableUpdate", "PartitionsRepaired",
        "TableChanges", "MigrationsPlanned", "MigrationStarted", "MigrationOrder",
    ]  # fmt: skip
    assert [to for to, message in a.sent if isinstance(message, m.TableUpdate)] == ["B", "C", "D"]
    assert a.order(0).migration == step_of("B-", "BD")
    assert a.order(0).base_version == 5


@pytest.mark.rows("DL-58")
def test_a_departure_is_repaired_before_anything_is_planned() -> None:
    a = Master("ABCDE", "BE", versions=[4])
    a.forget_sent()
    a.targets = ["BD"]
    a.view("ABCD")
    assert kinds_told(a) == [
        "TableInstalled", "PartitionsRepaired", *["TableChanges"] * 3, "MigrationsPlanned", "MigrationStarted",
        "MigrationOrder",
    ]  # fmt: skip
    assert (a.order(0).base_version, a.order(0).migration) == (5, step_of("B-", "BD"))


def test_the_end_of_a_hold_lets_the_table_be_repaired_whoever_finds_it() -> None:
    """1. C is gone, and may still own by its lease: the table stays. 2. That is over, and first found when B reports what it
    keeps. 3. The master takes C for repaired: its partition would have no owner until somebody else comes or goes."""
    a = Master("ABC", "CB", "AB")
    a.coordinator._hold.until = lambda: NEVER
    a.view("AB")
    assert a.rows == ["CB", "AB"]
    a.coordinator._hold.until = lambda: a.now
    a.hear("B", m.KeptReport(0, 0, ()))
    a.advance(1_000)
    assert a.rows == ["B", "AB"]


@pytest.mark.rows("DL-13", "DL-14", "DL-15", "DL-58")
def test_until_all_have_answered_nothing_is_published_repaired_or_ordered() -> None:
    a = Master("ABCDE", "BCF", versions=[4], targets=["BCD"], silent="DE")
    a.view("ABCDE", leaving="C")
    a.advance(30_000)
    a.hear("B", m.MigrationReady(0, 4, lone_id("D"), True, 1, 7))
    assert {type(message) for _, message in a.sent} == {m.FetchTable}
    assert (a.table.version, a.coordinator.decides) == (0, False)
    a.hear("D", m.FetchedTable(1, table_of("BDF", versions=[6])))
    assert (a.table.version, a.coordinator.searching_for) == (0, [lone_id("E")])
    a.forget_sent()
    a.view("ABCD", leaving="C")
    assert [rows_of(message.table) for message in a.sent_to("B", m.TableUpdate)] == [["BDF"]], "E has left, D knew more"
    assert a.rows == ["BD"]
    assert not a.sent_to("D", m.FetchTable)


@pytest.mark.rows("DL-58", "DL-60")
def test_a_cycle_of_the_target_is_taken_out_before_anything_is_ordered() -> None:
    a = Master("ABCDE", "BCD", "BCD", targets=["DBC", "BCE"])
    assert [order.partition for _, order in a.orders()] == [1]
    finish(a, 1)
    a.advance(20)
    assert a.rows == ["BCD", "BCE"]
    assert a.coordinator.migrations.is_idle


# --- stateless --------------------------------------------------------------------------------------------------------------


def reasons(a: Master) -> list[str]:
    return [event.reason for event in a.events_of(MigrationsPlanned)]


@pytest.mark.rows("DL-59")
def test_a_join_cancels_what_was_planned_and_plans_anew() -> None:
    a = Master("ABCDE", "BCD", targets=["BED"], max_parallel_migrations=1)
    a.ready(0)
    a.targets = ["BDF"]
    a.view("ABCDEF")
    a.acknowledge("F")
    assert reasons(a)[-1] == "a member has joined"
    a.answer(0, accepted=True)
    while a.coordinator.migrations.underway or not a.coordinator.migrations.is_idle:
        a.advance(20)
        finish(a, 0)
    assert a.rows == ["BDF"]


@pytest.mark.rows("DL-59")
def test_a_departure_cancels_what_was_planned_and_plans_anew() -> None:
    rows = ["BC", "BC", "BC"]
    a = Master("ABCDE", *rows, targets=["BE", "BE", "BE"], max_parallel_migrations=1)
    assert len(a.orders()) == 1
    a.targets = ["BD", "BC", "BC"]
    a.view("ABCD")
    assert reasons(a)[-1] == "members left"
    assert a.rows == rows
    assert {str(order.migration.destination) for _, order in a.orders()[1:]} == {lone_id("D")}
    finish(a, 0)
    a.advance(1_000)
    assert a.rows == ["BD", "BC", "BC"]
    assert len(a.orders()) >= 2
    assert {order.partition for _, order in a.orders()[1:]} == {0}


@pytest.mark.rows("DL-59")
def test_a_failed_migration_cancels_what_was_planned_and_plans_anew() -> None:
    a = Master("ABCDE", "BC", "CB", targets=["BE", "CE"], max_parallel_migrations=1)
    a.targets = ["BD", "CB"]
    a.ready(0)
    a.answer(0, accepted=False)
    assert reasons(a) == ["the master changed", "a migration failed"]
    assert [str(order.migration.destination) for _, order in a.orders()] == [lone_id("E"), lone_id("D")]


@pytest.mark.rows("DL-59")
def test_after_a_failure_a_pair_pauses_ever_longer_and_a_success_ends_that() -> None:
    a = Master("ABCD", "BC", targets=["BD"])
    waited = []
    for _ in range(9):
        finish(a, 0, accepted=False)
        ordered, since = len(a.orders()), a.now
        while len(a.orders()) == ordered:
            a.advance(100)
        waited.append(a.now - since)
    assert waited[:4] == [200, 400, 800, 1_600]
    assert max(waited) == waited[-1] == 12_800
    finish(a, 0)
    a.advance(20)
    a.want("BC")
    finish(a, 0)
    assert a.rows == ["BC"]
    a.advance(20)
    a.want("BD")
    finish(a, 0, accepted=False)
    ordered = len(a.orders())
    a.advance(200)
    assert len(a.orders()) == ordered + 1


@pytest.mark.rows("DL-59")
def test_a_pair_that_pauses_keeps_nothing_waiting_that_goes_elsewhere() -> None:
    """D is a member, and B cannot reach it: what B has for E is behind more for D than is looked at in one go."""
    many = 2 * LOOK_AHEAD
    a = Master("ABCDE", *["BC"] * (many + 1), targets=[*["BD"] * many, "BE"], migrations_per_member=1)
    first = a.the_only_one()
    assert first < many
    finish(a, first, accepted=False)
    assert a.the_only_one() == many
    finish(a, many)
    assert not a.coordinator.migrations.underway, "the pair pauses still"
    a.advance(300)
    assert a.the_only_one() < many


@pytest.mark.rows("DL-59")
def test_the_next_step_is_worked_out_from_the_row_of_that_moment() -> None:
    """MOVE 2 from C to D, then MOVE 1 from B to C; between them the target becomes another one."""
    a = Master("ABCDE", "ABC", targets=["ACD"])
    assert a.order(0).migration.destination == lone_id("D")
    a.ready(0)
    a.targets = ["ABD"]
    a.view("ABCDEF")
    a.answer(0, accepted=True)
    a.advance(20)
    assert a.rows == ["ABD"]
    assert len(a.orders()) == 1
    assert a.coordinator.migrations.is_idle


# --- the replicas on the way ------------------------------------------------------------------------------------------------

MEMBERS = "BCDEFG"


@st.composite
def whole_rows(draw: st.DrawFn) -> tuple[list[str], list[str], int]:
    """Rows that may miss backups, targets that miss none, and a seed for what happens in between."""
    count = draw(st.integers(1, 4))
    rows, targets = [], []
    for _ in range(count):
        members = draw(st.permutations(MEMBERS))
        length = draw(st.integers(1, 4))
        holes = draw(st.sets(st.integers(1, 3)))
        rows.append("".join("-" if i in holes else name for i, name in enumerate(members[:length])).rstrip("-"))
        targets.append("".join(draw(st.permutations(MEMBERS))[:length]))
    return rows, targets, draw(st.integers(0, 999))


def held(row: str) -> int:
    return len(row.replace("-", ""))


@pytest.mark.rows("DL-55", "DL-78", "DL-44")
@given(whole_rows())
def test_no_partition_has_fewer_replicas_on_the_way_to_its_target(drawn: tuple[list[str], list[str], int]) -> None:
    """Whatever fails and is repeated, in whatever order the answers come."""
    rows, targets, seed = drawn
    chance = random.Random(seed)
    a = Master("A" + MEMBERS, *rows, targets=targets, backup_count=6)
    for _ in range(400):
        if a.coordinator.migrations.is_idle:
            a.advance(13_000)  # A member that could not be reached is tried again, if another took its place.
        if a.coordinator.migrations.is_idle:
            break
        if underway := sorted(a.coordinator.migrations.underway):
            finish(a, chance.choice(underway), accepted=chance.random() < 0.8)
        a.advance(200)
        for row, before, target in zip(a.rows, rows, targets, strict=True):
            assert held(row) >= min(held(before), held(target)), a.rows
    assert a.coordinator.migrations.is_idle
    for row, target in zip(a.rows, targets, strict=True):
        assert row == target or not plan_steps(slots_of(row), slots_of(target)), "what is left is a cycle"
