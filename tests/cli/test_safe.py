"""`phalanx safe`: what the judgement rests on, and the command against real members."""

import json
from typing import Any

import pytest

from phalanx.common.ids import MemberId
from phalanx.machine.inputs import DiskMeasured, MemoryMeasured
from phalanx.reports.placement import placement_of
from phalanx.reports.power import PowerJudgement, judge_power
from phalanx.reports.safety import Judgement, MasterSays, judge
from phalanx.wire import messages as m
from phalanx.wire.figures import DiskStatus
from support.commands import Command
from support.harness import TEXT, name_of
from support.harness import Cluster as Drawn
from support.merges import cluster as cluster_to_split
from support.merges import keys, meet, put, split
from support.processes import Cluster, wait_for

VALUE = TEXT + b"v"


def judged(c: Drawn, name: str) -> Judgement:
    """May this member be stopped? By what it and its master say now; a master that is gone or hangs says nothing."""
    own = c.replies[c.ask(name, m.GetSafety)]
    assert isinstance(own, m.SafetyReply)
    master = name_of(own.view.master)
    if master not in c.nodes or master in c.hung:
        return judge(c.id(name), own, None)
    migrations, safety = c.replies[c.ask(master, m.GetMigrations)], c.replies[c.ask(master, m.GetSafety)]
    assert isinstance(migrations, m.MigrationsReply)
    assert isinstance(safety, m.SafetyReply)
    return judge(c.id(name), own, MasterSays(c.id(master), migrations, safety))


def against_kill(c: Drawn, name: str) -> dict[str, int]:
    return {reason.what: reason.count for reason in judged(c, name).against_kill}


def against_leaving(c: Drawn, name: str) -> dict[str, int]:
    return {reason.what: reason.count for reason in judged(c, name).against_leaving}


def test_at_rest_any_one_may_be_killed() -> None:
    c = Drawn("ABC", partition_count=6)
    c.assign()
    assert [judged(c, name).may_be_killed for name in "ABC"] == [True] * 3
    assert [judged(c, name).may_leave for name in "ABC"] == [True] * 3


def test_nothing_is_lost_with_one_that_holds_nothing() -> None:
    c = Drawn("A", partition_count=3)
    assert judged(c, "A").may_be_killed
    c.assign()
    assert against_kill(c, "A") == {"only_here": 3}


def test_the_last_member_can_hand_over_to_nobody() -> None:
    c = Drawn("A", partition_count=3)
    c.assign()
    assert against_leaving(c, "A") == {"nobody_stays": 3}
    c = Drawn("AB", partition_count=4)
    c.assign()
    c.hold_all()
    c.leave("B")
    c.deliver("B", "A", m.LeaveRequest)
    assert against_leaving(c, "A")["nobody_stays"] == 4


def test_without_backups_only_a_graceful_stop_is_safe() -> None:
    c = Drawn("AB", partition_count=4, backup_count=0)
    c.assign()
    found = judged(c, "B")
    assert [(reason.what, reason.count) for reason in found.against_kill] == [("only_here", 2)]
    assert "no backups are configured" in found.against_kill[0].said
    assert "SIGTERM" in found.against_kill[0].advice
    assert found.may_leave


def test_while_replicas_are_missing_the_others_must_stay() -> None:
    c = Drawn("ABC", partition_count=1)
    c.assign(rows=["AC"])
    c.hold("A", "B")
    c.crash("C")
    c.advance(400)
    assert c.view("A") == "AB"
    assert against_kill(c, "A")["only_here"] == 1
    assert judged(c, "A").may_leave
    c.release()
    c.advance(2_000)
    assert [judged(c, name).may_be_killed for name in "AB"] == [True, True]


def test_replicas_that_are_missing_elsewhere_are_a_reason_too() -> None:
    c = Drawn("ABCD", partition_count=2)
    c.assign(rows=["AC", "BA"])
    c.hold("A", "D")
    c.crash("C")
    c.advance(400)
    assert c.view("B") == "ABD"
    assert against_kill(c, "A")["only_here"] == 1
    assert against_kill(c, "B")["lacking"] == 1


def test_more_configured_than_there_are_members_is_only_noted() -> None:
    c = Drawn("AB", partition_count=2, backup_count=2)
    c.assign()
    found = judged(c, "A")
    assert found.may_be_killed
    assert "3 replicas are configured, and 2 members can hold 2" in found.notes


def test_a_write_on_its_way_is_no_reason_and_one_that_is_late_is() -> None:
    c = Drawn("AB", partition_count=1)
    c.assign(rows=["AB"])
    c.hold("B", "A")
    write = c.put("A", c.key(0), VALUE)
    c.settle()
    assert not c.is_done(write)
    assert against_kill(c, "A") == {}
    c.advance(900)
    assert against_kill(c, "A") == {"unconfirmed": 1}
    assert against_kill(c, "B") == {}
    c.release()
    c.settle()
    assert c.is_done(write)
    assert against_kill(c, "A") == {}


def test_an_asynchronous_backup_that_lacks_what_was_confirmed_is_a_reason_at_once() -> None:
    c = Drawn("AB", partition_count=1, backup_count=0, async_backup_count=1)
    c.assign(rows=["AB"])
    c.hold("A", "B")
    assert c.is_done(c.put("A", c.key(0), VALUE))
    assert against_kill(c, "A") == {"unconfirmed": 1}
    c.release()
    c.settle()
    assert against_kill(c, "A") == {}


def test_a_migration_holds_its_participants_and_the_rebalancing_everybody() -> None:
    c = Drawn("AB", partition_count=2, migrations_per_member=1)
    c.assign(rows=["AB", "BA"])
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyChunk)
    c.join("C")
    assert against_kill(c, "B") == {"behind": 1}
    while not c.nodes["A"].coordinator.migrations.underway:
        c.advance(100)
    [underway] = c.nodes["A"].coordinator.migrations.underway.values()
    owner = name_of(underway.owner)
    assert against_kill(c, owner)["migrating"] == against_kill(c, "C")["migrating"] == 1
    third = "AB".replace(owner, "")
    assert ("migrating" in against_kill(c, third)) == (c.id(third) in underway.migration.participants)
    assert "rebalancing" in against_kill(c, third)
    assert against_leaving(c, owner) == {}
    c.swallow = lambda sender, receiver, message: False
    c.advance(20_000)
    assert [judged(c, name).may_be_killed for name in "ABC"] == [True] * 3


def test_a_suspect_and_a_silent_master_are_reasons_against_both() -> None:
    c = Drawn("ABC", partition_count=3)
    c.assign()
    c.hang("A")
    assert against_kill(c, "B") == against_leaving(c, "B") == {"master_silent": 1}
    c.resume("A")
    c.hold("C", "B")
    while not c.suspects("B"):
        c.advance(1_000)
    assert c.view("B") == "ABC"
    assert against_kill(c, "B") == against_kill(c, "A") | {"suspected": 1}
    assert against_leaving(c, "B") == {"suspected": 1}


def test_a_new_master_that_searches_its_table_is_a_reason() -> None:
    c = Drawn("ABCD", partition_count=4)
    c.assign()
    c.hold("D", "B")
    c.crash("A")
    c.advance(400)
    while c.master("B") != "B" or not c.nodes["B"].coordinator.searching_for:
        c.deliver("D", "B")
        c.settle()
    assert c.nodes["B"].coordinator.searching_for == [c.id("D")]
    assert against_leaving(c, "C")["searching"] == 1
    assert against_kill(c, "C")["searching"] == 1


def test_one_that_leaves_holds_the_others() -> None:
    c = Drawn("ABC", partition_count=3)
    c.assign()
    c.hold_all()
    c.leave("B")
    c.deliver("B", "A", m.LeaveRequest)
    found = against_kill(c, "C")
    assert found["leaving"] == c.table("A").loads()[c.id("B")]
    assert against_leaving(c, "C") == {}


def test_nobody_may_be_killed_while_a_member_keeps_what_it_has_not_handed_in() -> None:
    """{A} | {B,C}: A comes back with what it alone has, and it takes long until the others have that."""
    c = cluster_to_split("ABC", backup_count=1)
    for key in keys(30):
        put(c, "A", key, b"before")
    split(c, "A", "BC")
    for key in keys(30):
        put(c, "A", key, b"alone")
    meet(c, "A")
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MergeEntries)
    c.rejoin("A")
    c.advance(20_000)
    entries = c.nodes["A"].data_merging.orphaned.entry_count()
    master = c.master("B")
    told = c.replies[c.ask(master, m.GetMigrations)]
    assert isinstance(told, m.MigrationsReply)
    assert [(each.member, each.entries) for each in told.kept] == [(c.id("A"), entries)]
    assert not told.at_rest
    for name in "BC":
        reasons = judged(c, name).against_kill
        assert [reason.what for reason in reasons] == ["kept_elsewhere"]
        assert f"A:5701 keeps {entries} entries" in reasons[0].said
        assert against_leaving(c, name) == {}
    assert "kept" in against_kill(c, "A")
    c.swallow = lambda sender, receiver, message: False
    c.advance(20_000)
    assert [against_kill(c, name) for name in "ABC"] == [{}] * 3
    told = c.replies[c.ask(master, m.GetMigrations)]
    assert isinstance(told, m.MigrationsReply)
    assert told.at_rest
    assert not told.kept


def test_what_was_lost_does_not_make_it_less_safe_to_stop_a_member() -> None:
    c = Drawn("ABCD", partition_count=6, backup_count=1)
    c.assign()
    c.crash("CD")
    c.advance(10_000)
    assert c.table("A").losses
    assert [judged(c, name).may_be_killed for name in "AB"] == [True, True]


@pytest.mark.parametrize("backups", [0, 1])
def test_real_members_tell_whether_they_may_be_stopped(
    phalanx_command: Command, cluster: Cluster, backups: int
) -> None:
    options = ("--backup-count", str(backups))
    first, second = cluster.start(2, options=options)

    def ask(*more: str) -> tuple[int, str]:
        result = phalanx_command("safe", "--at", second.address, "--cluster", cluster.name, *more)
        return result.exit_code, result.stdout

    with cluster.client() as grid:
        grid.map("m").put_all((number, number) for number in range(100))
    cluster.wait_redundant(backups)
    wait_for(lambda: ask("--graceful")[0] == 0, "it may leave")
    status, shown = ask("--wait", "0" if backups == 0 else "20")
    told = json.loads(ask("--json")[1])
    assert (told["member"], told["may_leave"]) == (second.member, True)
    if backups == 0:
        assert status == 1
        assert f"Do not kill {second.address} now" in shown
        assert "no backups are configured" in shown
        assert [reason["what"] for reason in told["against_kill"]] == ["only_here"]
        cluster.terminate(second)
    else:
        assert (status, told["may_be_killed"], told["only_here"]) == (0, True, 0)
        assert f"You can kill {second.address} now" in shown
        cluster.kill(second)
        cluster.wait_views()
    with cluster.client() as grid:
        assert len(grid.map("m")) == 100
    alone = phalanx_command("safe", "--at", first.address, "--cluster", cluster.name)
    assert alone.exit_code == 1
    assert "no other member holds 271 of its partitions" in alone.stdout
    assert "no member would stay" in alone.stdout


def test_the_address_of_one_member_is_wanted(phalanx_command: Command) -> None:
    result = phalanx_command("safe", "--at", "127.0.0.1:1,127.0.0.1:2")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "give the address of one member" in result.stderr


def test_no_member_should_go_where_the_others_have_no_memory_for_what_it_holds() -> None:
    c = Drawn("ABC", partition_count=6)
    c.assign()
    for used, is_safe in ((50, True), (80, False), (50, True)):
        for name in "ABC":
            c.feed(name, MemoryMeasured(used << 20, 100 << 20, 120 << 20, 0))
            c.settle()
        found = judged(c, "B")
        assert (found.may_be_killed, found.may_leave) == (is_safe, is_safe)
        assert f"it uses {used}.0 MiB of its memory limit of 100.0 MiB" in found.notes
    measured = MemoryMeasured(80 << 20, 100 << 20, 120 << 20, 0)
    for name in "ABC":
        c.feed(name, measured)
        c.settle()
    [reason] = judged(c, "B").against_kill
    assert (reason.what, reason.count) == ("memory", 40 << 20)
    assert reason.said == (
        "without A:5701 the other members would need 240.0 MiB of memory, and their limits allow 200.0 MiB"
    )
    assert "start another member first" in reason.advice


# --- folders ------------------------------------------------------------------------------------------------------------


def disk(**fields: Any) -> DiskStatus:
    usual: dict[str, Any] = {
        "state": "ok",
        "why": "",
        "unsynced_bytes": 0,
        "unsynced_ms": 0,
        "log_bytes": 1,
        "segments": 1,
        "room_bytes": 1,
    }
    return DiskStatus(**({"device": "host/1"} | usual | fields))


def test_the_last_member_that_has_a_folder_may_end_in_any_way() -> None:
    """All that it holds comes back with its folder. Beside others, what only it has would not be served meanwhile."""
    c = Drawn("AB", partition_count=4, backup_count=0)
    c.assign()
    for name in "AB":
        c.feed(name, DiskMeasured(disk(unsynced_bytes=2048, unsynced_ms=150)))
    assert against_kill(c, "A") == {"only_here": 2}
    assert judged(c, "A").against_kill[0].said.endswith("they would not be served until it is back with its folder")
    assert judged(c, "A").against_kill[0].advice == "let it leave, with phalanx members --leave: it hands over its data"
    assert judged(c, "A").may_leave
    assert (
        "2 partitions are not served from SIGTERM until it is back: no backups are configured" in judged(c, "A").notes
    )
    assert (
        "its folder has all that it holds; 2.0 KiB of it, from the last 0.1 s, are not synced yet"
        in judged(c, "A").notes
    )
    c = Drawn("A", partition_count=4, backup_count=0)
    c.assign()
    c.feed("A", DiskMeasured(disk()))
    found = judged(c, "A")
    assert found.may_be_killed
    assert found.may_leave
    assert found.notes[-2:] == [
        "its folder has all that it holds",
        "no other member stays to take it over: it stays in the folder, and comes back when the member starts again",
    ]


def judged_power(c: Drawn, disks: dict[str, DiskStatus | None]) -> PowerJudgement:
    """May all members lose power now, if they have these disks? None: no folder. Who is left out does not answer."""
    answers: dict[MemberId, m.SafetyReply | None] = dict.fromkeys(map(c.id, c.nodes))
    for name, report in disks.items():
        if report is not None:
            c.feed(name, DiskMeasured(report))
        reply = c.replies[c.ask(name, m.GetSafety)]
        assert isinstance(reply, m.SafetyReply)
        answers[c.id(name)] = reply
    table = c.replies[c.ask("A", m.GetTable, False)]
    assert isinstance(table, m.TableReply)
    return judge_power(placement_of(table), answers)


def whole_cluster() -> Drawn:
    c = Drawn("ABC", partition_count=3)
    c.assign(rows=["AB", "BC", "CA"])
    return c


def test_members_with_folders_may_all_lose_power() -> None:
    found = judged_power(whole_cluster(), {"A": disk(device="a"), "B": disk(device="b"), "C": disk(device="c")})
    assert found.against == []
    assert found.notes == ["what was written in the last 200 ms or so before the cut can be lost, on a slow disk more"]


def test_what_is_not_synced_is_told_before_the_power_goes() -> None:
    late = disk(device="b", unsynced_bytes=3 * 1024 * 1024, unsynced_ms=2_300)
    found = judged_power(whole_cluster(), {"A": disk(device="a"), "B": late, "C": disk(device="c")})
    assert found.notes[0] == "3.0 MiB on 1 member were not synced a moment ago, the oldest for 2.3 s"


def test_a_member_without_a_folder_is_no_reason_as_long_as_others_have_what_it_holds() -> None:
    assert judged_power(whole_cluster(), {"A": disk(device="a"), "B": disk(device="b"), "C": None}).against == []


def test_partitions_in_no_folder_and_a_majority_without_votes_are_reasons() -> None:
    found = judged_power(whole_cluster(), {"A": disk(device="a"), "B": None, "C": None})
    assert [(each.what, each.count) for each in found.against] == [("no_folder", 1), ("no_majority", 2)]


def test_a_silent_member_and_a_failed_disk_are_reasons() -> None:
    found = judged_power(whole_cluster(), {"A": disk(device="a"), "B": disk(state="failed", why="EIO")})
    assert [each.what for each in found.against] == ["disk_failed", "no_answer"]


def test_copies_that_are_all_on_one_disk_are_told() -> None:
    """Partition 1 is on B and C, which have one file system; it is full power that they survive, and not its loss."""
    found = judged_power(whole_cluster(), {"A": disk(device="a"), "B": disk(device="x"), "C": disk(device="x")})
    assert found.against == []
    assert found.notes[-1].endswith("have their folders on one file system: all copies of 1 partition are on that disk")
