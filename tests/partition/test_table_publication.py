"""Who is told of which table, and for how long the outcomes of migrations are remembered."""

import pytest

from phalanx.partition.installed_table import InstalledTable
from phalanx.wire import messages as m
from support.harness import lone_id
from support.masters import Master, follower, slots_of, step_of, table_of


def finish(a: Master, partition: int, *, accepted: bool = True) -> None:
    a.ready(partition)
    a.answer(partition, accepted=accepted)


def told_next(a: Master) -> list[tuple[int, int, bool]]:
    """The outcomes that the next whole table tells: partition, version, result."""
    a.forget_sent()
    a.advance(60_000)
    tables = a.sent_to("C", m.TableUpdate)
    assert tables, "the table is published now and then"
    return [(each.partition, each.base_version, each.committed) for each in tables[-1].completed]


# --- what the master remembers ------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-25")
def test_an_outcome_is_forgotten_only_when_all_have_acknowledged_a_table_that_tells_it() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"])
    a.acknowledge("BCD")
    finish(a, 0)
    older = a.table.version - 1
    assert a.outcomes() == [(0, 4, True)]
    for name, version in (("B", older + 1), ("C", older), ("D", older + 1)):
        a.hear(name, m.TableAck(version))
        assert told_next(a) == [(0, 4, True)], f"{name} has acknowledged {version}: C has yet to"
    a.hear("C", m.TableAck(older + 1))
    assert told_next(a) == []


@pytest.mark.rows("DL-25")
def test_of_several_outcomes_those_that_all_know_are_forgotten() -> None:
    a = Master("ABCDE", "BC", "CB", versions=[4, 7], targets=["DC", "EB"])
    finish(a, 0)
    first = a.table.version
    finish(a, 1, accepted=False)
    assert a.outcomes() == [(0, 4, True), (1, 7, False)]
    for name in "BCDE":
        a.hear(name, m.TableAck(first))
    assert told_next(a) == [(1, 7, False)]


@pytest.mark.rows("DL-25")
def test_a_member_that_has_left_is_not_waited_for() -> None:
    a = Master("ABCDE", "BC", versions=[4], targets=["DC"])
    finish(a, 0)
    a.acknowledge("BCD")
    assert told_next(a) == [(0, 4, True)]
    a.view("ABCD")
    a.acknowledge("B")
    assert told_next(a) == []


@pytest.mark.rows("DL-24", "DL-25")
def test_one_who_joins_is_told_the_outcomes_that_others_wait_for() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"])
    finish(a, 0)
    a.view("ABCDE")
    a.confirm("E", -1)
    (update,) = a.sent_to("E", m.TableUpdate)
    assert update == a.update(*a.installed_table.completed)
    assert a.outcomes() == [(0, 4, True)]


# --- what the others keep ------------------------------------------------------------------------------------------------

MOVED = m.CompletedMigration(0, 4, step_of("BC", "DC"), True)
FAILED = m.CompletedMigration(1, 7, step_of("CB", "EB"), False)


def remembered(member: InstalledTable) -> tuple[m.CompletedMigration, ...]:
    return member.completed


@pytest.mark.rows("DL-26", "DL-24")
def test_a_member_remembers_the_outcomes_of_the_latest_table_and_no_others() -> None:
    a, b = lone_id("A"), follower("B", "A", partition_count=2)
    b.on_table_update(a, m.TableUpdate(table_of("DC", "CB", versions=[5, 7]), (MOVED,)), 0)
    assert remembered(b) == (MOVED,)
    b.on_table_changes(a, m.TableChanges(12, 14, (m.RowChange(1, 9, 0, slots_of("CB")),), (MOVED, FAILED)), 0)
    assert remembered(b) == (MOVED, FAILED)
    b.on_table_changes(a, m.TableChanges(14, 15, (m.RowChange(0, 6, 0, slots_of("DB")),), (FAILED,)), 0)
    assert remembered(b) == (FAILED,)
    b.on_table_update(a, m.TableUpdate(b.table), 0)
    assert remembered(b) == (), "the master has forgotten them: all know"


@pytest.mark.rows("DL-26", "DL-07")
def test_changes_that_a_member_cannot_apply_change_nothing_it_remembers() -> None:
    a, b = lone_id("A"), follower("B", "A", partition_count=2)
    b.on_table_update(a, m.TableUpdate(table_of("DC", "CB", versions=[5, 7]), (MOVED,)), 0)
    before = b.table
    missed = m.TableChanges(14, 15, (m.RowChange(0, 6, 0, slots_of("DB")),), (FAILED,))
    b.on_table_changes(a, missed, 0)
    b.on_table_changes(lone_id("C"), m.TableChanges(12, 15, missed.changes, (FAILED,)), 0)
    assert (b.table, b.completed, b.installed_version) == (before, (MOVED,), 12)


# --- the table ------------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-04")
def test_a_member_that_cannot_apply_changes_gets_the_whole_table() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"])
    finish(a, 0)
    a.forget_sent()
    a.hear("C", m.TableAck(3, is_behind=True))
    assert a.sent == [("C", a.update(*a.installed_table.completed))]


@pytest.mark.rows("DL-04")
def test_the_whole_table_is_published_to_all_at_every_interval() -> None:
    a = Master("ABCD", "BC", publish_interval_ms=5_000)
    a.forget_sent()
    a.advance(4_999)
    assert a.sent == []
    a.advance(1)
    assert a.sent == [(name, a.update()) for name in "BCD"]


@pytest.mark.rows("DL-04")
def test_a_publication_that_a_member_missed_is_repeated_but_not_one_on_its_way() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"], retry_interval_ms=500)
    a.acknowledge("BCD")
    finish(a, 0)
    a.forget_sent()
    a.confirm("C", 4)
    assert a.sent == []
    a.advance(500)
    a.confirm("B", 5)
    a.confirm("C", 4)
    assert a.sent_to("B") == []
    assert a.sent_to("C") == [a.update(*a.installed_table.completed)]


@pytest.mark.rows("DL-04", "DL-20")
def test_a_change_of_owner_is_published_at_once_and_changes_of_backups_together() -> None:
    a = Master("ABCDE", "BC", "CB", "DB", targets=["BE", "CE", "EB"])
    a.forget_sent()
    for partition, owner, destination in ((0, "B", "E"), (1, "C", "E")):
        a.hear(owner, m.MigrationReady(partition, 1, lone_id(destination), True, 1, 7))
        a.answer(partition, accepted=True)
    assert a.published() == []
    a.advance(10)
    rows = tuple(m.RowChange(p, 2, 0, slots_of(a.rows[p])) for p in (0, 1))
    told = m.TableChanges(3, 5, rows, a.installed_table.completed, a.installed.id)
    assert a.published() == [(name, told) for name in "BCDE"]
    a.forget_sent()
    a.hear("D", m.MigrationReady(2, 1, lone_id("E"), True, 1, 7))
    a.answer(2, accepted=True)
    told = m.TableChanges(5, 6, (m.RowChange(2, 2, 0, slots_of("EB")),), a.installed_table.completed, a.installed.id)
    assert a.published() == [(name, told) for name in "BCDE"]
