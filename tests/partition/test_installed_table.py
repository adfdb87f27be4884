"""The partition table at every member, and the coordinator of the master (docs/protocol/partition-table.md)."""

import pytest

from phalanx.common.backups import MAX_BACKUPS
from phalanx.common.config import NodeConfig
from phalanx.common.errors import ErrorCode, UsageError
from phalanx.common.map_config import MapConfig
from phalanx.common.map_settings import MapChange
from phalanx.common.restart_wait import RestartWait
from phalanx.common.table import PartitionTable, build_table
from phalanx.grid.replication.progress import COPY_UNHEARD_AFTER_MS
from phalanx.wire import messages as m
from phalanx.wire.table_events import (
    FullyReplicated,
    MapSettingsDiffer,
    MigrationCommitted,
    MigrationRolledBack,
    MigrationStarted,
    PartitionsRepaired,
    TableInstalled,
    TableSearchEnded,
)
from support.harness import KEY, MAP, Cluster, Lone, lone_id
from support.masters import Master

VALUE = b"\0\0\0\1v"


def table_of(*rows: str, versions: list[int]) -> PartitionTable:
    return build_table([tuple(lone_id(name) for name in row) for row in rows], versions)


@pytest.mark.rows("DL-01")
@pytest.mark.parametrize("backups", [-1, 7])
def test_a_partition_has_at_most_seven_replicas(backups: int) -> None:
    assert MAX_BACKUPS == 6
    with pytest.raises(UsageError, match="not between 0 and 6"):
        NodeConfig(backup_count=backups)


@pytest.mark.rows("DL-04", "DL-07")
def test_a_table_is_installed_only_from_the_master_and_only_if_newer() -> None:
    b = Lone("B", "ABC", 3)
    first = table_of("AB", versions=[4])
    b.hear("C", m.TableUpdate(first))
    assert b.node.installed_table.table.version == 0
    b.hear("A", m.TableUpdate(first))
    assert b.node.installed_table.table == first
    for older in (table_of("CB", versions=[3]), table_of("CB", versions=[4])):
        b.hear("A", m.TableUpdate(older))
        assert b.node.installed_table.table == first
    b.hear("A", m.TableUpdate(table_of("CB", versions=[5])))
    assert b.node.installed_table.table == table_of("CB", versions=[5])
    assert [message.version for message in b.sent_to("A", m.TableAck)] == [4, 4, 4, 5]


def configured_alone(idle_ms: int, **config: MapConfig) -> Cluster:
    """Three members, of which only the first was configured with settings of maps; nobody has used the data for a time."""
    c = Cluster(seeds="A")
    c.start("A", maps=config)
    c.settle()
    c.join("B")
    c.join("C")
    c.advance(idle_ms)
    return c


@pytest.mark.rows("PX-09")
@pytest.mark.parametrize("idle_ms", [0, 60_000], ids=["at once", "after tables that assign nothing"])
def test_a_cluster_begins_with_the_settings_of_the_member_that_formed_it(idle_ms: int) -> None:
    c = configured_alone(idle_ms, m=MapConfig(minimum_members=3))
    settings = c.table("A").maps
    assert settings.maps
    c.assign(rows=["BC"])
    assert [c.table(name).maps for name in "ABC"] == [settings] * 3
    write = c.put("B", KEY, VALUE)
    c.settle()
    assert c.is_done(write)
    c.crash("C")
    c.advance(3_000)
    refused = c.replies[c.ask("B", m.Get, MAP, KEY)]
    assert isinstance(refused, m.ErrorReply), "the owner itself was configured with no settings"
    assert refused.code is ErrorCode.NOT_ENOUGH_MEMBERS


@pytest.mark.rows("PX-09")
def test_the_settings_stay_where_the_member_that_had_them_leaves_before_anything_is_assigned() -> None:
    c = configured_alone(60_000, m=MapConfig(backup_count=2))
    settings = c.table("A").maps
    c.crash("A")
    c.advance(5_000)
    assert c.view("C") == "BC"
    c.join("D", seeds="B")
    c.assign("B")
    assert [c.table(name).maps for name in "BCD"] == [settings] * 3
    assert len(c.replicas("B")) == 3


@pytest.mark.rows("PX-09")
def test_who_was_configured_otherwise_says_so_once_whether_or_not_anything_is_assigned() -> None:
    c = Cluster("A")
    c.start("B", maps={"m": MapConfig(max_entries=5, max_idle_ms=7)})
    c.settle()
    c.advance(60_000)
    assert len(c.events_of("B", MapSettingsDiffer)) == 1
    installed = len(c.events_of("B", TableInstalled))
    assert installed == 0, "a table that assigns nothing is none that anybody has to know of"
    c.assign("A")
    c.advance(60_000)
    (told,) = c.events_of("B", MapSettingsDiffer)
    assert "max_entries 5" in str(told)
    assert "max_idle_ms 7" in str(told)


@pytest.mark.rows("DL-08", "DL-09", "DL-10")
def test_a_backup_that_misses_its_owner_waits_for_the_masters_table() -> None:
    c = Cluster("ABC")
    c.assign(rows=["BC"])
    write = c.put("B", KEY, VALUE)
    c.settle()
    assert c.is_done(write)
    c.hold("A", "C")
    old_table = c.table("A")
    c.crash("B")
    c.advance(3_000)
    assert c.suspects("C") == "B"
    assert c.nodes["C"].grid.ownership.owned[0] is None
    assert c.replicas("C") == "BC"
    c.say("A", "C", m.TableUpdate(old_table))
    assert c.entries("C") == {KEY: VALUE}, "the old table does not hurt it"
    c.release()
    c.settle()
    assert c.replicas("C")[0] == "C"
    assert c.get("C", KEY) == VALUE


@pytest.mark.rows("DL-04")
def test_the_master_publishes_its_table_now_and_then() -> None:
    c = Cluster("ABC", publish_interval_ms=7_000)
    c.assign()
    c.advance(1_000)
    c.hold("A", "B")
    c.advance(7_500)
    assert {message.table for message in c.pending("A", "B", m.TableUpdate)} == {c.table("A")}


@pytest.mark.rows("DL-03", "DL-05", "DL-06")
def test_each_change_of_the_master_raises_the_version() -> None:
    c = Cluster("ABC", partition_count=4)
    c.assign()
    assert c.table("A").versions == (1, 1, 1, 1)
    held = [partition for partition in range(4) if "C" in c.replicas("A", partition)]
    c.crash("C")
    c.advance(5_000)
    installed = [event.table_version for event in c.events_of("A", TableInstalled)]
    assert installed == sorted(set(installed))
    for partition in range(4):
        # A repair and a copy for each partition that C held; nothing else.
        assert c.table("A").versions[partition] == (3 if partition in held else 1)


def test_a_missed_table_is_learnt_by_the_next_heartbeat() -> None:
    c = Cluster("ABC")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.TableUpdate) and receiver == "C"
    c.assign()
    assert c.table("C").version == 0
    c.swallow = lambda *_: False
    c.advance(1_100)
    assert c.table("C") == c.table("A")


def test_nothing_is_assigned_before_somebody_uses_the_data() -> None:
    c = Cluster("ABC")
    c.advance(10_000)
    c.ask("B", m.GetMembers)
    c.ask("B", m.GetTable, False)
    c.ask("B", m.GetReplicas)
    c.settle()
    assert c.table("A").version == 0
    c.ask("B", m.Get, "m", KEY)
    c.settle()
    assert c.table("A").version == 1
    assert c.table("B") == c.table("C") == c.table("A")


# --- the search for the newest table ----------------------------------------------------------------------------------


@pytest.mark.rows("DL-11", "DL-12", "DL-13", "DL-14", "DL-15", "DL-58")
@pytest.mark.parametrize("knows", ["B", "C", "D", "E", "DE"])
def test_a_new_master_goes_on_with_the_newest_table_of_all(knows: str) -> None:
    """A's last table names a new backup; A dies when only some have heard of it. Nobody goes back to the older one."""
    c = Cluster("ABCDE", partition_count=2)
    c.assign(rows=["DE", "AB"])
    c.put("D", c.key(0), VALUE)
    c.settle()
    c.swallow = lambda sender, receiver, message: sender == "A" and isinstance(message, m.TableUpdate | m.TableChanges)
    c.leave("D")
    c.advance(1_500)
    newest = c.table("A")
    assert newest.version > 2
    assert "D" in c.nodes, "it is not let go before all know who has its replicas"
    for name in knows:
        c.say("A", name, m.TableUpdate(newest))
    c.crash("A")
    c.swallow = lambda *_: False
    c.advance(5_000)
    search = c.events_of("B", TableSearchEnded)[-1]
    # Nobody has committed what A had ordered since; that is rolled back by two (DL-22).
    assert search.table_version == newest.version + 2 * len(search.rolled_back)
    for name in "BC":
        versions = [event.table_version for event in c.events_of(name, TableInstalled)]
        assert versions == sorted(set(versions))
    owner = c.replicas("B")[0]
    assert c.get(owner, c.key(0)) == VALUE


@pytest.mark.rows("DL-13", "DL-14", "DL-15")
def test_before_all_have_answered_or_left_no_table_is_published() -> None:
    c = Cluster("ABCD")
    c.assign(rows=["CB"])
    c.swallow = lambda sender, receiver, message: isinstance(message, m.FetchedTable) and sender == "D"
    c.crash("A")
    c.advance(3_000)
    assert c.views_of("BCD") == ["BCD"] * 3
    assert not c.nodes["B"].coordinator.decides
    c.crash("C")
    c.advance(3_000)
    assert c.view("B") == "BD"
    assert c.replicas("B") == c.replicas("D") == "CB", "C is gone, and yet nothing is decided"
    assert not [event for event in c.events_of("B", TableSearchEnded) if event.table_version]
    c.swallow = lambda *_: False
    c.advance(500)
    assert c.replicas("B")[0] == "B"
    assert c.table("D") == c.table("B")


@pytest.mark.rows("DL-13")
def test_a_member_that_dies_during_the_search_is_not_waited_for() -> None:
    c = Cluster("ABCD")
    c.assign(rows=["BC"])
    c.hold("D", "B")
    c.crash("A")
    c.advance(500)
    c.release()
    c.settle()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.FetchedTable) and sender == "D"
    c.advance(1_000)
    c.crash("D")
    c.swallow = lambda *_: False
    c.advance(2_000)
    assert c.nodes["B"].coordinator.decides
    assert c.replicas("C") == c.replicas("B")


@pytest.mark.rows("DL-12")
def test_a_member_that_has_answered_a_new_master_takes_no_table_of_the_old_one() -> None:
    c = Cluster("ABC")
    c.assign(rows=["BC"])
    late = m.TableUpdate(table_of("CB", versions=[9]))
    c.crash("A")
    c.advance(2_000)
    assert c.master("C") == "B"
    before = c.table("C")
    c.say("A", "C", late)
    assert c.table("C") == before


def test_only_the_master_that_a_member_follows_is_told_its_table() -> None:
    b = Lone("B", "ABC", 3)
    b.hear("C", m.FetchTable(1))
    assert b.sent_of(m.FetchedTable) == []
    b.hear("A", m.FetchTable(1))
    ((master, told),) = b.sent_of(m.FetchedTable)
    assert (master, told.search_id, told.table) == ("A", 1, b.node.installed_table.table)


def test_a_member_says_for_whom_its_master_waits_until_that_sends_a_table() -> None:
    """DU-33. Another member's word does not count, nor that of a master before."""
    b = Lone("B", "ABC", 3)
    wait = RestartWait((lone_id("D"),), 3, True, 0)
    b.hear("C", m.RestartAwaited(wait))
    assert b.node.installed_table.restart_wait is None
    b.hear("A", m.RestartAwaited(wait))
    assert b.node.installed_table.restart_wait == wait
    assert b.node.calls.no_owners.startswith("the cluster was switched off and waits for ")
    b.hear("A", m.TableUpdate(b.node.installed_table.table))
    assert b.node.installed_table.restart_wait is None
    assert b.node.calls.no_owners == ""


def test_a_master_that_confirms_the_same_table_is_heard_although_the_message_was_lost() -> None:
    """Its orders would be ignored by an owner that takes the old master's word for the last one."""
    c = Cluster("ABCD", partition_count=1)
    c.assign(rows=["CD"])
    c.swallow = lambda sender, receiver, message: isinstance(message, m.TableUpdate) and receiver == "C"
    c.crash("A")
    c.advance(800)
    assert c.master("C") == "B"
    assert c.nodes["C"].installed_table.confirmed_by == c.id("A")
    c.swallow = lambda *_: False
    c.advance(1_500)
    assert c.nodes["C"].installed_table.confirmed_by == c.id("B")


# --- repair -----------------------------------------------------------------------------------------------------------


@pytest.mark.rows("DL-05")
def test_a_partition_that_nobody_survived_gets_a_new_empty_owner_and_that_is_told() -> None:
    c = Cluster("ABCD", partition_count=2)
    c.assign(rows=["BC", "AD"])
    c.put("B", c.key(0), VALUE)
    c.settle()
    c.crash("BC")
    c.advance(3_000)
    repaired = c.events_of("A", PartitionsRepaired)
    assert [lost for event in repaired for lost in event.lost] == [0]
    assert c.get(c.replicas("A")[0], c.key(0)) is None
    write = c.put(c.replicas("A")[0], c.key(0), VALUE)
    c.settle()
    assert c.is_done(write)


@pytest.mark.rows("DL-02", "DL-05")
def test_lost_replicas_are_copied_until_all_have_them_and_that_is_told_once() -> None:
    c = Cluster("ABCD", partition_count=12, backup_count=2)
    c.assign()
    c.advance(2_000)
    before = len(c.events_of("A", FullyReplicated))
    c.crash("D")
    c.advance(5_000)
    for partition in range(12):
        assert len(c.replicas("A", partition)) == 3
    replicated = c.events_of("A", FullyReplicated)[before:]
    assert [event.table_version for event in replicated] == [c.table("A").version]
    assert replicated[0].took_ms < 3_000


def test_full_redundancy_is_told_only_when_every_member_knows_of_it() -> None:
    """Whoever reads it may stop the next member: also the master, which was the only one to know of the last copy."""
    c = Cluster("AB")
    c.crash("B")
    c.advance(2_000)
    c.assign(rows=["A"])
    c.put("A", KEY, VALUE)
    first = c.table("A").version
    c.swallow = lambda sender, receiver, message: (
        isinstance(message, m.TableChanges) or (isinstance(message, m.TableUpdate) and message.table.version > first)
    )
    c.start("B")
    c.advance(3_000)
    assert c.replicas("A") == c.replicas("B") == "AB"
    assert not c.events_of("A", FullyReplicated)
    c.swallow = lambda *_: False
    c.advance(1_500)
    assert len(c.events_of("A", FullyReplicated)) == 1
    c.crash("A")
    c.advance(3_000)
    assert c.get("B", KEY) == VALUE


def most_at_once(c: Cluster, of: str = "") -> int:
    """How many migrations the master had under way at once; `of`: in which this member sends or receives."""
    under_way: set[tuple[int, int]] = set()
    most = 0
    for name, event in c.events:
        if name != "A":
            continue
        if isinstance(event, MigrationStarted) and event.destination is not None:
            if not of or c.id(of) in (event.owner, event.destination):
                under_way.add((event.partition, event.partition_version))
        elif isinstance(event, MigrationCommitted | MigrationRolledBack):
            under_way.discard((event.partition, event.partition_version))
        most = max(most, len(under_way))
    return most


def test_no_more_migrations_at_a_time_than_a_member_may_take_part_in() -> None:
    c = Cluster("AB", partition_count=20, migrations_per_member=3)
    c.crash("B")
    c.advance(2_000)
    c.assign()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyAck)
    c.join("B")
    c.advance(COPY_UNHEARD_AFTER_MS - 500)
    assert len(c.nodes["A"].coordinator.migrations.underway) == 3
    c.swallow = lambda *_: False
    c.advance(30_000)
    assert all(len(c.replicas("A", partition)) == 2 for partition in range(20))
    assert most_at_once(c, "B") == 3


@pytest.mark.rows("DL-35")
def test_migrations_run_one_by_one_if_one_is_allowed() -> None:
    c = Cluster("ABC", partition_count=20, backup_count=2, max_parallel_migrations=1)
    c.assign()
    c.join("D")
    c.advance(30_000)
    moved = c.events_of("A", MigrationCommitted)
    assert len(moved) >= 10
    assert most_at_once(c) == 1
    assert c.nodes["A"].coordinator.is_at_rest()


def test_what_a_master_remembers_of_members_ends_with_them() -> None:
    c = Cluster("AB")
    c.assign()
    for _ in range(5):
        c.crash("B")
        c.advance(1_000)
        c.join("B")
        c.advance(2_000)
    coordinator = c.nodes["A"].coordinator
    assert set(coordinator.publication.confirmed) == {c.id("B")}
    assert coordinator.publication.completed == {}
    assert (coordinator.migrations.underway, coordinator.migrations._pauses, +coordinator.migrations._busy) == (
        {},
        {},
        {},
    )
    assert "targets=0" in repr(coordinator)


@pytest.mark.rows("PX-09")
def test_a_format_of_dicts_is_a_setting_of_the_table() -> None:
    c = Cluster("A")
    c.assign("A")
    assert c.table("A").maps.of("m").dicts == "any"
    c.reply(c.ask("A", m.ChangeMap, "m", MapChange(dicts="json")), m.DoneReply)
    assert c.table("A").maps.of("m").dicts == "json"


@pytest.mark.rows("PX-09")
def test_a_format_of_dicts_that_another_member_was_configured_with_is_told() -> None:
    c = Cluster("A", maps={"m": MapConfig(dicts="json")})
    c.start("B", maps={"*": MapConfig(dicts="rows")})
    c.settle()
    c.advance(60_000)
    (told,) = c.events_of("B", MapSettingsDiffer)
    assert "*: dicts rows, and the cluster's is any" in str(told)


def test_formats_of_dicts_that_the_first_master_was_configured_with_are_part_of_the_first_table() -> None:
    configured = {"m": MapConfig(dicts="json", max_entries=5)}
    a = Master("AB", "", versions=[0], maps=configured, backup_count=1)
    a.targets = ["AB"]
    a.hear("B", m.TableRequest())
    assert a.rows == ["AB"]
    update = a.published()[-1][1]
    assert isinstance(update, m.TableUpdate)
    for table in (a.table, update.table):
        settings = table.maps.of("m")
        assert (settings.dicts, settings.max_entries) == ("json", 5)
    assert a.events_of(MapSettingsDiffer) == []
