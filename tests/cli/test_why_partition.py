"""`phalanx why PARTITION`: who held it when, which migrations there were, and what is told when little is known."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.commands import Ask, Command, JsonObject
from support.processes import Cluster, wait_for

A, B, C = "127.0.0.1:1/aaaa-1", "127.0.0.1:2/bbbb-1", "127.0.0.1:3/cccc-1"


def assigned(at: int, *rows: list[int]) -> JsonObject:
    return {
        "at": at, "event": "PartitionsAssigned", "table_version": len(rows), "partitions": len(rows), "members": [A, B],
        "rows": rows, "rule": "DL-02",
    }  # fmt: skip


def migration(
    at: int, event: str, kind: str, source: list[Any], destination: list[Any], version: int, **more: object
) -> JsonObject:
    """`source`, `destination`: the member, its index before and its index after."""
    ends = {
        f"{name}{field}": value
        for name, end in (("source", source), ("destination", destination))
        for field, value in zip(("", "_current_index", "_new_index"), end or [None, -1, -1], strict=True)
    }
    told = {"at": at, "event": event, "partition": 1, "kind": kind, "partition_version": version, "table_version": 9}
    return told | ends | {"rule": "DL-58"} | more


def started(at: int, kind: str, source: list[Any], destination: list[Any], version: int) -> JsonObject:
    return migration(at, "MigrationStarted", kind, source, destination, version, owner=A)


def committed(
    at: int, kind: str, source: list[Any], destination: list[Any], version: int, replicas: list[Any]
) -> JsonObject:
    return migration(at, "MigrationCommitted", kind, source, destination, version, took_ms=5, replicas=replicas)


def repaired(at: int, gone: str, *, promoted: tuple[int, ...] = (), lost: tuple[int, ...] = ()) -> JsonObject:
    return {
        "at": at, "event": "PartitionsRepaired", "table_version": 11, "promoted": promoted, "lost": lost, "gone": [gone],
        "rule": "DL-05 DL-09",
    }  # fmt: skip


def finalized(at: int, endpoint: str, before: int, after: int, version: int) -> JsonObject:
    return {
        "at": at, "event": "MigrationFinalized", "partition": 1, "partition_version": version, "endpoint": endpoint,
        "current_replica_index": before, "new_replica_index": after, "committed": True, "partition_version_now": version + 1,
        "rule": "DL-24",
    }  # fmt: skip


@pytest.fixture
def why(phalanx_command: Command, tmp_path: Path) -> Ask:
    """Writes events, one list per member, and asks about a partition; what was found as an object."""

    def run(partition: int, **events: list[JsonObject]) -> JsonObject:
        for name, decided in events.items():
            by = {"A": A, "B": B, "C": C}[name]
            lines = [{"cluster": "phalanx", "member": by, "address": by.partition("/")[0], **each} for each in decided]
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = phalanx_command("why", partition, "--event-log", tmp_path, "--json")
        assert result.exit_code == 0, result.stderr
        found: JsonObject = json.loads(result.stdout)
        return found

    return run


MOVE = ("move", [A, 0, -1], [C, -1, 0])


def test_who_held_it_when_is_worked_out_from_the_assignment_commits_and_departures(why: Ask) -> None:
    found = why(
        1,
        A=[
            assigned(10, [1, 0], [0, 1]),
            started(20, *MOVE, 1),
            committed(25, *MOVE, 1, [C, B]),
            repaired(30, C, promoted=(1,)),
            started(40, "copy", [], [A, -1, 1], 3),
            committed(41, "copy", [], [A, -1, 1], 3, [B, A]),
            repaired(50, A),
        ],
    )
    assert [(row["since"], row["replicas"]) for row in found["held"]] == [
        (10, [A, B]), (25, [C, B]), (30, [B]), (41, [B, A]), (50, [B]),
    ]  # fmt: skip
    assert (found["committed"], found["rolled_back"], found["promotions"], found["losses"]) == (2, 0, 1, 0)
    assert (found["replicas"], found["under_way"]) == ([B], None)
    said = [each["said"] for each in found["decisions"]]
    assert said[1] == (
        "orders a move: 127.0.0.1:1 from 0 to none, 127.0.0.1:3 from none to 0; 127.0.0.1:1 sends (partition version 1)"
    )
    assert said[3].startswith(
        "makes the hottest backup the owner, because 127.0.0.1:3 left (table version 11); held by "
    )
    assert found["conclusion"].startswith("partition 1 is held by 127.0.0.1:2, since ")


def test_a_hole_that_a_departure_left_shows(why: Ask) -> None:
    shift_down = ("shift-down", [A, 1, 2], [C, -1, 1])
    found = why(1, B=[committed(5, *shift_down, 4, [B, C, A]), repaired(6, C)])
    assert [row["replicas"] for row in found["held"]] == [[B, A], [B, C, A], [B, None, A]]
    assert "127.0.0.1:2, (missing), 127.0.0.1:1" in found["conclusion"]


def test_without_the_beginning_the_first_commit_tells_who_held_it_before(why: Ask) -> None:
    found = why(1, A=[committed(25, *MOVE, 1, [C, B])])
    assert found["held"] == [{"since": None, "replicas": [A, B]}, {"since": 25, "replicas": [C, B]}]


def test_a_rollback_is_told_with_its_reason_and_leaves_the_row(why: Ask) -> None:
    rolled_back = migration(30, "MigrationRolledBack", *MOVE, 1, reason="127.0.0.1:3/cccc-1 left")
    found = why(1, A=[assigned(10, [1, 0], [0, 1]), started(20, *MOVE, 1), rolled_back])
    assert (found["rolled_back"], found["replicas"], len(found["held"])) == (1, [A, B], 1)
    assert found["decisions"][-1]["reason"] == "127.0.0.1:3/cccc-1 left"
    assert found["decisions"][-1]["said"].startswith("rolls back the move: 127.0.0.1:1 from 0 to none")


def test_a_search_that_rolls_it_back_counts_and_one_about_others_is_not_told(why: Ask) -> None:
    search = {
        "at": 30, "event": "TableSearchEnded", "found_at": B, "table_version": 9, "rolled_back": [1], "adopted": [],
        "rule": "DL-12 DL-30",
    }  # fmt: skip
    found = why(1, B=[started(20, *MOVE, 1), search, search | {"at": 31, "rolled_back": [0]}])
    assert (found["rolled_back"], found["under_way"]) == (1, None)
    assert [each["event"] for each in found["decisions"]] == ["MigrationStarted", "TableSearchEnded"]


def test_a_loss_is_told_with_who_held_it_and_who_begins_empty(why: Ask) -> None:
    lost = {
        "at": 30, "event": "PartitionLost", "partition": 1, "replicas": [A, B], "partition_version": 2,
        "table_version": 4, "replicas_now": [C], "rule": "DL-05",
    }  # fmt: skip
    found = why(1, C=[assigned(10, [1, 0], [0, 1]), lost, repaired(30, A, lost=(1,))])
    assert (found["losses"], found["replicas"]) == (1, [C])
    assert "all members that held it have left (127.0.0.1:1, 127.0.0.1:2): it begins empty; held by 127.0.0.1:3" in [
        each["said"] for each in found["decisions"]
    ]


def test_one_under_way_is_told_and_other_partitions_are_not(why: Ask) -> None:
    other = started(21, *MOVE, 1) | {"partition": 2}
    found = why(1, A=[started(20, *MOVE, 1), other])
    assert found["under_way"]["kind"] == "move"
    assert "; a move is under way, since " in found["conclusion"]
    assert len(found["decisions"]) == 1


def test_clocks_that_differ_do_not_turn_cause_and_effect_round(why: Ask) -> None:
    """C's clock is behind: its commit comes after the order that it obeys; and the next order after the first commit."""
    found = why(
        1,
        A=[
            started(20, *MOVE, 1),
            committed(25, *MOVE, 1, [C, B]),
            started(25, "copy", [], [A, -1, 2], 2),
            finalized(26, "source", 0, -1, 1),
        ],
        C=[finalized(12, "destination", -1, 0, 1)],
    )
    assert [(each["event"], each["by"]) for each in found["decisions"]] == [
        ("MigrationStarted", A), ("MigrationFinalized", C), ("MigrationCommitted", A), ("MigrationStarted", A),
        ("MigrationFinalized", A),
    ]  # fmt: skip


@pytest.mark.rows("DL-38", "DL-39", "DL-40")
def test_the_ends_tell_their_replica_index_before_and_after(why: Ask) -> None:
    found = why(1, A=[finalized(5, "source", 0, -1, 1)], C=[finalized(4, "destination", -1, 0, 1)])
    assert [each["said"] for each in found["decisions"]] == [
        "learns as the destination (none to 0) that it was committed",
        "learns as the source (0 to none) that it was committed",
    ]


def test_what_is_about_partitions_is_not_told_of_members(phalanx_command: Command, why: Ask, tmp_path: Path) -> None:
    why(1, A=[started(20, *MOVE, 1), repaired(30, C, promoted=(1,))])
    result = phalanx_command("why", "127.0.0.1:3", "--event-log", tmp_path, "--json")
    assert [each["event"] for each in json.loads(result.stdout)["decisions"]] == ["PartitionsRepaired"]


def test_nothing_known_is_one_line(phalanx_command: Command, why: Ask, tmp_path: Path) -> None:
    why(1, A=[started(20, *MOVE, 1)])
    result = phalanx_command("why", 77, "--event-log", tmp_path)
    assert (result.exit_code, result.stderr) == (1, "phalanx: nothing is known of partition 77\n")


def test_living_members_tell_what_became_of_a_partition(phalanx_command: Command, cluster: Cluster) -> None:
    first, second = cluster.start(2)
    with cluster.client() as grid:
        grid.map("m").put_all((number, number) for number in range(500))
    cluster.wait_redundant()
    held = cluster.table_of(first).table
    number = next(p for p in range(271) if held.owner(p) == second.member)
    name = ("--cluster", cluster.name)

    def ask() -> JsonObject:
        result = phalanx_command("why", number, "--at", first.address, "--json", *name)
        assert result.exit_code == 0, result.stderr
        found: JsonObject = json.loads(result.stdout)
        return found

    assert (ask()["replicas"], len(ask()["held"])) == ([second.member, first.member], 1)
    [third] = cluster.start(1)
    cluster.kill(second)
    both = {first.member, third.member}
    wait_for(lambda: set(ask()["replicas"]) == both, "the two that are left hold it")
    found = ask()
    assert found["held"][0]["replicas"] == [second.member, first.member]
    assert found["held"][-1]["replicas"] == found["replicas"]
    assert found["committed"] >= 1
    assert found["losses"] == 0
    shown = phalanx_command("why", number, "--at", third.address, *name).stdout
    assert re.search(rf"^Partition {number} \(version \d+\) is held by ", shown)
    logged = phalanx_command("why", number, "--event-log", cluster.event_log, "--json", *name)
    assert json.loads(logged.stdout)["replicas"] == found["replicas"]
    none = phalanx_command("why", 271, "--at", first.address, *name)
    assert (none.exit_code, none.stderr) == (
        1,
        "phalanx: there is no partition 271: the 271 are numbered from 0; a member is host:port\n",
    )
