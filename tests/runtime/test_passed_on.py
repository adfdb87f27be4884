"""PX-51, at the member in between: whom it passes connections on to, and what becomes of both ends."""

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt
from phalanx.codec.hashing import partition_of
from phalanx.codec.values import to_key_data
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address, MemberId
from phalanx.common.view import MembersView
from phalanx.net.secret import Secret
from phalanx.wire import messages as m

SECRET = "a secret of this test alone"


@asynccontextmanager
async def two(**settings: Any) -> AsyncIterator[tuple[phalanx.Member, phalanx.Member]]:
    first = phalanx.Member(phalanx.Config(port=0, **settings))
    await first.start()
    other = phalanx.Member(phalanx.Config(port=0, seeds=[first.address], **settings))
    await other.start()
    try:
        yield first, other
    finally:
        await other.stop(drain=False)
        await first.stop(drain=False)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def opened(to: MemberId, through: MemberId, secret: Secret | None = None) -> BlockingConnection:
    """A connection to a member through another one; a thread makes it."""
    attempt = ConnectAttempt(to, "phalanx", f"client/{uuid.uuid4()}", secret, through)
    try:
        attempt.go_on_for(10.0)
    except ConnectError:
        attempt.socket.close()
        raise
    assert attempt.member == to
    return BlockingConnection(attempt, 1 << 20)


def asked(connection: BlockingConnection, request: m.Request) -> object:
    connection.send(request)
    while not (answers := connection.receive(10.0)):
        pass
    return answers[0]


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("secret", [None, SECRET])
@in_loop
async def test_a_client_speaks_with_one_member_through_another(secret: str | None) -> None:
    async with two(secret=secret) as (first, other):
        key = Secret(secret) if secret is not None else None
        connection = await asyncio.to_thread(opened, other.id, first.id, key)
        reply = await asyncio.to_thread(asked, connection, m.GetMembers(7))
        assert isinstance(reply, m.MembersReply)
        assert len(first.accepted.passed_on.open) == 1
        assert len(other.accepted.clients) == 1, "for the other one it is a client like any other"
        assert first.overload.passed_on.total == 1
        connection.socket.close()
        await until(lambda: not first.accepted.passed_on.open, "the end of one end ends the other")
        await until(lambda: not other.accepted.clients, "the end of one end ends the other")


@in_loop
async def test_values_that_are_longer_than_any_buffer_arrive() -> None:
    async with two() as (first, other):
        connection = await asyncio.to_thread(opened, other.id, first.id)
        value = bytes(4) + bytes(range(250)) * 2_000
        await other.caller.table()
        await until(lambda: other.id in other.table.owners(), "it owns something")
        table = other.table
        partition = next(p for p in range(table.partition_count) if table.owner(p) == other.id)
        key = next(k for k in map(to_key_data, range(100_000)) if partition_of(k, table.partition_count) == partition)
        assert isinstance(await asyncio.to_thread(asked, connection, m.Put(1, "m", key, value, 0)), m.DoneReply)
        assert await asyncio.to_thread(asked, connection, m.Get(2, "m", key)) == m.ValueReply(2, value)
        connection.socket.close()


@pytest.mark.rows("PX-51")
@in_loop
async def test_nobody_but_members_of_the_list_is_connected_to() -> None:
    async with two() as (first, other):
        stranger = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0)
        place = f"127.0.0.1:{stranger.sockets[0].getsockname()[1]}"
        for to in (MemberId(f"{place}/1"), MemberId(f"{other.address}/another"), Address(place), first.id):
            with pytest.raises((ConnectError, OSError)) as raised:
                await asyncio.to_thread(opened, MemberId(to), first.id)
            assert "is not another member of this cluster" in str(raised.value)
        assert first.overload.passed_on.total == 0
        stranger.close()


@in_loop
async def test_who_has_not_the_secret_is_passed_on_to_nobody() -> None:
    async with two(secret=SECRET) as (first, other):
        for secret in (None, Secret("another secret than that")):
            with pytest.raises(ConnectError, match="secret"):
                await asyncio.to_thread(opened, other.id, first.id, secret)
        assert first.overload.passed_on.total == 0


@pytest.mark.rows("PX-51")
@in_loop
async def test_a_member_that_leaves_the_list_is_reached_by_nothing_that_waits_here() -> None:
    async with two() as (first, other):
        connection = await asyncio.to_thread(opened, other.id, first.id)
        assert first.view is not None
        first.accepted.passed_on.keep_to(first.view)
        assert len(first.accepted.passed_on.open) == 1
        first.accepted.passed_on.keep_to(MembersView(9, first.id, (first.id,)))
        await until(lambda: not first.accepted.passed_on.open, "it is reset")
        with pytest.raises(OSError):
            await asyncio.to_thread(asked, connection, m.GetMembers(1))
        connection.socket.close()
