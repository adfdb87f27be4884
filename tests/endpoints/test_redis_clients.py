"""Members serve redis-py and redis-cli: commands, tokens, limits, and the crash of a member under load."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.cluster
import redis.exceptions

import phalanx
from phalanx.codec.values import Json
from phalanx.common.ids import host_and_port
from phalanx_protocols.resp import hashes
from support.processes import Cluster, wait_for

TOKEN = "0123456789abcdef0123456789abcdef"
OPTIONS = ("--serve=redis",)


@pytest.fixture(scope="module")
def member() -> Iterator[phalanx.MemberThread]:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, serve=("redis",))) as running:
        yield running


def client_of(address: str, **settings: Any) -> redis.Redis:
    host, port = host_and_port(address)  # type: ignore[arg-type]  # a text
    return redis.Redis(host, port, **settings)


@pytest.fixture(params=[2, 3])
def client(member: phalanx.MemberThread, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with client_of(member.address, protocol=request.param) as connected:
        connected.flushall()
        yield connected


def test_lives_are_changed_and_told(client: redis.Redis) -> None:
    assert client.set("k", "v", ex=100)
    assert 99 <= client.ttl("k") <= 100
    assert not client.expire("k", 50, gt=True)
    assert client.expire("k", 50, lt=True)
    assert not client.expire("k", 50, nx=True)
    assert client.persist("k")
    assert not client.persist("k")
    assert not client.expire("k", 50, xx=True)
    assert not client.expire("k", 50, gt=True), "for ever is longer than any"
    assert client.expireat("k", int(time.time()) + 40)
    assert 38 <= client.ttl("k") <= 40
    assert client.set("k", "w", keepttl=True)
    assert client.ttl("k") > 0
    assert client.getex("k", persist=True) == b"w"
    assert (client.ttl("k"), client.ttl("none")) == (-1, -2)
    assert client.pexpire("k", 1)
    wait_for(lambda: client.exists("k") == 0, "the key expires")
    client.set("k", "v")
    assert client.expire("k", -1)
    assert client.get("k") is None


def test_programs_and_redis_clients_share_entries(client: redis.Redis, member: phalanx.MemberThread) -> None:
    entries = member.map("redis0")
    client.set(b"\xff\x00", b"\x00bin\r\n")
    assert entries[b"\xff\x00"] == b"\x00bin\r\n"
    client.hset("user", mapping={"name": "Ada", "n": 1})
    assert entries[b"user"] == {b"name": b"Ada", b"n": b"1"}
    entries[b"count"] = 5
    assert client.incr("count", 2) == 7
    assert entries[b"count"] == 7
    entries["text key"] = 1
    assert client.keys("*") == client.keys("[^q]*")
    assert sorted(client.keys()) == sorted([b"\xff\x00", b"user", b"count"])


def test_hashes_are_json_where_the_dicts_of_the_map_are() -> None:
    maps = {"redis0": phalanx.MapConfig(dicts="json")}
    config = phalanx.Config(port=0, serve=("redis",), maps=maps)
    with phalanx.start_member_in_thread(config) as shared, client_of(shared.address) as client:
        entries = shared.map("redis0")
        assert client.hset("user", mapping={"name": "Ada", "visits": 1}) == 2
        assert client.hget("user", "name") == b"Ada"
        assert entries[b"user"] == {"name": "Ada", "visits": "1"}, "as text: other languages read no bytes in JSON"
        assert client.get("user") == b'{"name":"Ada","visits":"1"}'
        entries[b"user"] = {"name": "Ada", "visits": 7, "admin": True}
        assert client.hincrby("user", "visits", 2) == 9
        assert client.hgetall("user") == {b"name": b"Ada", b"visits": b"9", b"admin": b"1"}
        assert entries[b"user"] == {"name": "Ada", "visits": 9, "admin": True}
        entries[b"numbers"] = Json("[1, 2]")
        client.set("text", "{}")
        assert [client.type(key) for key in ("user", "numbers", "text")] == [b"hash", b"string", b"string"]
        assert client.scan(0, _type="HASH") == (0, [b"user"])
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            client.hgetall("numbers")
        with pytest.raises(redis.exceptions.ResponseError, match=r"stored as JSON, which has text only, and b'\\xff'"):
            client.hset("user", "photo", b"\xff")
        assert entries[b"user"]["visits"] == 9


def test_a_scan_finds_each_key_also_of_large_partitions(client: redis.Redis) -> None:
    wanted = {b"key:%d" % number for number in range(3_000)}
    client.mset(dict.fromkeys(wanted, b"v" * 50))
    for count in (1, 10, 1_000):
        found = list(client.scan_iter(count=count)) if count > 1 else list(client.scan_iter("key:1*", count=100))
        assert set(found) == (wanted if count > 1 else {key for key in wanted if key.startswith(b"key:1")})
    assert client.dbsize() == 3_000
    assert client.randomkey() in wanted


def test_a_pipeline_of_ten_thousand(client: redis.Redis) -> None:
    pipe: Any = client.pipeline(transaction=False)
    for number in range(5_000):
        pipe.incr("n").set(f"k{number}", number)
    assert pipe.execute()[-2] == 5_000
    pipe = client.pipeline()
    pipe.set("a", 1).incr("a").hset("h", "f", 1).get("a").dbsize()
    assert pipe.execute()[:4] == [True, 2, 1, b"2"]


def test_cluster_clients_ask_any_member(cluster: Cluster) -> None:
    cluster.start(2, options=OPTIONS)
    host, port = host_and_port(cluster.members[0].address)
    with redis.cluster.RedisCluster(host=host, port=port) as spread:
        assert len(spread.get_nodes()) == 2
        for number in range(50):
            assert spread.set(f"k{number}", number)
        assert [spread.get(f"k{number}") for number in range(50)] == [b"%d" % number for number in range(50)]


def test_no_acknowledged_write_is_lost_when_a_member_is_killed(cluster: Cluster) -> None:
    """Clients that repeat nothing: each counter is at least what was acknowledged, and at most that and what is unknown."""
    cluster.start(3, options=OPTIONS)
    with client_of(cluster.members[0].address) as connected:
        connected.set("first", 1)
    cluster.wait_redundant()
    addresses = [each.address for each in cluster.members[:2]]
    done, unknown, keys = [0] * 4, [0] * 4, [f"counter{number}" for number in range(4)]
    stop = threading.Event()

    def count(number: int) -> None:
        while not stop.is_set():
            try:
                with client_of(addresses[number % 2], socket_timeout=20, retry=None) as connected:
                    while not stop.is_set():
                        connected.incr(keys[number])
                        done[number] += 1
            except redis.exceptions.ResponseError as error:
                unknown[number] += not str(error).startswith("TRYAGAIN")
            except redis.exceptions.RedisError:
                unknown[number] += 1
                time.sleep(0.02)

    threads = [threading.Thread(target=count, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: min(done) > 20, "each client has counted")
    cluster.kill(cluster.members[2])
    after = list(done)
    wait_for(lambda: all(now > then + 20 for now, then in zip(done, after, strict=True)), "each goes on", 60)
    stop.set()
    for thread in threads:
        thread.join()
    with client_of(addresses[0]) as connected:
        for key, least, more in zip(keys, done, unknown, strict=True):
            assert least <= int(connected.get(key)) <= least + more


# --- tokens, and what strangers do -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phalanx.MemberThread]:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"ada:{TOKEN}\n")
    file.chmod(0o600)
    config = phalanx.Config(
        port=0, serve=("redis",), serve_token_file=str(file), max_total_backlog_bytes=4 * 2**20,
        max_backlog_bytes=2**20, slow_peer_timeout_ms=1_000,
    )  # fmt: skip
    with phalanx.start_member_in_thread(config) as running:
        yield running


def test_clients_show_a_token_of_their_own(guarded: phalanx.MemberThread) -> None:
    for protocol in (2, 3):
        with client_of(guarded.address, username="ada", password=TOKEN, protocol=protocol) as connected:
            assert connected.set("a", 1)
        for wrong in ({}, {"password": TOKEN, "username": "bob"}, {"username": "ada", "password": "x"}):
            with (
                client_of(guarded.address, protocol=protocol, retry=None, **wrong) as connected,
                pytest.raises(redis.exceptions.AuthenticationError),
            ):
                connected.get("a")


@pytest.mark.parametrize(
    ("text", "told"),
    [("short", "needs 16 to"), ("the secret of the cluster", "this is the cluster's secret")],
)
def test_a_token_that_is_no_good_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    config = phalanx.Config(port=0, serve=("redis",), serve_token_file=str(file), secret="the secret of the cluster")
    with pytest.raises(phalanx.UsageError, match=told):
        phalanx.start_member_in_thread(config)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"serve": ("memcached",)}, "is not a protocol that members speak"),
        ({"serve": ("redis", "redis")}, "named twice"),
        ({"serve": "redis"}, "expected array"),
        ({"redis_maps": ("a", "a")}, "different names"),
        ({"serve": ("redis",), "host": "0.0.0.0", "advertise": "10.0.0.1", "secret": TOKEN}, "without a token anybody"),
    ],
)  # fmt: skip
def test_settings_that_are_wrong_are_named(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(phalanx.UsageError, match=told):
        phalanx.Config(**settings)


def raw(address: str, data: bytes, most: int = 65_536) -> bytes:
    """Send bytes, and return what comes until the member closes, or so many bytes."""
    with socket.create_connection(host_and_port(address), timeout=20) as sock:  # type: ignore[arg-type]  # a text
        sock.sendall(data)
        told = b""
        while len(told) < most and (some := sock.recv(65_536)):
            told += some
        return told


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"it speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", b"\x15\x03"),
        (b"CP2", b""),
        (b"*1\r\n$900000000\r\n", b"-ERR Protocol error: invalid bulk length"),
        (b"SET k v\r\n" + b"x" * 70_000, b"-ERR Protocol error"),
        (b"*1\r\n" * 10_000, b"-ERR Protocol error: expected '$', got '*'"),
        (b"*1000000000\r\n", b"-ERR Protocol error: unauthenticated multibulk length"),
        (b"PING\r\n" * 2_000, b"-ERR a client sends at most 8 commands and 16384 bytes before it shows the token"),
    ],
)
def test_what_is_no_redis_client_is_told_so_in_a_line(guarded: phalanx.MemberThread, data: bytes, told: bytes) -> None:
    assert told in raw(guarded.address, data)
    with client_of(guarded.address, username="ada", password=TOKEN) as connected:
        assert connected.ping()


@pytest.mark.parametrize("get", [b"GET big\r\n", b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n"], ids=["a line", "an array"])
def test_a_client_that_does_not_read_waits_and_is_dropped(guarded: phalanx.MemberThread, get: bytes) -> None:
    """In arrays the command is carried out from its bytes."""
    with client_of(guarded.address, username="ada", password=TOKEN) as connected:
        connected.set("big", b"v" * 200_000)
        with socket.create_connection(host_and_port(guarded.address), timeout=20) as slow:
            slow.sendall(f"AUTH ada {TOKEN}\r\n".encode() + get * 2_000)
            began = time.monotonic()
            while time.monotonic() - began < 1.0:
                assert connected.ping(), "others are served meanwhile"
            slow.settimeout(20)

            def is_dropped() -> bool:
                try:
                    slow.sendall(b"PING\r\n")
                except OSError:
                    return True
                return False

            wait_for(is_dropped, "it is dropped")
        assert connected.ping()


def test_a_command_that_arrives_byte_by_byte_is_given_up(guarded: phalanx.MemberThread) -> None:
    """It announces 16 MB, and sends a byte now and then: too slowly by `slow_peer_timeout_ms`."""
    part = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16000000\r\n"
    with socket.create_connection(host_and_port(guarded.address), timeout=20) as slow:
        slow.sendall(f"AUTH ada {TOKEN}\r\n".encode() + part)

        def is_dropped() -> bool:
            try:
                slow.sendall(b"x")
            except OSError:
                return True
            return False

        wait_for(is_dropped, "it is dropped")
    with client_of(guarded.address, username="ada", password=TOKEN) as connected:
        assert connected.get("k") is None


def test_an_error_in_the_endpoint_ends_its_connection_and_not_the_member(
    member: phalanx.MemberThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phalanx_protocols.resp.connection import RespConnection

    def fail(*arguments: object) -> None:
        raise RuntimeError("a planted defect")

    with client_of(member.address, retry=None) as connected:
        connected.set("a", 1)
        with monkeypatch.context() as patched:
            patched.setattr(RespConnection, "received", fail)
            with pytest.raises(redis.exceptions.ConnectionError):
                connected.get("a")
        assert connected.get("a") == b"1"
    assert member.map("redis0")[b"a"] == b"1"


def test_an_error_in_a_command_is_its_answer_and_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a planted defect beside a value")

    with (
        phalanx.start_member_in_thread(phalanx.Config(port=0, serve=("redis",), http_port=0)) as running,
        client_of(running.address, retry=None) as connected,
    ):
        number = connected.client_id()
        with monkeypatch.context() as patched:
            patched.setattr(hashes, "to_data", fail)
            for _ in range(3):
                with pytest.raises(
                    redis.exceptions.ResponseError, match=r"'hget' failed in this member \(RuntimeError\)"
                ):
                    connected.hget("h", "f")
        assert connected.client_id() == number, "on the same connection"
        with urllib.request.urlopen(f"http://127.0.0.1:{running.http_port}/metrics") as page:
            assert 'phalanx_requests_failed_total{kind="endpoint_command"} 3.0' in page.read().decode()
    told = [record.getMessage() for record in caplog.records if "could not evaluate" in record.getMessage()]
    assert len(told) == 1, "once a minute"
    assert "'hget'" in told[0]
    assert "RuntimeError" in told[0]
    assert "beside a value" not in caplog.text


def test_a_client_is_killed_by_another(member: phalanx.MemberThread) -> None:
    with client_of(member.address, retry=None) as one, client_of(member.address) as other:
        doomed = one.client_id()
        one.client_setname("doomed")
        assert "doomed" in [each["name"] for each in other.client_list()]
        assert other.client_kill_filter(_id=doomed) == 1
        wait_for(lambda: doomed not in [int(each["id"]) for each in other.client_list()], "it is gone")


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not here: apt-get install redis-tools")
def test_redis_cli_asks(member: phalanx.MemberThread) -> None:
    _, port = host_and_port(member.address)

    def told(*words: str) -> str:
        done = subprocess.run(
            ["redis-cli", "-p", str(port), *words], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.strip()

    assert told("set", "cli", "1") == "OK"
    assert told("-3", "incr", "cli") == "2"
    assert "-ERR" not in told("--scan", "--pattern", "cli*")
    assert "phalanx" in told("info", "server")
    assert told("lpush", "l", "x").startswith("ERR unknown command")


def test_info_has_the_fields_that_exporters_read(client: redis.Redis) -> None:
    told = client.info()
    assert (told["used_memory"], told["used_memory_human"], told["maxmemory_policy"]) == (0, "0B", "noeviction")
    assert (told["used_cpu_sys"], told["keyspace_hits"], told["evicted_keys"], told["mem_fragmentation_ratio"]) == (
        0,
        0,
        0,
        0,
    )
    assert told["total_commands_processed"] > 0
    assert set(client.info("cpu")) >= {"used_cpu_sys", "used_cpu_user"}
    assert "used_memory" not in client.info("cpu")


def test_command_docs_say_what_words_a_command_takes(client: redis.Redis) -> None:
    """redis-cli makes its hints of these."""
    docs = as_dict(client.execute_command("COMMAND DOCS", "get", "set"))  # type: ignore[no-untyped-call]  # the package says no more
    assert set(docs) == {b"get", b"set"}
    arguments = [as_dict(each) for each in as_dict(docs[b"set"])[b"arguments"]]
    assert [(each[b"name"], each[b"type"]) for each in arguments] == [
        (b"key", b"key"), (b"value", b"string"), (b"nx", b"oneof"), (b"get", b"pure-token"), (b"seconds", b"oneof"),
    ]  # fmt: skip
    assert list(arguments[2][b"flags"]) == [b"optional"]


def as_dict(told: Any) -> dict[bytes, Any]:
    """A map as each version of the protocol tells it."""
    return told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
