"""The master's side of one migration: ordered, committed by its destination, and only then in the table (docs/protocol/migrations.md)."""

from collections import Counter

import pytest

from phalanx.common.migration import MigrationKind
from phalanx.partition.migration_progress import Progress
from phalanx.partition.migrations import FIRST_PAUSE_MS
from phalanx.wire import messages as m
from phalanx.wire.table_events import MigrationRolledBack, RebalancingProgress
from support.harness import lone_id
from support.masters import Master, follower, row_of, rows_of, slots_of, step_of, table_of

KINDS = {
    MigrationKind.MOVE: ("BCD", "BCE"),
    MigrationKind.COPY: ("B-D", "BED"),
    MigrationKind.SHIFT_UP: ("B-D", "BD"),
    MigrationKind.SHIFT_DOWN: ("B-D", "EBD"),
    MigrationKind.SHIFT_UP_DOWN: ("BC", "CB"),
}
"""Each kind that takes time, by the row and the target that lead to it."""


@pytest.mark.rows("DL-17", "DL-18", "DL-19", "DL-20")
def test_the_table_changes_only_when_the_destination_has_committed() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"])
    a.forget_sent()
    before = a.table
    a.hear("B", m.MigrationReady(0, 4, lone_id("D"), True, 1, 7))
    ((to, commit),) = a.commits(0)
    assert to == "D"
    assert (commit.base_version, commit.row) == (4, m.RowChange(0, 5, 0, slots_of("DC")))
    assert a.table is before, "D is told a copy; the master's own table, version and list stay"
    assert a.outcomes() == []
    assert a.sent == [("D", commit)]
    a.answer(0, accepted=True)
    assert (a.rows, a.table.versions) == (["DC"], (5,))
    assert a.outcomes() == [(0, 4, True)]
    published = a.published()
    assert [name for name, _ in published] == ["B", "C", "D"]
    for _, message in published:
        assert isinstance(message, m.TableChanges)
        assert message.changes == (commit.row,)
        assert message.completed == a.installed_table.completed


@pytest.mark.rows("DL-17")
def test_the_destination_is_told_to_commit_only_when_it_has_everything() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"])
    a.advance(30_000)
    assert a.commits(0) == []
    assert len(a.orders(0)) > 5, "the order may have been lost"
    for name, version, destination in (("C", 4, "D"), ("B", 3, "D"), ("B", 4, "C"), ("A", 4, "D")):
        a.hear(name, m.MigrationReady(0, version, lone_id(destination), True, 1, 7))
    assert a.commits(0) == []
    a.ready(0)
    assert [to for to, _ in a.commits(0)] == ["D"]


@pytest.mark.rows("DL-19")
def test_a_commit_is_repeated_until_the_destination_answers_or_leaves() -> None:
    a = Master("ABCDE", "BC", versions=[4], targets=["DC"])
    a.ready(0)
    a.advance(10_000)
    told = a.commits(0)
    assert len(told) > 10
    assert {(to, commit) for to, commit in told} == {told[0]}
    # Nobody else decides: not the owner, not another, not one who answers for another version.
    for name, version in (("B", 4), ("C", 4), ("D", 3)):
        a.hear(name, m.MigrationAnswer(0, version, True))
    a.ready(0, done=False)
    assert (a.rows, a.table.versions) == (["BC"], (4,))
    a.view("ACDE")
    assert (a.rows, a.table.versions) == (["BC"], (4,)), "B has left, and its row waits for D"
    a.answer(0, accepted=True)
    assert a.rows == ["DC"]


@pytest.mark.rows("DL-19", "DL-22", "DL-24")
def test_a_destination_that_leaves_ends_the_migration() -> None:
    a = Master("ABCDE", "BC", versions=[4], targets=["DC"])
    a.ready(0)
    a.targets = None
    a.view("ABCE")
    assert (a.rows, a.table.versions) == (["BC"], (6,))
    assert a.outcomes() == [(0, 4, False)]


@pytest.mark.rows("DL-18", "DL-22", "DL-24")
@pytest.mark.parametrize("who", ["the owner", "the destination"])
def test_a_failed_migration_changes_nothing_but_the_version_by_two(who: str) -> None:
    a = Master("ABCD", "BC", "AB", versions=[4, 3], targets=["DC", "AB"])
    a.targets = None
    if who == "the owner":
        a.ready(0, done=False, reason="the connection broke")
    else:
        a.ready(0)
        a.answer(0, accepted=False, reason="the replica is not complete")
    assert (a.rows, a.table.versions, a.table.version) == (["BC", "AB"], (6, 3), 9)
    (over,) = a.events_of(MigrationRolledBack)
    assert (over.partition, over.partition_version) == (0, 4)
    assert a.outcomes() == [(0, 4, False)]
    assert {message.completed for _, message in a.published()[-3:]} == {a.installed_table.completed}


@pytest.mark.rows("DL-22", "DL-23")
def test_a_destination_that_committed_and_left_accepts_the_masters_table_when_it_is_back() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["DC"])
    d = follower("D", "A")
    d.on_table_update(lone_id("A"), m.TableUpdate(a.table), 0)
    a.ready(0)
    ((_, commit),) = a.commits(0)
    assert d.refusal_to_commit(lone_id("A"), commit) is None
    d.commit(commit)
    assert (rows_of(d.table), d.table.version) == (["DC"], 5)
    a.targets = None
    a.view("ABC")
    assert a.table.version == 6
    d.on_table_update(lone_id("A"), m.TableUpdate(a.table), 0)
    assert (rows_of(d.table), d.table.version, d.ahead) == (["BC"], 6, frozenset())


@pytest.mark.rows("DL-23")
def test_changes_alone_bring_a_destination_back_that_committed_what_was_taken_back() -> None:
    d = follower("D", "A")
    d.on_table_update(lone_id("A"), m.TableUpdate(table_of("BC", versions=[4])), 0)
    d.commit(m.MigrationCommit(0, 4, step_of("BC", "DC"), m.RowChange(0, 5, 0, slots_of("DC")), 1, 7))
    assert (rows_of(d.table), d.installed_version) == (["DC"], 4)
    d.on_table_changes(lone_id("A"), m.TableChanges(4, 6, (m.RowChange(0, 6, 0, slots_of("BC")),), ()), 0)
    assert (rows_of(d.table), d.table.version, d.ahead) == (["BC"], 6, frozenset())


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-27")
def test_an_order_names_the_version_that_caused_it() -> None:
    a = Master("ABCD", "BC", "CB", versions=[4, 9], targets=["DC", "DB"])
    assert [(order.partition, order.base_version) for _, order in a.orders()] == [(0, 4), (1, 9)]


@pytest.mark.rows("DL-27")
def test_a_destination_commits_only_what_follows_the_version_that_it_has() -> None:
    a = lone_id("A")
    step = step_of("BC", "DC")

    def refusal(has: int, base: int, row: int, *, sender: str = "A") -> str:
        d = follower("D", "A")
        d.on_table_update(a, m.TableUpdate(table_of("BC", versions=[has])), 0)
        commit = m.MigrationCommit(0, base, step, m.RowChange(0, row, 0, slots_of("DC")), 1, 7)
        return d.refusal_to_commit(lone_id(sender), commit) or ""

    assert refusal(has=4, base=4, row=5) == ""
    assert "has version 3" in refusal(has=3, base=4, row=5)
    assert "has version 5" in refusal(has=5, base=4, row=5)
    assert "has version 6" in refusal(has=6, base=4, row=5)
    assert refusal(has=4, base=4, row=6) != ""
    assert "the master" in refusal(has=4, base=4, row=5, sender="B")


@pytest.mark.rows("DL-27")
def test_a_destination_says_twice_that_it_has_committed() -> None:
    """The master may have missed it the first time."""
    d = follower("D", "A")
    d.on_table_update(lone_id("A"), m.TableUpdate(table_of("BC", versions=[4])), 0)
    commit = m.MigrationCommit(0, 4, step_of("BC", "DC"), m.RowChange(0, 5, 0, slots_of("DC")), 1, 7)
    d.commit(commit)
    assert d.refusal_to_commit(lone_id("A"), commit) is None
    d.commit(commit)
    assert (rows_of(d.table), d.table.version) == (["DC"], 5)


@pytest.mark.rows("DL-27", "DL-15")
def test_no_order_is_given_for_a_row_that_its_owner_has_not_been_told() -> None:
    a = Master("ABCDE", "BCD", versions=[4], targets=["BED"])
    a.ready(0)
    a.targets = ["BEA"]
    a.answer(0, accepted=True)
    assert len(a.orders(0)) == 1, "a backup has moved: that is published a moment later"
    a.view("ABCDEF")
    a.advance(20)
    changes = a.sent_to("B", m.TableChanges)[-1]
    assert changes.changes == (m.RowChange(0, 5, 0, slots_of("BED")),)
    assert a.order(0).base_version == 5
    assert a.told.index(changes) < a.told.index(a.order(0))


# --- all kinds by one procedure -----------------------------------------------------------------------------------------


@pytest.mark.rows("DL-34", "DL-37", "DL-50", "DL-84")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_goes_the_same_way(kind: MigrationKind) -> None:
    """Also where only backups change: the owner is ordered, the destination commits, then the table has the row."""
    current, target = KINDS[kind]
    a = Master("ABCDE", current, versions=[4], targets=[target])
    assert a.last_order(0)[0] == "B"
    step = a.order(0).migration
    assert step.kind is kind
    assert a.rows == [current], "no backup is given away before its successor has the data"
    a.ready(0)
    assert a.rows == [current]
    ((to, commit),) = a.commits(0)
    assert to == row_of([step.destination]) == target[step.destination_new_index]
    assert step.source is None or slots_of(current)[step.source_current_index] == step.source
    assert row_of(commit.row.slots) == target
    a.answer(0, accepted=True)
    assert a.rows == [target]
    assert a.outcomes() == [(0, 4, True)]
    assert a.coordinator.migrations.is_idle


@pytest.mark.rows("DL-36")
def test_a_backup_that_moves_has_three_participants() -> None:
    a = Master("ABCD", "BC", versions=[4], targets=["BD"])
    order = a.order(0)
    assert a.last_order(0)[0] == "B", "the data comes from the owner"
    assert (row_of([order.migration.source]), row_of([order.migration.destination])) == ("C", "D")
    a.ready(0)
    assert [to for to, _ in a.commits(0)] == ["D"]
    a.answer(0, accepted=True)
    a.advance(20)
    assert a.sent_to("C", m.TableChanges)[-1].changes == (m.RowChange(0, 5, 0, slots_of("BD")),)


@pytest.mark.rows("DL-37", "DL-48")
@pytest.mark.parametrize("accepted", [True, False])
def test_a_new_owner_and_its_colder_predecessor_change_places_at_once_or_not_at_all(accepted: bool) -> None:
    a = Master("ABCD", "B-C", versions=[4], targets=["DBC"])
    a.targets = None
    step = a.order(0).migration
    assert (step.kind, step.source_current_index, step.source_new_index) == (MigrationKind.SHIFT_DOWN, 0, 1)
    a.ready(0)
    a.answer(0, accepted=accepted)
    installed = [row_of(message.changes[0].slots) for message in a.sent_to("B", m.TableChanges)]
    assert installed == (["DBC"] if accepted else ["B-C"])
    assert a.rows == installed


@pytest.mark.rows("DL-51", "DL-50")
def test_a_backup_that_becomes_hotter_leaves_its_old_index_empty() -> None:
    a = Master("ABCD", "B-D", versions=[4], targets=["BD"])
    step = a.order(0).migration
    assert (step.destination_current_index, step.destination_new_index) == (2, 1)
    a.ready(0)
    assert [row_of(commit.row.slots) for _, commit in a.commits(0)] == ["BD"]
    a.answer(0, accepted=True)
    assert a.rows == ["BD"]


# --- what departures do -------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-57")
@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_replica_that_fails_breaks_no_ownership(kind: MigrationKind, commits: bool) -> None:
    current, target = KINDS[kind]
    a = Master("ABCDEF", current, versions=[4], targets=[target])
    if commits:
        a.ready(0)
    a.targets = None
    destination = row_of([a.order(0).migration.destination])
    a.view("ABCDEF".replace(destination, ""))
    survivors = "".join("-" if name == destination else name for name in current).rstrip("-")
    assert a.rows == [survivors]
    assert a.table.versions == (6,)
    assert a.outcomes() == [(0, 4, False)]
    assert a.orders()[1:] == []


@pytest.mark.rows("DL-05", "DL-57")
@pytest.mark.parametrize("who", "BC")
def test_a_migration_that_was_only_ordered_ends_when_a_replica_leaves(who: str) -> None:
    """Its row is another one now: the migration was planned for what is no more."""
    a = Master("ABCDE", "BC", versions=[4], targets=["BD"])
    a.targets = None
    a.view("ABCDE".replace(who, ""))
    assert a.rows == ["C" if who == "B" else "B"]
    assert a.table.versions == (6,)
    a.hear("B", m.MigrationReady(0, 4, lone_id("D"), True, 1, 7))
    assert a.commits(0) == []


@pytest.mark.rows("DL-57")
def test_one_who_holds_nothing_of_a_partition_does_not_end_its_migration() -> None:
    a = Master("ABCDE", "BC", versions=[4], targets=["BD"])
    a.view("ABCD")
    a.ready(0)
    a.answer(0, accepted=True)
    assert (a.rows, a.table.versions) == (["BD"], (5,))


def test_copies_that_break_off_together_are_one_failure() -> None:
    a = Master("ABC", *["AB"] * 10, targets=["AC"] * 10)
    under_way = list(a.coordinator.migrations.underway)
    assert len(under_way) == 10
    for partition in under_way:
        a.ready(partition, done=False, reason="the copy broke off")
    assert not a.coordinator.migrations.underway
    a.advance(FIRST_PAUSE_MS + 1)
    assert len(a.coordinator.migrations.underway) == 10, "one connection broke, so there was one pause"
    for partition in list(a.coordinator.migrations.underway):
        a.ready(partition, done=False, reason="the copy broke off")
    a.advance(2 * FIRST_PAUSE_MS - 10)
    assert not a.coordinator.migrations.underway, "the second failure makes a longer pause"
    a.advance(20)
    assert len(a.coordinator.migrations.underway) == 10


def test_all_owners_send_to_one_that_joins() -> None:
    a = Master("ABCD", *["AC"] * 20, *["BC"] * 20, targets=["AD"] * 20 + ["BD"] * 20)

    def senders() -> Counter[str]:
        return Counter(str(each.owner)[0] for each in a.coordinator.migrations.underway.values())

    assert senders() == {"A": 5, "B": 5}, "D has room for ten, and A alone could send as many"
    for _ in range(6):
        partition = next(iter(a.coordinator.migrations.underway))
        a.ready(partition)
        a.answer(partition, accepted=True)
        assert senders() == {"A": 5, "B": 5}


# --- how far it is -------------------------------------------------------------------------------------------------


def test_the_master_tells_how_far_it_is_how_fast_and_how_much_longer() -> None:
    a = Master("ABC", "AB", "AB", "AB", "AB", targets=["AC"] * 4, max_parallel_migrations=1)
    began = a.now
    assert a.coordinator.migrations.progress(a.now) == Progress(0, 4, 0, 0, 0, None)
    for number in range(4):
        a.advance(2_000)
        [partition] = a.coordinator.migrations.underway
        _, order = a.last_order(partition)
        a.hear("A", m.MigrationReady(partition, order.base_version, lone_id("C"), True, 1, 7, "", 10, 1_000))
        a.answer(partition, accepted=True)
        took, left = a.now - began, 3 - number
        expected = Progress(number + 1, 4, 10 * (number + 1), 1_000 * (number + 1), took, took * left // (number + 1))
        assert a.coordinator.migrations.progress(a.now) == expected
    took = a.now - began
    a.advance(60_000)
    assert a.coordinator.migrations.progress(a.now).took_ms == took, "the rebalancing is over"
    told = [event for event in a.events if isinstance(event, RebalancingProgress)]
    assert [(event.arrived, event.copied_bytes, event.took_ms) for event in told] == [
        (2, 2_000, 5_000),
        (4, 4_000, took),
    ]
    assert [event.left_ms for event in told] == [5_000, 0]


def test_the_next_rebalancing_is_counted_anew() -> None:
    a = Master("ABC", "AB", targets=["AC"])
    a.ready(0)
    a.answer(0, accepted=True)
    a.advance(5_000)
    a.want("AB")
    began = a.now
    a.advance(500)
    progress = a.coordinator.migrations.progress(a.now)
    assert (progress.arrived, progress.planned, progress.took_ms) == (0, 1, a.now - began)


def test_a_migration_that_is_rolled_back_has_copied_nothing() -> None:
    a = Master("ABC", "AB", targets=["AC"])
    _, order = a.last_order(0)
    a.hear("A", m.MigrationReady(0, order.base_version, lone_id("C"), True, 1, 7, "", 10, 1_000))
    a.answer(0, accepted=False, reason="no room")
    assert a.coordinator.migrations.progress(a.now).copied_bytes == 0
