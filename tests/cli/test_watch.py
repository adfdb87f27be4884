"""`phalanx partitions --watch`: what a look tells, how it is shown, and when watching ends."""

import io
import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from rich.console import Console

from phalanx.cli.progress import Until, Watched, ends, render
from phalanx.common.ids import MemberId
from phalanx.common.losses import AbsentMember, DepartedHolder, Loss, LossBook, LossKind, bits_of
from phalanx.common.migration import Migration, MigrationKind
from phalanx.common.table import unassigned_table
from phalanx.reports.partitions import Seen
from phalanx.reports.placement import Placement
from phalanx.reports.progress import in_one_line
from phalanx.wire import messages as m
from support.commands import Command
from support.harness import TEXT, name_of
from support.harness import Cluster as Drawn
from support.processes import Cluster, free_port, wait_for

MANY = 4


def told(c: Drawn, name: str = "A") -> m.MigrationsReply:
    reply = c.replies[c.ask(name, m.GetMigrations)]
    assert isinstance(reply, m.MigrationsReply)
    return reply


def seen(c: Drawn, name: str = "A") -> Seen:
    view, table = c.nodes[name].membership.view, c.table(name)
    assert view is not None
    return Seen(Placement(view, table, table.maps.depth), told(c, name))


def drawn(what: Seen, watched: Watched | None = None, width: int = 80) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(what, watched or Watched([], "test")))
    return console.export_text()


def in_the_middle(**settings: Any) -> Drawn:
    """C has joined, and copies to it stand still: nothing of them arrives."""
    c = Drawn("AB", partition_count=MANY, **settings)
    c.assign(rows=["AB", "BA", "AB", "BA"])
    for partition in range(MANY):
        c.put(c.replicas("A", partition)[0], c.key(partition), TEXT + b"v")
    c.settle()
    c.swallow = lambda sender, receiver, message: isinstance(message, m.CopyChunk)
    c.join("C")
    while not told(c).under_way:
        c.advance(100)
    return c


def test_only_the_master_tells_what_is_moved_and_the_others_who_that_is() -> None:
    c = in_the_middle()
    assert [told(c, name).is_master for name in "ABC"] == [True, False, False]
    assert [told(c, name).master for name in "ABC"] == [c.id("A")] * 3
    assert told(c, "B").under_way == []


def test_planned_arrived_and_remaining_count_partitions_and_done_counts_migrations() -> None:
    c = in_the_middle(migrations_per_member=1)
    before = told(c)
    assert (before.planned, before.arrived, before.done) == (before.remaining, 0, 0)
    assert before.remaining >= 2
    assert not seen(c).is_whole
    [moving] = before.under_way
    assert moving.migration.destination == c.id("C")
    assert (moving.phase, moving.owner) == ("ordered", c.table("A").owner(moving.partition))
    assert moving.age_ms <= 100
    c.advance(700)
    assert told(c).under_way[0].age_ms == moving.age_ms + 700
    c.swallow = lambda sender, receiver, message: False
    c.advance(60_000)
    after = told(c)
    assert (after.planned, after.arrived, after.remaining) == (before.planned, before.planned, 0)
    assert after.done >= before.planned
    assert after.at_rest
    assert seen(c).is_whole


def test_one_that_has_just_joined_and_has_no_table_yet_is_waited_for() -> None:
    c = Drawn("AB", partition_count=MANY)
    c.assign()
    c.join("C")
    found = seen(c)
    assert found.migrations is not None
    assert found.migrations.without_table == [c.id("C")]
    assert not found.is_whole
    assert in_one_line(found) == "3 members, the table is being sent to C:5701"


def test_who_asks_one_without_a_table_hears_what_the_master_does() -> None:
    c = in_the_middle()
    asked = seen(c)
    placement = Placement(asked.placement.view, unassigned_table(MANY), 1)
    found = Seen(placement, told(c))
    assert in_one_line(found) == "3 members, rebalancing, 0 of 2 partitions moved"


def test_leaving_members_tell_how_much_they_have_to_hand_over() -> None:
    c = Drawn("ABC", partition_count=MANY)
    c.assign()
    held = c.table("A").loads()[c.id("C")]
    c.swallow = lambda sender, receiver, message: isinstance(message, m.MigrationReady | m.MigrationAnswer)
    c.leave("C")
    c.settle()
    [leaving] = told(c).leaving
    assert (leaving.member, leaving.replicas) == (c.id("C"), c.table("A").loads()[c.id("C")])
    assert leaving.replicas <= held
    assert f"C:5701 has {leaving.replicas} replicas to hand over" in in_one_line(seen(c))
    assert "1 member leaves" in in_one_line(seen(c))
    assert not seen(c).is_whole


def test_a_new_master_tells_for_whose_table_it_waits() -> None:
    c = Drawn("ABC", partition_count=MANY)
    c.assign()
    c.hold("C", "B")
    c.crash("A")
    c.advance(400)
    while c.master("B") != "B" or not told(c, "B").searching_for:
        c.deliver("C", "B")
        c.settle()
    assert told(c, "B").searching_for == [c.id("C")]
    assert "the new master asks C:5701 for the newest table" in in_one_line(seen(c, "B"))


def test_the_screen_names_each_migration_with_its_ends_and_their_indexes() -> None:
    c = in_the_middle()
    found = seen(c)
    assert found.migrations is not None
    screen = drawn(found)
    assert f"{MANY} partitions on 3 members" in screen
    assert f"0 of {found.migrations.planned} partitions, 0 migrations" in screen
    for each in found.migrations.under_way:
        source, destination = ends(each.migration)
        [line] = [line for line in screen.splitlines() if line.split()[:1] == [str(each.partition)]]
        assert line.split()[1] == str(each.migration.kind)
        assert source in line
        assert destination in line
        assert destination.startswith(f"C:5701 to {each.migration.destination_new_index}")
    receiving = next(line for line in screen.splitlines() if line.startswith("C:5701"))
    assert receiving.split()[4] == str(len(found.migrations.under_way))


def test_more_migrations_than_a_screen_holds_are_counted() -> None:
    c = in_the_middle()
    found = seen(c)
    assert found.migrations is not None
    one = found.migrations.under_way[0]
    many = [m.MigrationUnderWay(p, one.migration, one.owner, "ordered", 1_000 - p) for p in range(30)]
    fields = {name: getattr(found.migrations, name) for name in found.migrations.__struct_fields__}
    screen = drawn(Seen(found.placement, m.MigrationsReply(**(fields | {"under_way": many}))))
    assert "and 18 more" in screen
    assert sum(line.split()[1:2] == [str(one.migration.kind)] for line in screen.splitlines()) == 12


def test_the_pace_and_the_time_left_are_told() -> None:
    found = seen(in_the_middle())
    assert found.migrations is not None
    fields = {name: getattr(found.migrations, name) for name in found.migrations.__struct_fields__}
    pace = {"copied_bytes": 150 * 2**20, "took_ms": 5_000, "left_ms": 12_400}
    told = m.MigrationsReply(**(fields | pace))
    assert "partitions moved, 150.0 MiB copied at 30.0 MiB/s, about 12 s left" in in_one_line(
        Seen(found.placement, told)
    )
    assert "\n150.0 MiB copied at 30.0 MiB/s, about 12 s left\n" in drawn(Seen(found.placement, told))
    unknown = m.MigrationsReply(**(fields | {"copied_bytes": 0, "took_ms": 3, "left_ms": None}))
    assert in_one_line(Seen(found.placement, unknown)).endswith("partitions moved")


def test_one_member_alone_is_one() -> None:
    c = Drawn("A", partition_count=1)
    c.assign()
    assert in_one_line(seen(c)).startswith("1 member, all replicas are in place")
    assert " on 1 member, table" in drawn(seen(c))


def test_an_end_that_there_is_not_is_a_dash() -> None:
    c = Drawn("A", partition_count=1)
    assert ends(Migration(MigrationKind.COPY, None, -1, -1, c.id("A"), -1, 2)) == ("-", "A:5701 to 2")
    assert ends(Migration(MigrationKind.MOVE, c.id("A"), 0, -1, c.id("A"), 2, 0)) == ("A:5701 0 out", "A:5701 2 to 0")
    assert name_of(c.id("A")) == "A"


def test_what_a_leaving_member_held_at_first_is_the_whole_of_its_bar() -> None:
    c = Drawn("A", partition_count=1)
    watched = Watched([], "test")
    watched._held_at_first[c.id("A")] = 10
    assert watched.handed_over(c.id("A"), 4) == (6, 10)
    assert watched.handed_over(c.id("A"), 12) == (0, 12)


def test_watching_ends_when_all_is_whole(phalanx_command: Command, cluster: Cluster) -> None:
    first, *_ = cluster.start(2)
    with cluster.client() as grid:
        grid.map("m").put_all((number, b"x" * 1000) for number in range(2000))
    [third] = cluster.start(1)
    name = ("--at", first.address, "--cluster", cluster.name)
    shown = phalanx_command("partitions", "--until-whole", *name)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.splitlines()[-1].startswith("3 members, all replicas are in place")
    assert sum(len(row) for row in cluster.table_of(third).table.rows) == 2 * 271
    assert cluster.table_of(first).table.loads()[third.member] in (180, 181)
    looks = phalanx_command("partitions", "--watch", "--until-whole", "--json", *name)
    last = json.loads(looks.stdout.splitlines()[-1])
    assert (last["whole"], last["under_replicated"]) == (True, 0)
    migrations = last["migrations"]
    assert (migrations["at_rest"], migrations["remaining"], migrations["under_way"]) == (True, 0, [])
    assert migrations["planned"] == migrations["arrived"]
    cluster.kill(third)
    wait_for(lambda: len(cluster.view_of(first).members) == 2, "it is removed")
    assert (
        phalanx_command("partitions", "--until-whole", *name)
        .stdout.splitlines()[-1]
        .startswith("2 members, all replicas are in place")
    )
    assert cluster.table_of(first).table.loads() == {member.member: 271 for member in cluster.members}


@pytest.mark.parametrize("arguments", [["--watch"], ["--until-whole", "--json"]])
def test_when_nobody_answers_that_is_one_line(phalanx_command: Command, arguments: tuple[str, ...]) -> None:
    result = phalanx_command("partitions", "--at", "127.0.0.1:1,127.0.0.1:2", *arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "127.0.0.1:1" in result.stderr
    assert "127.0.0.1:2" in result.stderr


def test_a_cluster_that_nobody_has_used_is_whole_as_nothing_lacks_a_replica() -> None:
    c = Drawn("AB", partition_count=MANY)
    found = seen(c)
    assert not found.placement.table.is_assigned
    assert found.is_whole
    assert (
        in_one_line(found)
        == "2 members, all replicas are in place: no caller has used data yet, so no partition needs a replica"
    )


def loss(c: Drawn, version: int) -> Loss:
    gone = (DepartedHolder(MemberId("B:5701/b"), "it hung"),)
    return Loss(version, c.id("A"), version, 1_000, LossKind.EMPTY, MANY, bits_of([0]), gone, 1)


@pytest.mark.parametrize(
    ("losses", "earlier", "away", "noted"),
    [
        (1, 0, 0, "1 loss is not acknowledged"),
        (2, 3, 0, "5 losses are not acknowledged"),
        (0, 0, 1, "1 removed member has not come back"),
        (2, 0, 2, "2 losses are not acknowledged and 2 removed members have not come back"),
    ],
)
def test_all_is_whole_comes_with_what_was_lost_before(losses: int, earlier: int, away: int, noted: str) -> None:
    c = Drawn("A", partition_count=MANY)
    c.assign()
    book = LossBook(
        losses=tuple(loss(c, version) for version in range(1, losses + 1)),
        earlier=earlier,
        away=tuple(AbsentMember(MemberId(f"B:570{n}/b"), 1_000, "it hung") for n in range(away)),
    )
    found = seen(c)
    whole = in_one_line(found)
    assert whole == "1 member, all replicas are in place"
    found = msgspec.structs.replace(found, losses=m.LossesReply(1, book, found.placement.view, 2_000))
    said = f"{noted}: see phalanx partitions --at A:5701"
    assert in_one_line(found) == f"{whole}; {said}"
    assert said in drawn(found, width=200)
    assert Until().waits_for(found) == "", "there is nothing to wait for"
    assert (
        in_one_line(msgspec.structs.replace(found, losses=m.LossesReply(1, LossBook(), found.placement.view, 2_000)))
        == whole
    )


def test_members_without_data_are_never_whole() -> None:
    c = Drawn("", partition_count=MANY)
    c.start("A", lite=True)
    c.settle()
    assert not seen(c).is_whole
    assert "no member holds data" in in_one_line(seen(c))


def test_waiting_for_an_unused_cluster_ends_without_assigning_anything(
    phalanx_command: Command, cluster: Cluster
) -> None:
    first, *_ = cluster.start(2)
    name = ("--at", first.address, "--cluster", cluster.name)
    shown = phalanx_command("partitions", "--until-whole", "--wait", "20", *name)
    assert shown.exit_code == 0, shown.stderr
    assert "no caller has used data yet" in shown.stdout.splitlines()[-1]
    looks = phalanx_command("partitions", "--until-whole", "--wait", "20", "--json", *name)
    assert json.loads(looks.stdout.splitlines()[-1])["whole"] is True
    assert cluster.table_of(first).table.version == 0
    with cluster.client() as grid:
        grid.map("m").put("k", "v")
    after = cluster.table_of(first)
    assert {len(row) for row in after.table.rows} == {2}, "the first write has its backup"


def test_waiting_for_members_begins_before_the_first_of_them_listens(cluster: Cluster) -> None:
    """As a script does it: members in the background, and the next line waits until they are there."""
    port = free_port()
    waiting = subprocess.Popen(
        [sys.executable, "-m", "phalanx", "partitions", "--until-whole", "--members", "2", "--wait", "60",
         "--at", f"127.0.0.1:{port}", "--cluster", cluster.name],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert waiting.stdout is not None
        assert "no member answers yet" in waiting.stdout.readline()
        cluster.start(1, options=("--port", str(port)))
        assert waiting.stdout.readline() == "1 member, waits for 1 more\n"
        cluster.start(1)
        rest, problems = waiting.communicate(timeout=30)
    finally:
        waiting.kill()
        waiting.communicate()
    assert (waiting.returncode, problems) == (0, "")
    assert rest.splitlines()[-1].startswith("2 members, all replicas are in place")


def test_what_does_not_come_in_time_is_told_with_status_one(phalanx_command: Command, cluster: Cluster) -> None:
    [only] = cluster.start(1)
    name = ("--at", only.address, "--cluster", cluster.name)
    result = phalanx_command("partitions", "--until-whole", "--members", "2", "--wait", "0.5", *name)
    assert (result.exit_code, result.stderr) == (1, "phalanx: not whole after 0.5 s: 1 member, waits for 1 more\n")
    wrong = phalanx_command("partitions", "--until-whole", "--members", "2", "--at", only.address, "--cluster", "other")
    assert wrong.exit_code == 1, "another cluster is not waited for"
    assert "belongs to cluster" in wrong.stderr
    for arguments in (["--members", "2"], ["--wait", "1"]):
        result = phalanx_command("partitions", *arguments, *name)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "--until-whole" in result.stderr
