"""`phalanx members`, `partitions` and `map` against real members."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.commands import Ask, Command
from support.processes import Cluster, wait_for


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two members, which nobody has used yet when the first test runs."""
    members = Cluster(tmp_path_factory.mktemp("pair"))
    try:
        members.start(2)
        yield members
    finally:
        members.stop()


@pytest.fixture
def ask(phalanx_command: Command, pair: Cluster) -> Ask:
    """Runs a command against the first member; with `--json`, what it printed as an object."""

    def run(*arguments: object, status: int = 0) -> Any:
        result = phalanx_command(*arguments, "--at", pair.members[0].address, "--cluster", pair.name)
        assert result.exit_code == status, result.stderr
        return json.loads(result.stdout) if "--json" in arguments else result.stdout

    return run


def test_looking_assigns_no_partitions(ask: Ask, pair: Cluster) -> None:
    seen = ask("members", "--json")
    assert (seen["size"], seen["version"]) == (2, 2)
    assert [member["address"] for member in seen["members"]] == [member.address for member in pair.members]
    assert seen["master"] == seen["asked"] == pair.members[0].member
    assert [member["master"] for member in seen["members"]] == [True, False]
    looked = ask("partitions", "--json")
    assert (looked["assigned"], looked["table_version"], looked["without_owner"]) == (False, 0, 271)
    assert "Not assigned yet" in ask("partitions")
    assert pair.table_of(pair.members[0]).table.version == 0


@pytest.mark.rows("CS-75")
def test_members_are_shown_oldest_first_with_size_and_version(ask: Ask, pair: Cluster) -> None:
    shown = ask("members")
    assert "Members {size:2, ver:2}" in shown
    places = [shown.index(member.address) for member in pair.members]
    assert places == sorted(places)


def test_entries_are_put_found_and_removed(ask: Ask) -> None:
    ask("map", "put", "fruit", "apple", '{"eur": 1.2}')
    ask("map", "put", "fruit", "pear", "green and\tripe")
    ask("map", "put", "fruit", '["a", 1]', "7", "--key-type", "json")
    assert ask("map", "put", "fruit", "5", "five", "--key-type", "int", "--json") == {
        "map": "fruit",
        "key": 5,
        "stored": True,
    }
    assert ask("map", "get", "fruit", "apple") == '{"eur":1.2}\n'
    assert ask("map", "get", "fruit", "5", "--key-type", "int") == "five\n"
    assert ask("map", "get", "fruit", "5", "--json", status=1)["found"] is False
    assert ask("map", "get", "fruit", '["a",1]', "--key-type", "json", "--json")["value"] == 7
    assert ask("map", "size", "fruit") == "4\n"
    assert ask("map", "size", "fruit", "--json") == {"map": "fruit", "size": 4}
    assert sorted(ask("map", "scan", "fruit").splitlines()) == [
        "5\tfive",
        '["a",1]\t7',
        'apple\t{"eur":1.2}',
        'pear\t"green and\\tripe"',
    ]
    assert len(ask("map", "scan", "fruit", "--limit", "3").splitlines()) == 3
    assert ask("map", "remove", "fruit", "apple") == '{"eur":1.2}\n'
    ask("map", "remove", "fruit", "apple", status=1)
    assert ask("map", "size", "fruit") == "3\n"


def test_a_stored_null_is_not_a_missing_entry(ask: Ask) -> None:
    ask("map", "put", "nulls", "k", "null")
    assert ask("map", "get", "nulls", "k", "--json") == {"map": "nulls", "key": "k", "found": True, "value": None}
    assert ask("map", "remove", "nulls", "k", "--json")["found"] is True
    assert ask("map", "get", "nulls", "k", "--json", status=1)["found"] is False


def test_an_entry_with_a_time_to_live_goes(ask: Ask) -> None:
    ask("map", "put", "brief", "k", "v", "--ttl", "0.2")
    wait_for(lambda: ask("map", "size", "brief") == "0\n", "the entry has gone")


def test_a_scan_with_json_is_an_object_a_line(phalanx_command: Command, pair: Cluster) -> None:
    with pair.client() as grid:
        grid.map("many").put_all((number, {"n": number}) for number in range(500))
    result = phalanx_command("map", "scan", "many", "--json", "--at", pair.addresses, "--cluster", pair.name)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(row["key"] for row in rows) == list(range(500))
    assert all(row["value"] == {"n": row["key"]} for row in rows)


def test_partitions_say_who_holds_what(ask: Ask, pair: Cluster) -> None:
    with pair.client() as grid:
        grid.map("held").put_all((number, number) for number in range(1000))
        total = sum(len(grid.map(name)) for name in grid.map_names())
    pair.wait_redundant()
    seen = ask("partitions", "--all", "--json")
    assert (seen["partition_count"], seen["assigned"], seen["under_replicated"], seen["without_owner"]) == (
        271,
        True,
        0,
        0,
    )
    assert sum(member["owned"] for member in seen["members"]) == 271
    assert sum(member["backups"] for member in seen["members"]) == 271
    assert [member["entries"] for member in seen["members"]] == [total, total]
    assert len(seen["partitions"]) == 271
    assert all(len(set(partition["replicas"])) == 2 for partition in seen["partitions"])
    assert sum(partition["version"] for partition in seen["partitions"]) == seen["table_version"]
    shown = ask("partitions", "--all")
    assert "Replicas of each: 2 of 2 configured." in shown
    assert sum(line.lstrip().startswith("270  ver") for line in shown.splitlines()) == 1


def test_another_clusters_name_is_told(phalanx_command: Command, pair: Cluster) -> None:
    for command in (["members"], ["partitions"], ["map", "size", "m"]):
        result = phalanx_command(*command, "--at", pair.members[0].address, "--cluster", "other")
        assert result.exit_code == 1
        assert "belongs to cluster 'test', not to 'other'" in result.stderr
        assert result.stderr.count("\n") == 1


def test_the_first_address_that_answers_will_do(phalanx_command: Command, pair: Cluster) -> None:
    at = f"127.0.0.1:1,{pair.members[1].address}"
    result = phalanx_command("members", "--json", "--at", at, "--cluster", pair.name)
    assert json.loads(result.stdout)["asked"] == pair.members[1].member


def test_a_member_that_hangs_is_told_within_seconds(phalanx_command: Command, cluster: Cluster) -> None:
    """The kernel takes the connection for it, so only the missing answer tells."""
    cluster.start(2)
    with cluster.client() as grid:
        grid.map("m").put("k", "v")
    master, other = cluster.members
    cluster.pause(other)
    arguments = ("--cluster", cluster.name)
    hung = phalanx_command("members", "--at", other.address, *arguments)
    assert hung.exit_code == 1
    assert "did not answer within" in hung.stderr
    shown = phalanx_command("partitions", "--at", master.address, *arguments)
    assert shown.exit_code == 0
    assert "no answer" in shown.stdout
    cluster.resume(other)
