"""How many backups there are, and who confirms: counts of maps, changed while the cluster works."""

import pytest

from phalanx.common.backups import BackupCount
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.map_settings import MapChange, MapPlan, MapSettings, Protection
from phalanx.wire import events
from phalanx.wire import messages as m
from support.harness import KEY, MAP, Cluster

VALUE = b"\0\0\0\1v"


def test_maps_have_counts_of_their_own_or_the_usual_ones() -> None:
    plan = MapPlan().with_change("deep", MapChange(BackupCount(2, 3)))
    plan = plan.with_change("shallow", MapChange(BackupCount(0)))
    assert (plan.version, plan.depth) == (2, 5)
    assert plan.of("deep").backups == BackupCount(2, 3)
    assert plan.of("shallow").backups == BackupCount(0)
    assert plan.of("any").backups == BackupCount(1, 0)
    assert plan.with_change("deep", MapChange(BackupCount(1))).depth == 1
    assert plan.with_change("", MapChange(BackupCount(6))).depth == 6


@pytest.mark.rows("DL-01")
@pytest.mark.parametrize(("synchronous", "asynchronous"), [(-1, 0), (7, 0), (0, 7), (4, 3)])
def test_counts_that_no_map_can_have_are_refused(synchronous: int, asynchronous: int) -> None:
    with pytest.raises(UsageError, match="backup_count"):
        MapPlan().with_change("m", MapChange(BackupCount(synchronous, asynchronous)))
    with pytest.raises(UsageError, match="backup_count"):
        NodeConfig(backup_count=synchronous, async_backup_count=asynchronous)
    c = Cluster("AB")
    c.assign()
    refused = c.replies[c.ask("A", m.ChangeMap, MAP, MapChange(BackupCount(synchronous, asynchronous)))]
    assert isinstance(refused, m.ErrorReply)
    assert refused.code is ErrorCode.INVALID
    assert c.table("A").maps.version == 0


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
    c.ask("A", m.ChangeMap, "quick", MapChange(BackupCount(0, 1)))
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
    done = c.ask("A", m.ChangeMap, MAP, MapChange(BackupCount(2, 0)))
    assert c.is_done(done)
    c.advance(1_000)
    held = c.replicas("A")
    assert len(held) == 3
    assert all(c.entries(name) == {KEY: VALUE} for name in held)
    assert {c.table(name).maps.of(MAP).backups for name in "ABCD"} == {BackupCount(2)}
    c.ask("A", m.ChangeMap, MAP, MapChange(BackupCount(1, 0)))
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
    c.ask("A", m.ChangeMap, "", MapChange(BackupCount(2, 0)))
    c.settle()
    c.crash("A")
    c.advance(5_000)
    assert c.table("B").maps.usual.backups == BackupCount(2)
    assert len(c.replicas("B")) == 3


def test_only_the_master_changes_the_number_of_backups_and_others_name_it() -> None:
    c = Cluster("AB")
    c.assign()
    refused = c.replies[c.ask("B", m.ChangeMap, MAP, MapChange(BackupCount(2, 0)))]
    assert isinstance(refused, m.ErrorReply)
    assert str(c.id("A")) in refused.text


def test_protection_and_merge_policy_travel_with_the_table_and_outlive_the_master() -> None:
    c = Cluster("ABC")
    c.assign()
    before = c.table("A").version
    for change in (MapChange(protection=Protection(2)), MapChange(merge_policy="discard")):
        assert c.is_done(c.ask("A", m.ChangeMap, MAP, change))
        c.settle()
    wanted = MapSettings(BackupCount(1), Protection(2), "discard")
    assert {c.table(name).maps.of(MAP) for name in "ABC"} == {wanted}
    assert c.table("C").version == before + 2
    (protected,) = c.events_of("A", events.MapProtected)
    assert (protected.map, protected.minimum, protected.table_version) == (MAP, 2, before + 1)
    (policy,) = c.events_of("A", events.MergePolicyChanged)
    assert (policy.map, policy.policy, policy.table_version) == (MAP, "discard", before + 2)
    c.crash("A")
    c.advance(5_000)
    assert c.table("B").maps.of(MAP) == wanted


def test_a_member_that_joins_with_other_settings_goes_by_the_clusters_and_says_so() -> None:
    c = Cluster("AB", maps={MAP: {"minimum_members": 2}})
    c.assign()
    c.settings["maps"] = {MAP: {"minimum_members": 1}}
    c.join("C")
    c.advance(3_000)
    assert c.table("C").maps.of(MAP).protection == Protection(2)
    (told,) = c.events_of("C", events.MapSettingsDiffer)
    assert told.differences == (
        f"{MAP}: protection at least 1 member for reads and writes, and the cluster's is at least 2 members for reads and "
        f"writes",
    )
    assert not c.events_of("B", events.MapSettingsDiffer)
