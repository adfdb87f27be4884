"""The answers of `/api` are those of the command line, whichever member is asked."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jsonschema
import pytest
import typer.testing
from openapi_spec_validator import validate

import phalanx
from phalanx.cli.main import app
from phalanx.http import api, shared_answer
from phalanx.http.asked import Asked as Answers
from phalanx.http.asked import Query
from phalanx.runtime.member_thread import MemberThread
from phalanx.testing import LocalCluster
from support.http_asking import ask, listening

CHANGING = {"age_ms", "at", "took_ms", "left_ms", "lease_left_s", "asked", "memory_used", "notes", "conclusion", "said"}
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
    return lines if arguments[:2] == ("map", "list") else lines[0]


def path_of(name: str, /, **query: str | list[str]) -> str:
    return f"/api/{name}" + (f"?{urlencode(query, doseq=True)}" if query else "")


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("members", ["members"]),
        ("partitions", ["partitions"]),
        ("partitions/every", ["partitions", "--all"]),
        ("safety", ["safe"]),
        ("status", ["status"]),
        ("settings", ["map", "settings"]),
        ("settings?map=map+1", ["map", "settings", "map 1"]),
        ("settings?map=*", ["map", "settings", "*"]),
        ("what-if", ["what-if"]),
        ("lock?name=nightly", ["lock", "show", "nightly"]),
        (
            "lock?name=4&map=map+1&key_type=int&permits=2",
            ["lock", "show", "4", "--map", "map 1", "--key-type", "int", "--permits", "2"],
        ),
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


@pytest.mark.parametrize("which", [0, 3, None])
def test_stories_are_those_of_the_command_line(asked: Asked, which: int | None) -> None:
    listed = ask(asked.members[0].http_port, "/api/members").json["members"]
    subject = "7" if which is None else listed[which]["address"]
    for member in asked.members:
        found = ask(member.http_port, path_of("why", subject=subject)).json
        shown = printed(member, asked.cluster.name, "why", subject)
        assert {name: found.get(name) for name in ("status", "member", "replicas", "notes")} == {
            name: shown.get(name) for name in ("status", "member", "replicas", "notes")
        }
        assert set(found) == set(shown)
        # What several members decided within a millisecond has no order; and more may be decided meanwhile.
        told = {json.dumps(settled(each), sort_keys=True) for each in found["decisions"]}
        assert told
        assert told <= {json.dumps(settled(each), sort_keys=True) for each in shown["decisions"]}


def test_what_if_says_who_would_stay(asked: Asked) -> None:
    port = asked.members[0].http_port
    names = [each["address"] for each in ask(port, "/api/members").json["members"]]
    cut = f"{names[1]}-{names[3]}"
    found = ask(port, path_of("what-if", cut=cut)).json
    assert found == printed(asked.members[0], asked.cluster.name, "what-if", "--cut", cut)
    assert (found["kept"], found["removed"], found["cut"]) == (names[:3], names[3:], [[names[1], names[3]]])
    several = ask(port, path_of("what-if", cut=[f"{names[0]}-{names[1]}", cut])).json
    assert (several["kept"], len(several["cut"])) == ([names[0], names[2], names[3]], 2)
    assert (several["is_full_cut"], [side["members"] for side in several["sides"]]) == (
        True,
        [several["kept"], [names[1]]],
    )


def test_a_lock_that_is_held_is_told(asked: Asked) -> None:
    with asked.cluster.client() as grid, grid.lock("nightly job", lease=60) as held:
        found = ask(asked.members[1].http_port, path_of("lock", name="nightly job")).json
        assert [each["token"] for each in found["holders"]] == [found["token"]] == [held.token]
        assert 0 < found["holders"][0]["lease_left_s"] <= 60


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        (path_of("why"), 400, "/api/why needs subject"),
        (path_of("why", subject="10.0.0.1:5701"), 404, "nothing is known of '10.0.0.1:5701'; known are: 127.0.0.1:"),
        (path_of("why", subject="99999"), 404, "there is no partition 99999: the 31 are numbered from 0"),
        (path_of("why", subject="\u00b2"), 404, "nothing is known of"),
        (path_of("why", subject=["1", "2"]), 400, "subject is given several times"),
        (path_of("why", about="1"), 400, "has no parameter 'about'; it has: subject"),
        (path_of("what-if", cut="5701-5702"), 400, "there is no member '5701'; there are: 127.0.0.1:"),
        (path_of("what-if", cut="x"), 400, "expected names on both sides"),
        (path_of("what-if", cut=["*-*"] * 100), 400, "100 cuts are given, and 64 may be"),
        (path_of("what-if", cut="a" * 5000), 400, "the query has more than 4,096 letters"),
        (path_of("settings", map=""), 400, "the name of the map is empty"),
        (path_of("settings", map="a" * 2000), 200, ""),
        (path_of("lock", name="x", permits="many"), 400, "permits: 'many' is not a number"),
        (path_of("lock", name="x", permits="999999999"), 400, "permits"),
        (path_of("lock", name="x", key_type="int"), 400, "'x' is not a key of --key-type int"),
        (path_of("lock", name="x", key_type="hash"), 400, "'hash' is not a type of keys; give one of str, int"),
        (path_of("lock", name="[" * 1300, key_type="json"), 400, "nested too deeply"),
    ],
    ids=lambda given: given[:40] if isinstance(given, str) else None,
)
def test_a_wrong_question_is_told_what_is_wrong(
    asked: Asked, caplog: pytest.LogCaptureFixture, path: str, status: int, problem: str
) -> None:
    answer = ask(asked.members[0].http_port, path)
    assert answer.status == status, answer.text
    assert problem in answer.json.get("error", "")
    assert answer.headers["content-type"] == "application/json"
    assert not [
        record for record in caplog.records if record.name == "phalanx.http"
    ]  # nothing is wrong with the member


def strict(schema: Any) -> Any:
    """The same schema, of which objects have no fields but those that it names."""
    if isinstance(schema, dict):
        found = {name: strict(each) for name, each in schema.items()}
        return found | ({"additionalProperties": False} if "properties" in schema else {})
    return [strict(each) for each in schema] if isinstance(schema, list) else schema


def shape_of(document: Any, path: str, status: int = 200) -> Any:
    schema = document["paths"][path]["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
    return strict({"components": document["components"], **schema})


def test_the_document_says_what_each_answer_has(asked: Asked) -> None:
    port = asked.members[0].http_port
    document = ask(port, "/api/openapi.json").json
    validate(document)
    needed = {"/api/why": {"subject": "1"}, "/api/lock": {"name": "nightly"}}
    for path, operations in document["paths"].items():
        query = f"?{urlencode(needed[path])}" if path in needed else ""
        answer = ask(port, path + query)
        assert answer.status == 200, answer.text
        jsonschema.Draft202012Validator(shape_of(document, path)).validate(answer.json)
        assert set(operations) == {"get"}
        assert ask(port, path, method="POST").status == 405
    for about in ({"subject": asked.members[0].address}, {"subject": "3"}):
        told = ask(port, path_of("why", **about)).json
        jsonschema.Draft202012Validator(shape_of(document, "/api/why")).validate(told)
    wrong = ask(port, "/api/why")
    jsonschema.Draft202012Validator(shape_of(document, "/api/why", wrong.status)).validate(wrong.json)
    assert "security" not in document


def test_the_document_would_not_fit_another_answer(asked: Asked) -> None:
    """Else the test above could not fail."""
    port = asked.members[0].http_port
    document, told = ask(port, "/api/openapi.json").json, ask(port, "/api/safety").json
    for wrong in (told | {"more": 1}, told | {"owned": "many"}, told | {"against_kill": [{"what": "x"}]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(shape_of(document, "/api/safety")).validate(wrong)


def test_answers_of_a_cluster_in_trouble_have_the_same_shape() -> None:
    """Losses, members away, a master that is gone, a map that is protected: fields that a cluster at rest leaves empty."""
    with (
        LocalCluster(2, backup_count=0) as cluster,
        phalanx.start_member_in_thread(cluster.config(http_port=0)) as member,
    ):
        member.map("flights").put_all(dict.fromkeys(range(600), "value"))
        cluster.until_whole()
        gone = cluster["A"].address
        cluster.kill("A")
        cluster.until_whole()
        document = ask(member.http_port, "/api/openapi.json").json
        for path in ("members", "partitions", "losses", "status", "safety"):
            told = ask(member.http_port, f"/api/{path}").json
            jsonschema.Draft202012Validator(shape_of(document, f"/api/{path}")).validate(told)
        lost = ask(member.http_port, "/api/losses").json["unacknowledged_losses"]
        assert [each["address"] for each in ask(member.http_port, "/api/members").json["members"]].count(gone) == 0
        assert lost[0]["kind"] == "empty"
        told = ask(member.http_port, path_of("why", subject=gone)).json
        jsonschema.Draft202012Validator(shape_of(document, "/api/why")).validate(told)
        assert told["status"] == "removed"
        assert settled(told["unacknowledged_losses"]) == settled(lost)
        status = ask(member.http_port, "/api/status").json
        assert (status["well"], "1 loss is not acknowledged" in status["problems"]) == (False, True)


def test_nothing_is_assigned_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answer, "VALID_S", 0.0)
    with listening() as member:
        for path in ("status", "maps", "partitions", "what-if", "settings", path_of("lock", name="x")[5:]):
            assert ask(member.http_port, f"/api/{path}").status == 200, path
        for path in ("/metrics", "/safez", "/readyz"):
            assert ask(member.http_port, path).status == 200, path
        assert ask(member.http_port, "/api/partitions").json["assigned"] is False
        member.map("flights")["UA1"] = "EWR"
        assert ask(member.http_port, "/api/partitions").json["assigned"] is True


def test_many_different_questions_are_answered_one_after_another_and_few_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "MOST_KEPT", 3)
    under_way, most, made = 0, 0, []
    find = Answers.settings

    async def count(self: Answers, query: Query) -> dict[str, Any]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        made.append(query["map"][0])
        await asyncio.sleep(0.01)
        under_way -= 1
        return await find(self, query)

    monkeypatch.setattr(Answers, "settings", count)
    with listening() as member, ThreadPoolExecutor(10) as pool:
        paths = [path_of("settings", map=f"map {number}") for number in range(10)]
        assert {answer.status for answer in pool.map(lambda path: ask(member.http_port, path), paths)} == {200}
        assert (most, len(made)) == (1, 10)
        last = made[-1]
        assert ask(member.http_port, path_of("settings", map=last)).status == 200
        assert len(made) == 10, "the last one is still shared"


def test_a_question_that_hangs_ends_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ANSWER_WITHIN_S", 0.05)

    async def hang(self: Answers, query: Query) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    monkeypatch.setattr(Answers, "settings", hang)
    with listening() as member:
        answer = ask(member.http_port, "/api/settings")
        assert answer.status == 503
        assert "not answered within 0.05 s" in answer.json["error"]
        assert ask(member.http_port, "/api/what-if").status == 200


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
