"""How many backups there are, and who confirms: counts of maps, changed while the cluster works."""

import pytest

from harness import KEY, MAP, Cluster
from phalanx.common.backups import BackupCount, BackupPlan
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.wire import events
from phalanx.wire import messages as m

VALUE = b"\0\0\0\1v"


def test_maps_have_counts_of_their_own_or_the_usual_ones() -> None:
    plan = BackupPlan(0, BackupCount(1)).with_change("deep", BackupCount(2, 3)).with_change("shallow", BackupCount(0))
    assert (plan.version, plan.depth) == (2, 5)
    assert plan.of("deep") == BackupCount(2, 3)
    assert plan.of("shallow") == BackupCount(0)
    assert plan.of("any") == BackupCount(1, 0)
    assert plan.with_change("deep", BackupCount(1)).depth == 1
    assert plan.with_change("", BackupCount(6)).depth == 6


@pytest.mark.rows("DL-01")
@pytest.mark.parametrize(("synchronous", "asynchronous"), [(-1, 0), (7, 0), (0, 7), (4, 3)])
def test_counts_that_no_map_can_have_are_refused(synchronous: int, asynchronous: int) -> None:
    with pytest.raises(UsageError, match="backup_count"):
        BackupPlan().with_change("m", BackupCount(synchronous, asynchronous))
    with pytest.raises(UsageError, match="backup_count"):
        NodeConfig(backup_count=synchronous, async_backup_count=asynchronous)
    c = Cluster("AB")
    c.assign()
    refused = c.replies[c.ask("A", m.ChangeBackups, MAP, synchronous, asynchronous)]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code is ErrorCode.INVALID
    assert c.table("A").backups.version == 0


def test_a_write_waits_for_synchronous_backups_only() -> None:
    c = Cluster("ABC", backup_count=1, async_backup_count=1)
    c.assign(rows=["ABC"])
    c.hold("A", "C")
    write = c.put("A", KEY, VALUE)
    c.settle()
    assert c.is_done(write), "C is asynchronous"
    c.release()
    c.settle()
    assert c.entries("C") == {KEY: VALUE}, "and yet it gets every write"
    c.hold("A", "B")
    write = c.put("A", KEY, VALUE)
    c.settle()
    assert not c.is_done(write)
    c.release()
    c.settle()
    assert c.is_done(write)


def test_a_map_without_synchronous_backups_waits_for_nobody() -> None:
    c = Cluster("AB", backup_count=1)
    c.assign(rows=["AB"])
    c.ask("A", m.ChangeBackups, "quick", 0, 1)
    c.settle()
    c.hold("A", "B")
    quick = c.ask("A", m.Put, "quick", KEY, VALUE, 0)
    usual = c.put("A", KEY, VALUE)
    assert c.is_done(quick)
    assert not c.is_done(usual)


def test_the_next_backup_confirms_in_the_stead_of_a_synchronous_one_that_is_gone() -> None:
    c = Cluster("MABC", backup_count=1, async_backup_count=1)
    c.assign(rows=["ABC"])
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MigrationOrder)
    c.crash("B")
    c.advance(2_000)
    assert c.table("A").slots(0) == (c.id("A"), None, c.id("C"))
    c.hold("A", "C")
    write = c.put("A", KEY, VALUE)
    c.settle()
    assert not c.is_done(write)
    c.release()
    c.settle()
    assert c.is_done(write)


@pytest.mark.rows("DL-41", "DL-43", "DL-62")
def test_backups_are_added_and_cleared_while_the_map_is_used() -> None:
    c = Cluster("ABCD", backup_count=1)
    c.assign(rows=["AB"])
    c.put("A", KEY, VALUE)
    c.settle()
    done = c.ask("A", m.ChangeBackups, MAP, 2, 0)
    assert c.is_done(done)
    c.advance(1_000)
    held = c.replicas("A")
    assert len(held) == 3
    assert all(c.entries(name) == {KEY: VALUE} for name in held)
    assert {c.table(name).backups.of(MAP) for name in "ABCD"} == {BackupCount(2)}
    c.ask("A", m.ChangeBackups, MAP, 1, 0)
    c.advance(1_000)
    kept = c.replicas("A")
    assert len(kept) == 2
    # The replica whose index is the number of backups stays (A.6-17); the colder one is cleared.
    assert kept == held[:2]
    assert [c.entries(name) for name in held] == [{KEY: VALUE}, {KEY: VALUE}, None]
    assert [event.kind for event in c.events_of("A", events.MigrationStarted)][-1] == "clear"


def test_the_next_master_keeps_the_number_of_backups() -> None:
    c = Cluster("ABCD", backup_count=1)
    c.assign()
    c.ask("A", m.ChangeBackups, "", 2, 0)
    c.settle()
    c.crash("A")
    c.advance(5_000)
    assert c.table("B").backups.usual == BackupCount(2)
    assert len(c.replicas("B")) == 3


def test_only_the_master_changes_the_number_of_backups_and_others_name_it() -> None:
    c = Cluster("AB")
    c.assign()
    refused = c.replies[c.ask("B", m.ChangeBackups, MAP, 2, 0)]
    assert isinstance(refused, m.ErrorReply)
    assert str(c.id("A")) in refused.text
