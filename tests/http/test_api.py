"""The answers of `/api` are those of the command line, whichever member is asked."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer.testing

import phalanx
from http_asking import ask, listening
from phalanx.cli.main import app
from phalanx.runtime.member_thread import MemberThread
from phalanx.testing import LocalCluster

CHANGING = {"age_ms", "took_ms", "left_ms", "asked", "memory_used", "notes"}
"""Fields that two askers, or the same one a moment later, need not hear the same."""


class Asked(NamedTuple):
    cluster: LocalCluster
    members: tuple[MemberThread, MemberThread]


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with LocalCluster(2) as cluster:
        first = phalanx.start_member_in_thread(cluster.config(http_port=0))
        second = phalanx.start_member_in_thread(cluster.config(http_port=0))
        with first, second:
            for number in range(4):
                first.map(f"map {number}").put_all(dict.fromkeys(range(100 * (number + 1)), "value"))
            cluster.until_whole()
            yield Asked(cluster, (first, second))


def settled(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: settled(value) for name, value in found.items() if name not in CHANGING}
    return [settled(each) for each in found] if isinstance(found, list) else found


def printed(member: MemberThread, cluster: str, *arguments: str) -> Any:
    given = [*arguments, "--at", member.address, "--cluster", cluster, "--json"]
    result = typer.testing.CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return lines if arguments[0] == "map" else lines[0]


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("members", ["members"]),
        ("partitions", ["partitions"]),
        ("partitions/every", ["partitions", "--all"]),
        ("safety", ["safe"]),
    ],
)
def test_answers_are_those_of_the_command_line(asked: Asked, path: str, command: list[str]) -> None:
    for member in asked.members:
        answer = ask(member.http_port, f"/api/{path}")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        shown = printed(member, asked.cluster.name, *command)
        lost = {"unacknowledged_losses", "earlier_losses", "away"}
        wanted = {name: value for name, value in shown.items() if path != "safety" or name not in lost}
        assert settled(answer.json) == settled(wanted)


def test_maps_are_listed_with_their_sizes(asked: Asked) -> None:
    for member in asked.members:
        found = ask(member.http_port, "/api/maps").json["maps"]
        assert found == printed(member, asked.cluster.name, "map", "list")
        assert [(each["map"], each["size"]) for each in found] == [(f"map {n}", 100 * (n + 1)) for n in range(4)]


def test_the_document_names_what_can_be_asked(asked: Asked) -> None:
    document = ask(asked.members[0].http_port, "/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for path, operations in document["paths"].items():
        assert ask(asked.members[0].http_port, path).status == 200
        assert set(operations) == {"get"}
        assert ask(asked.members[0].http_port, path, method="POST").status == 405


def test_what_cannot_be_answered_now_says_why() -> None:
    with (
        LocalCluster(1, heartbeat_timeout_ms=60_000) as cluster,
        phalanx.start_member_in_thread(cluster.config(http_port=0)) as member,
    ):
        member.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        cluster.hang("A")
        partitions = ask(member.http_port, "/api/partitions")
        assert partitions.status == 200
        assert partitions.json["migrations"] is None, "only the master knows"
        assert {each["entries"] is None for each in partitions.json["members"]} == {True, False}
        assert ask(member.http_port, "/api/safety").json["against_kill"][0]["what"] == "master_silent"
        cluster.resume("A")


def test_a_member_alone_that_stops_answers_nothing_more() -> None:
    member = listening()
    port = member.http_port
    assert ask(port, "/api/losses").json["unacknowledged_losses"] == []
    member.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/api/losses")
