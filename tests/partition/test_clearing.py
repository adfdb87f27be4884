"""A replica that nobody gets is cleared when the owner has said that it is there, and not before (PX-34)."""

from unittest.mock import patch

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.map_settings import MapChange
from phalanx.wire import messages as m
from phalanx.wire.table_events import PartitionLost
from support.harness import Cluster, lone_id
from support.masters import Master

VALUE = b"\0\0\0\1v"

pytestmark = pytest.mark.rows("PX-34")


def whole(names: str, *rows: str) -> Cluster:
    """Members that have joined one after the other (lower case: lite), with one entry in partition 0."""
    c = Cluster(backup_count=len(rows[0]) - 1, partition_count=len(rows))
    for name in names:
        c.start(name, seeds=next(iter(c.nodes), name), lite=name.islower())
        c.advance(2_000)
    assert c.views_of(names) == [names] * len(names)
    c.assign(rows=rows)
    c.put(rows[0][0], c.key(0), VALUE)
    c.settle()
    return c


def master(row: str, target: str) -> Master:
    """A master that is to clear a replica of its only partition, and has asked the owner."""
    return Master("ABCD", row, versions=[4], targets=[target])


def test_the_owner_is_asked_and_the_row_stays_until_it_answers() -> None:
    a = master("BCD", "BC")
    ((to, order),) = a.orders(0)
    assert (to, order.base_version, order.migration.source) == ("B", 4, lone_id("D"))
    assert order.migration.destination is None
    a.advance(900)
    assert (a.rows, len(a.orders(0))) == (["BCD"], 1)
    a.advance(30_000)
    assert a.rows == ["BCD"]
    assert len(a.orders(0)) > 5, "the order may have been lost"
    for name, version, destination in (("C", 4, "C"), ("B", 3, "B"), ("B", 4, "D")):
        a.hear(name, m.MigrationReady(0, version, lone_id(destination), True, 1, 7))
    assert a.rows == ["BCD"], "none of these is the answer"
    a.hear("B", m.MigrationReady(0, 4, lone_id("B"), True, 1, 7))
    assert (a.rows, a.table.versions, a.outcomes()) == (["BC"], (5,), [(0, 4, True)])
    assert a.commits(0) == []
    assert a.coordinator.migrations.is_idle
    a.hear("B", m.MigrationReady(0, 4, lone_id("B"), True, 1, 7))
    assert (a.rows, a.table.versions) == (["BC"], (5,)), "an answer that comes twice counts once"


@pytest.mark.parametrize(("gone", "row"), [("B", "CD"), ("D", "BC")])
def test_a_holder_that_is_removed_first_ends_it(gone: str, row: str) -> None:
    a = master("BCD", "BC")
    a.targets = None
    a.view("ABCD".replace(gone, ""))
    assert a.rows[0].replace("-", "") == row
    assert a.outcomes() == [(0, 4, False)]
    a.hear("B", m.MigrationReady(0, 4, lone_id("B"), True, 1, 7))
    assert a.rows[0].replace("-", "") == row


def test_it_stays_while_another_holder_that_was_removed_still_has_a_lease() -> None:
    a = master("BCD", "BC")
    a.targets, lease_ends = None, a.now + 5_000
    with patch.object(a.coordinator._hold, "until", lambda: lease_ends):
        a.view("ABD")
        a.hear("B", m.MigrationReady(0, 4, lone_id("B"), True, 1, 7))
        assert a.rows == ["BCD"]
        a.advance(6_000)
    assert (a.rows, a.outcomes()) == (["B-D"], [(0, 4, False)])


def test_it_waits_for_a_plan_that_is_due() -> None:
    """E has joined, but this master, which was away for a moment, may not change the table yet."""
    a = master("BCD", "BC")
    awake_at = a.now + 5_000
    with patch.object(a.coordinator._hold, "until", lambda: awake_at):
        a.targets = ["BCD"]
        a.view("ABCDE")
        a.hear("B", m.MigrationReady(0, 4, lone_id("B"), True, 1, 7))
        assert a.rows == ["BCD"]
        a.advance(6_000)
    assert (a.rows, a.outcomes()) == (["BCD"], [(0, 4, False)])


def test_a_replica_that_is_wanted_again_stays() -> None:
    a = master("BCD", "BC")
    a.want("BCD")
    assert a.outcomes() == [(0, 4, False)]
    a.hear("B", m.MigrationReady(0, 4, lone_id("B"), True, 1, 7))
    assert a.rows == ["BCD"]


def test_it_counts_at_the_owner_alone() -> None:
    a = Master("ABCD", "BCD", "BCD", "BCD", targets=["BC"] * 3, migrations_per_member=2)
    assert sorted(order.partition for _, order in a.orders()) == [0, 1]
    a.hear("B", m.MigrationReady(0, 1, lone_id("B"), True, 1, 7))
    assert sorted({order.partition for _, order in a.orders()}) == [0, 1, 2]
    for partition in (1, 2):
        a.hear("B", m.MigrationReady(partition, 1, lone_id("B"), True, 1, 7))
    assert a.rows == ["BC"] * 3
    assert not a.coordinator.migrations._busy


def test_fewer_backups_when_the_owner_has_crashed_lose_nothing() -> None:
    c = whole("ABC", "BA", "AC", "CB")
    c.hang("B")
    c.ask("A", m.ChangeMap, "", MapChange(BackupCount(0)))
    c.advance(300)
    assert c.replicas("A") == "BA"
    c.crash("B")
    c.advance(10_000)
    assert not c.events_of("A", PartitionLost)
    assert c.get(c.replicas("A")[0], c.key(0)) == VALUE


def test_a_leaver_keeps_its_backup_while_the_owner_does_not_answer() -> None:
    """1. O has crashed, and nobody knows it. 2. L, its backup, leaves, and nobody can take what L holds. 3. C joins."""
    c = whole("mBA", "BA")
    c.hang("B")
    c.leave("A")
    c.advance(300)
    assert c.replicas("m") == "BA"
    c.start("C", seeds="m")
    c.advance(2_000)
    c.crash("B")
    c.advance(10_000)
    assert "A" not in c.nodes
    assert not c.events_of("m", PartitionLost)
    assert c.get("C", c.key(0)) == VALUE


@pytest.mark.rows("PX-01")
def test_a_leaver_that_nobody_replaces_goes_as_soon_as_the_owner_has_answered() -> None:
    c = whole("AB", "BA")
    c.leave("A")
    c.advance(300)
    assert "A" not in c.nodes
    assert c.replicas("B") == "B"
    assert c.get("B", c.key(0)) == VALUE


@pytest.mark.rows("PX-01", "PX-50")
@pytest.mark.parametrize(("names", "leavers", "rows"), [("AB", "A", ["BA", "AB"]), ("mABC", "AB", ["BA", "AC", "CB"])])
def test_owners_are_asked_for_all_that_leavers_hold_without_a_pause(names: str, leavers: str, rows: list[str]) -> None:
    """An owner that has answered is free for the next question, although nothing is cleared before it has answered all."""
    c = whole(names, *rows * 30)
    for name in leavers:
        c.leave(name)
    c.advance(900)
    assert [name for name in leavers if name in c.nodes] == []
    assert not c.events_of(names[0] if names[0] in c.nodes else names[-1], PartitionLost)


@pytest.mark.rows("PX-02")
def test_a_backup_that_becomes_lite_keeps_its_replica_until_the_owner_answers() -> None:
    c = whole("AB", "BA")
    c.hang("B")
    c.ask("A", m.ChangeLite, True)
    c.settle()
    assert c.replicas("A") == "BA"
    assert c.entries("A") == {c.key(0): VALUE}
    c.resume("B")
    c.advance(1_500)
    assert c.replicas("B") == "B"
    assert c.entries("A") is None


def test_what_waits_for_the_rest_of_a_member_is_cleared_when_that_stays_after_all() -> None:
    """1. A is to become lite. B answers for the replica that A has too many; A still owns a partition, so nothing is cleared. 2. A stays."""
    c = Cluster("AB", backup_count=0, partition_count=2)
    c.assign(rows=["BA", "A"])
    c.settle()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyStart)
    c.ask("A", m.ChangeLite, True)
    c.settle()
    assert c.nodes["A"].coordinator.migrations._answered
    assert c.replicas("A") == "BA"
    c.swallow = lambda *_: False
    c.ask("A", m.ChangeLite, False)
    c.settle()
    c.advance(5_000)
    assert c.replicas("A") == "B"
    assert c.nodes["A"].coordinator.migrations.is_idle


def test_a_new_master_asks_again() -> None:
    c = whole("MAB", "BA", "AM", "MB")
    c.hold("B", "M")
    c.ask("M", m.ChangeMap, "", MapChange(BackupCount(0)))
    c.settle()
    assert c.replicas("A") == "BA"
    c.crash("M")
    c.advance(10_000)
    assert len(c.replicas("A")) == 1
    assert c.get(c.replicas("A"), c.key(0)) == VALUE
