"""Connections whose peers are gone or at rest: keepalive on every connection of the grid, and the limit of idle clients."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import phalanx
from phalanx.common.errors import UsageError
from phalanx.net.keepalive import PROBES, keep_alive
from support.raw_peers import RawPeer

IDLE_MS = 1_000


@asynccontextmanager
async def member(**settings: Any) -> AsyncIterator[phalanx.Member]:
    started = await phalanx.start_member(phalanx.Config(port=0, cluster="test", **settings))
    try:
        yield started
    finally:
        await started.stop(drain=False)


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.01)


def asks(sock: Any) -> tuple[int, int, int, int]:
    """Whether the kernel asks, after how many idle seconds, how often, and how many milliseconds it sends unacknowledged bytes again."""
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )


# --- keepalive --------------------------------------------------------------------------------------------------------


def test_the_kernel_asks_over_every_connection_of_the_grid() -> None:
    async def run() -> None:
        async with member(tcp_keepalive_ms=7_000) as one, member(seeds=[one.address], tcp_keepalive_ms=7_000) as two:
            async with phalanx.connect(one.address, cluster="test") as in_loop:
                await in_loop.map("m").put("key", 1)
                await until(lambda: two.accepted.peers and one.accepted.peers, "both have connections with each other")
                mine = [one._group.open, two._group.open]
                found = [
                    asks(each.transport.get_extra_info("socket")) for group in mine for each in group if each.transport
                ]
                assert len(found) >= 5, "a client's, and four between members"
                assert set(found) == {(1, 7, PROBES, 14_000)}
                theirs = [each.transport for each in in_loop._group.open]
                assert {asks(each.get_extra_info("socket")) for each in theirs if each} == {(1, 60, PROBES, 120_000)}
            with await asyncio.to_thread(phalanx.Client, one.address, cluster="test") as blocking:
                await asyncio.to_thread(blocking.map("m").get, "key")
                sessions = blocking._sessions._all
                assert {
                    asks(connection.socket)
                    for session in sessions
                    for connection in session.driver.connections.values()
                } == {(1, 60, PROBES, 120_000)}

    asyncio.run(run())


def test_zero_asks_nobody() -> None:
    with socket.socket() as sock:
        keep_alive(sock, 0)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


# --- clients at rest --------------------------------------------------------------------------------------------------


def test_a_client_at_rest_loses_its_connection_and_its_next_call_does_not_notice() -> None:
    async def run() -> None:
        settings = {"call_timeout_ms": IDLE_MS, "client_idle_timeout_ms": IDLE_MS}
        async with member(**settings) as one, phalanx.connect(one.address, cluster="test") as in_loop:
            blocking = await asyncio.to_thread(phalanx.Client, one.address, cluster="test")
            await asyncio.to_thread(blocking.map("m").put, "key", 1)
            await in_loop.map("m").increment("key")
            peer = await asyncio.to_thread(lambda: RawPeer(one.address).greeted())
            assert len(one.accepted.clients) == 3
            await until(lambda: not one.accepted.clients, "all are closed")
            assert one.overload.idle_clients.total == 3
            assert await in_loop.map("m").increment("key") == 3
            assert await asyncio.to_thread(blocking.map("m").increment, "key") == 4
            peer.socket.close()
            await asyncio.to_thread(blocking.close)

    asyncio.run(run())


def test_a_client_that_does_something_keeps_its_connection() -> None:
    async def run() -> None:
        settings = {"call_timeout_ms": IDLE_MS, "client_idle_timeout_ms": 3 * IDLE_MS}
        async with member(**settings) as one, phalanx.connect(one.address, cluster="test") as busy:
            idle = await asyncio.to_thread(lambda: RawPeer(one.address).greeted())
            connections = dict(one.accepted.clients)

            def is_closed() -> bool:
                return idle.sender not in one.accepted.clients

            while not is_closed():
                await busy.map("m").put("key", 1)
                await asyncio.sleep(0.05)
            del connections[idle.sender]
            assert one.accepted.clients == connections, "the one that is busy has the same connection"
            idle.socket.close()

    asyncio.run(run())


def test_clients_of_redis_are_closed_too() -> None:
    async def run() -> None:
        settings = {"call_timeout_ms": IDLE_MS, "client_idle_timeout_ms": IDLE_MS, "serve": ("redis",)}
        async with member(**settings) as one:
            host, port = one.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"PING\r\n")
            assert await reader.readline() == b"+PONG\r\n"
            async with asyncio.timeout(20):
                assert await reader.read() == b"", "it is closed in order"
            assert one.overload.idle_clients.total == 1
            writer.close()

    asyncio.run(run())


def test_without_the_setting_nobody_is_closed() -> None:
    async def run() -> None:
        async with member() as one:
            with await asyncio.to_thread(lambda: RawPeer(one.address).greeted()):
                assert not one.accepted._idle._is_watching

    asyncio.run(run())


def test_settings_that_would_close_clients_which_wait_are_refused() -> None:
    with pytest.raises(UsageError, match="client_idle_timeout_ms: 5000 must be at least call_timeout_ms"):
        phalanx.Config(client_idle_timeout_ms=5_000)
    with pytest.raises(UsageError, match="tcp_keepalive_ms: 1 must be at least 1000"):
        phalanx.Config(tcp_keepalive_ms=1)
