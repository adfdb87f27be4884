"""Puts that one synchronous backup confirms, from 50 connections that each wait for one put before the next.

Ours: two members, each the owner of half of the keys and the backup of the other half. Theirs: redis-server with one
replica, `SET` and `WAIT 1 0` in one write, so that both sides confirm only what two processes hold.

Measured twice. *Bare* connections: what is sent is made beforehand and the answer is compared with the one expected, so
the client costs both sides the same and little, and the servers are what is measured. *Clients*: 50 `phalanx.connect`
against 50 `redis.asyncio.Redis` with a pipeline of the two commands, as a program would do it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, repeat
from typing import Any

import phalanx
from benchmarks.measure import Contender, clock_ns, compare, concurrent
from benchmarks.plan import KEY_COUNT, MAP, Plan, make_entries
from benchmarks.results import Comparison, Goal
from benchmarks.servers import Server, members, redis_server
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import ProtocolError
from phalanx.common.ids import address_of, host_and_port
from phalanx.maps.async_map import AsyncMap
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import PROTOCOL_VERSION, DoneReply, Hello, Put

CONNECTIONS = 50
GOAL = Goal(least=0.8)
FIRST_NUMBER = 1 << 32
"""From here on numbers take nine bytes in a message, the last eight of them the number itself."""


class BareConnection(asyncio.Protocol):
    """Sends one prepared request after the other, each when the whole answer to the one before has come."""

    def __init__(self, requests: Iterator[tuple[bytes, bytes]], greeting: bytes) -> None:
        """`requests`: each with its answer."""
        self._requests = requests
        self._answer = b""
        self._greeting = greeting
        self._greeted = asyncio.get_running_loop().create_future()
        self._got = b""
        self._end = 0
        self._sent_at = 0
        self._latencies: list[int] = []
        self._done: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    async def opened(self) -> None:
        """Until the other side has answered the greeting, if there is one."""
        if self._greeting:
            self._write(self._greeting)
            await self._greeted

    async def run(self, end: int, latencies: list[int]) -> None:
        """Go on until the clock's `end`."""
        self._end, self._latencies = end, latencies
        self._done = asyncio.get_running_loop().create_future()
        self._sent_at = clock_ns()
        self._write_next()
        await self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is None:
            if not self._greeted.done():
                self._greeted.set_result(None)
            return
        if self._got:
            data = self._got = self._got + data
        if data != self._answer:
            self._got = data
            if len(data) >= len(self._answer):
                done.set_exception(ProtocolError(f"expected {self._answer!r}, got {data[:200]!r}"))
            return
        self._got = b""
        now = clock_ns()
        self._latencies.append(now - self._sent_at)
        if now < self._end:
            self._sent_at = now
            self._write_next()
        else:
            done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self._greeted, self._done):
            if waiting is not None and not waiting.done():
                waiting.set_exception(ConnectionResetError(f"the server closed the connection: {exc}"))
                waiting.exception()

    def _write_next(self) -> None:
        request, self._answer = next(self._requests)
        self._write(request)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def bare(connections: Sequence[BareConnection]) -> Callable[[float], Any]:
    """A contender of bare connections."""

    async def run(seconds: float) -> tuple[int, list[int]]:
        latencies: list[int] = []
        end = clock_ns() + int(seconds * 1e9)
        await asyncio.gather(*(connection.run(end, latencies) for connection in connections))
        return len(latencies), latencies

    return run


def numbered(frames: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Prepared puts with their answers, for ever: each gets the next number in place of the one that it was made with."""
    answer = bytes(encode_frame(DoneReply(FIRST_NUMBER))[:-8])
    parts = [frame.split(_in_message(FIRST_NUMBER)) for frame in frames]
    for number, around in zip(count(FIRST_NUMBER), cycle(parts), strict=False):
        yield _in_message(number).join(around), answer + number.to_bytes(8, "big")


def _in_message(number: int) -> bytes:
    return b"\xcf" + number.to_bytes(8, "big")


async def run_backup(plan: Plan) -> list[Comparison]:
    """Puts with one synchronous backup, by bare connections and by clients."""
    async with contextlib.AsyncExitStack() as stack:
        servers = stack.enter_context(members(2, backup_count=1))
        replicated: list[Server] = []
        if plan.with_redis:
            replicated.append(stack.enter_context(redis_server()))
            replicated.append(stack.enter_context(redis_server(replica_of=replicated[0])))
        found = []
        for name, make_ours, make_theirs in (
            ("bare", _our_bare_connections, _their_bare_connections),
            ("clients", _our_clients, _their_clients),
        ):
            async with contextlib.AsyncExitStack() as open_connections:
                ours = Contender("2 members", await make_ours(servers, open_connections), _pids(servers))
                theirs = None
                if replicated:
                    run = await make_theirs(replicated, open_connections)
                    theirs = Contender("redis and replica", run, _pids(replicated))
                title = f"backup put, {CONNECTIONS} {name}"
                found.append(await compare(title, GOAL, ours, theirs, rounds=plan.rounds, seconds=plan.round_s))
        return found


def _pids(servers: Sequence[Server]) -> list[int]:
    return [server.pid for server in servers]


async def _our_bare_connections(servers: Sequence[Server], stack: contextlib.AsyncExitStack) -> Callable[[float], Any]:
    return bare(await bare_connections(servers, stack))


async def bare_connections(servers: Sequence[Server], stack: contextlib.AsyncExitStack) -> list[BareConnection]:
    """An equal part of the connections to each member, which put keys that it owns."""
    keys, values = make_entries(KEY_COUNT)
    async with phalanx.connect([server.address for server in servers]) as client:
        table = await client.table()
    requests: dict[str, list[bytes]] = {member: [] for member in table.members}
    for key, value in zip(keys, values, strict=True):
        data = to_key_data(key)
        owner = table.owner(partition_of(data, table.partition_count))
        put = Put(FIRST_NUMBER, MAP, data, to_data(value), 0, 0, FIRST_NUMBER)
        requests[str(owner)].append(bytes(encode_frame(put)))
    connections = []
    for number in range(CONNECTIONS):
        member = table.members[number % len(table.members)]
        greeting = bytes(encode_frame(Hello(PROTOCOL_VERSION, "phalanx", f"client/bench-{number}", member)))
        own = requests[member]
        start = number * len(own) // CONNECTIONS
        connection = BareConnection(numbered(own[start:] + own[:start]), greeting)
        await _open(connection, *host_and_port(address_of(member)), stack)
        connections.append(connection)
    return connections


async def _their_bare_connections(
    servers: Sequence[Server], stack: contextlib.AsyncExitStack
) -> Callable[[float], Any]:
    keys, values = make_entries(KEY_COUNT)
    requests = [
        b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"
        % (len(key), key.encode(), len(value), value)
        for key, value in zip(keys, values, strict=True)
    ]
    connections = []
    for number in range(CONNECTIONS):
        start = number * KEY_COUNT // CONNECTIONS
        connection = BareConnection(cycle(zip(requests[start:] + requests[:start], repeat(b"+OK\r\n:1\r\n"))), b"")
        await _open(connection, "127.0.0.1", servers[0].port, stack)
        connections.append(connection)
    return bare(connections)


async def _open(connection: BareConnection, host: str, port: int, stack: contextlib.AsyncExitStack) -> None:
    await asyncio.get_running_loop().create_connection(lambda: connection, host, port)
    stack.callback(connection.close)
    await connection.opened()


async def _our_clients(servers: Sequence[Server], stack: contextlib.AsyncExitStack) -> Callable[[float], Any]:
    keys, values = make_entries(KEY_COUNT)
    addresses = [server.address for server in servers]
    maps = [(await stack.enter_async_context(phalanx.connect(addresses))).map(MAP) for _ in range(CONNECTIONS)]

    async def put(index: int, entries: AsyncMap[Any, Any]) -> None:
        await entries.put(keys[index], values[index])

    return concurrent([functools.partial(put, entries=entries) for entries in maps], KEY_COUNT)


async def _their_clients(servers: Sequence[Server], stack: contextlib.AsyncExitStack) -> Callable[[float], Any]:
    import redis.asyncio

    keys, values = make_entries(KEY_COUNT)
    port = servers[0].port
    clients = [await stack.enter_async_context(redis.asyncio.Redis(port=port)) for _ in range(CONNECTIONS)]

    async def put(index: int, client: Any) -> None:
        pipeline = client.pipeline(transaction=False)
        pipeline.set(keys[index], values[index])
        pipeline.wait(1, 0)
        await pipeline.execute()

    return concurrent([functools.partial(put, client=client) for client in clients], KEY_COUNT)
