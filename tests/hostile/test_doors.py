"""What once ended, held or filled a member, at each of its doors: native clients, Redis, Hazelcast and HTTP. The members are processes; what
they use is counted in their own CPU time and memory, so that a busy machine changes nothing."""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from hazelcast.client import HazelcastClient
from hazelcast.errors import HazelcastError

import phalanx
from phalanx.common.ids import host_and_port
from phalanx.integrations.hazelcast import SERIALIZERS, FunctionCall
from support.http_asking import ask
from support.processes import Cluster, free_port
from support.raw_peers import memory_of

MIB = 1024 * 1024
MOST_CPU_S = 2.0
"""What a hostile request may take of a member, with all that it does besides. Each of these took more than ten seconds."""
MOST_GROWTH = 150 * MIB
"""What one may take of its memory: more than `max_answer_bytes`, twice. Each of these took 290 MiB and more."""


class Doors:
    """A cluster of three members, and the doors of the first."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.http_port = free_port()
        options = ("--serve", "redis,hazelcast")
        (self.first,) = cluster.start(1, options=(*options, "--http-port", str(self.http_port)))
        cluster.start(2, options=options)
        self.host, self.port = host_and_port(self.first.address)
        self.grid = cluster.client()
        self.redis = redis.Redis(self.host, self.port, socket_timeout=60)
        self.hazelcast = HazelcastClient(
            cluster_name=cluster.name,
            cluster_members=[self.first.address],
            custom_serializers=SERIALIZERS,
            smart_routing=False,
        )
        numbers = self.grid.map("numbers")
        numbers.put_all({f"k{number}": [1, 2, number] for number in range(100)})
        numbers["long"] = 2 ** (8 * 256 * 1024)

    def close(self) -> None:
        self.hazelcast.shutdown()
        self.redis.close()
        self.grid.close()

    def cpu_s(self) -> float:
        """All members' CPU time."""
        found = 0
        for member in self.cluster.members:
            fields = Path(f"/proc/{member.process.pid}/stat").read_text().rpartition(")")[2].split()
            found += int(fields[11]) + int(fields[12])
        return found / os.sysconf("SC_CLK_TCK")

    def memory_now(self) -> int:
        """The memory of the largest member; from now on `memory` begins anew."""
        for member in self.cluster.members:
            Path(f"/proc/{member.process.pid}/clear_refs").write_text("5")
        return max(memory_of(member.process.pid, "VmRSS") for member in self.cluster.members)

    def memory(self) -> int:
        """The most memory that a member had since then."""
        return max(memory_of(member.process.pid) for member in self.cluster.members)

    def go_on(self) -> None:
        """Assert that all members are there, with all data."""
        assert len(self.cluster.view_of(self.first).members) == 3
        assert all(member.process.poll() is None for member in self.cluster.members)
        keys = [f"k{number}" for number in range(100)]
        assert set(self.grid.map("numbers").get_all(keys)) == set(keys)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    cluster = Cluster(tmp_path_factory.mktemp("doors"))
    try:
        found = Doors(cluster)
        yield found
        found.close()
    finally:
        cluster.stop()
        print(cluster.logs())


def told(call: Callable[[], Any]) -> Any:
    """What a call returns, or the error that it is told."""
    try:
        return call()
    except (phalanx.PhalanxError, redis.RedisError, HazelcastError) as error:
        return error


def by_client(doors: Doors, key: str, function: str, *arguments: Any) -> Any:
    return told(lambda: doors.grid.map("numbers").update(key, function, *arguments))


def by_hazelcast(doors: Doors, key: str, function: str, *arguments: Any) -> Any:
    numbers: Any = doors.hazelcast.get_map("numbers").blocking()
    return told(lambda: numbers.execute_on_key(key, FunctionCall(function, *arguments)))


@pytest.mark.parametrize("door", [by_client, by_hazelcast])
@pytest.mark.parametrize("function", ["add_to_set", "discard", "max", "min", "increment"])
def test_a_number_that_raises_ends_no_member(doors: Doors, door: Any, function: str) -> None:
    door(doors, "k7", function, Decimal("sNaN"))
    door(doors, "nobody", function, Decimal("sNaN"))
    doors.go_on()


@pytest.mark.parametrize("door", [by_client, by_hazelcast])
@pytest.mark.parametrize("function", ["max", "min", "increment"])
def test_a_long_number_beside_a_decimal_holds_no_member(doors: Doors, door: Any, function: str) -> None:
    before = doors.cpu_s()
    door(doors, "long", function, Decimal("1.5"))
    assert doors.cpu_s() - before < MOST_CPU_S
    doors.go_on()


def test_patterns_hold_no_member(doors: Doors) -> None:
    """SCAN, KEYS and HSCAN, of long keys and fields, with the patterns that cost most."""
    client: Any = doors.redis
    client.flushdb()
    for number in range(30):
        client.set(b"a" * 60_000 + b"%d" % number, b"v")
    client.hset("fields", mapping={b"a" * 60_000 + b"%d" % number: b"v" for number in range(10)})
    for pattern in (
        b"?" * 4_000,
        b"*" + b"?" * 900 + b"b*",
        b"*" + b"a" * 1_000 + b"?b*",
        b"*a" * 400 + b"b",
        b"[a-z]" * 200 + b"*b",
    ):
        for words in (
            (b"KEYS", pattern),
            (b"SCAN", b"0", b"MATCH", pattern, b"COUNT", b"1000"),
            (b"HSCAN", b"fields", b"0", b"MATCH", pattern),
        ):
            before = doors.cpu_s()
            told(functools.partial(client.execute_command, *words))
            assert doors.cpu_s() - before < MOST_CPU_S, words[0]
    doors.go_on()


def redis_mget(doors: Doors) -> Any:
    return doors.redis.mget(["big"] * 300)


def redis_hmget(doors: Doors) -> Any:
    return doors.redis.hmget("bighash", ["f"] * 300)


def redis_exec(doors: Doors) -> Any:
    pipe = doors.redis.pipeline(transaction=True)
    for _ in range(300):
        pipe.get("big")
    return pipe.execute()


def hazelcast_get_all(doors: Doors) -> Any:
    """The client itself leaves repeated keys out, so this is its request by hand."""
    return _get_all_by_hand(doors, 400)


def native_get_all(doors: Doors) -> Any:
    return doors.grid.map("large").get_all(["big"] * 300)


@pytest.mark.parametrize(
    "door", [redis_mget, redis_hmget, redis_exec, hazelcast_get_all, native_get_all], ids=lambda door: door.__name__
)
def test_a_key_asked_for_hundreds_of_times_fills_no_member(doors: Doors, door: Callable[[Doors], Any]) -> None:
    doors.redis.set("big", b"x" * MIB)
    doors.redis.hset("bighash", "f", b"x" * (MIB - 1_000))
    doors.grid.map("large")["big"] = b"x" * MIB
    before = doors.memory_now()
    told(lambda: door(doors))
    assert doors.memory() - before < MOST_GROWTH
    doors.go_on()


def _get_all_by_hand(doors: Doors, times: int) -> Any:
    from endpoints.hazelcast.requests import authentication, data, request
    from phalanx.codec.values import to_data

    with socket.create_connection((doors.host, doors.port), timeout=60) as connection:
        connection.sendall(b"CP2" + authentication(1, doors.cluster.name))
        assert connection.recv(65_536)
        keys = [data(to_data("big"))] * times
        connection.sendall(request(0x012300, 2, b"", b"large", 1 << 12, *keys, 1 << 11))
        return connection.recv(65_536)


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "cross-site"}])
@pytest.mark.parametrize("condition", ["1" * 16_000 + "x", "price+%3E+" + "1" * 4_000 + "x", "'" * 4_000, "a." * 2_000])
def test_a_condition_of_a_page_holds_no_member(doors: Doors, condition: str, headers: dict[str, str]) -> None:
    before = doors.cpu_s()
    answer = ask(doors.http_port, f"/console/entries?map=numbers&where={condition}", headers=headers)
    assert answer.status == 403 if headers else answer.status < 500
    assert doors.cpu_s() - before < MOST_CPU_S
    doors.go_on()


def test_strangers_hold_no_member(tmp_path: Path, cluster: Cluster) -> None:
    """Thirty-two that have not shown the token send as many commands as they can."""
    token = tmp_path / "token"
    token.write_text("a token of sixteen bytes or more")
    token.chmod(0o600)
    (member,) = cluster.start(1, options=("--serve", "redis", "--serve-token-file", str(token)))
    host, port = host_and_port(member.address)
    fields = Path(f"/proc/{member.process.pid}/stat")

    def cpu_s() -> float:
        used = fields.read_text().rpartition(")")[2].split()
        return (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")

    before = cpu_s()
    for burst in (b"PING\r\n" * 10_000, b'"a" ' * 15_000, b"*1\r\n$4\r\nPING\r\n" * 4_000, b"\r\n" * 30_000):
        strangers = [socket.create_connection((host, port), timeout=20) for _ in range(8)]
        for stranger in strangers:
            try:
                stranger.sendall(burst)
                while stranger.recv(65_536):
                    pass
            except OSError:
                pass  # it was closed in the middle of the burst
            stranger.close()
    assert cpu_s() - before < MOST_CPU_S
    client = redis.Redis(host, port, password=token.read_text())
    assert client.ping()
    client.close()
