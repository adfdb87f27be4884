"""What waits for a member that does not read is bounded, before the greeting is answered and after it."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from phalanx.client.aio import AsyncClient
from phalanx.common.errors import IndeterminateWrite, UnavailableError
from phalanx.common.ids import Address
from phalanx.machine.effects import Send
from phalanx.maps.requests import raise_error
from phalanx.net.connection import ConnectionGroup, reason_of
from phalanx.net.flow import BacklogFull, Drop, Limits
from phalanx.net.link import Link
from phalanx.net.seed_lookups import SeedPlaces
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import PROTOCOL_VERSION, Get, Put, Welcome

SMALL = Limits(member_backlog_bytes=100_000)
PUT = Put(1, "m", b"k", bytes(30_000), 0)


@contextlib.asynccontextmanager
async def hung_member(greets: bool) -> AsyncIterator[Address]:
    """It answers the greeting, or not even that, and reads nothing behind it."""
    held: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        await reader.readexactly(4)
        if greets:
            writer.write(encode_frame(Welcome(f"{address}/1", protocol=PROTOCOL_VERSION)))  # type: ignore[arg-type]  # a member's identity
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=64)
    address = Address(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield address
    finally:
        for writer in held:
            writer.transport.abort()
        server.close()


def link_to(address: Address, down: list[str], on_drop: Callable[..., None] = lambda *told: None) -> Link:
    group = ConnectionGroup(1_000_000, None, SMALL, on_drop)
    return Link(
        address,
        "test",
        "client/1",
        group,
        on_up=lambda link: None,
        on_down=lambda link, reason: down.append(reason),
        on_message=lambda link, message: None,
    )


def send_all(link: Any, count: int) -> int:
    """How many of these were taken."""
    for number in range(count):
        try:
            link.send(PUT)
        except BacklogFull:
            return number
    return count


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (OSError("Multiple exceptions"), "Multiple exceptions"),
        (OSError(socket.EAI_NONAME, "Unknown host (while attempting to bind on address ('x', 1))"), "Unknown host"),
    ],
)
def test_why_a_connection_does_not_open_is_told_in_the_words_of_the_system(error: OSError, said: str) -> None:
    assert reason_of(error) == said


def test_what_waits_for_the_greeting_is_bounded() -> None:
    async def run() -> None:
        async with hung_member(greets=False) as address:
            down: list[str] = []
            link = link_to(address, down)
            assert send_all(link, 100) == 4
            with pytest.raises(
                BacklogFull, match=r"bytes wait for 127\.0\.0\.1:\d+, which does not read them; the limit is 100000"
            ):
                link.publish(PUT)
            link.give_up("too much")
            assert not down, "not within the call"
            await asyncio.sleep(0)
            assert down == ["too much"]

    asyncio.run(run())


def test_what_waits_for_a_member_that_hangs_is_bounded() -> None:
    """Whatever its kernel takes, some MB; then the link is dropped with what waits, or refuses more."""

    async def run() -> None:
        async with hung_member(greets=True) as address:
            down: list[str] = []
            told: list[Drop] = []
            link = link_to(address, down, lambda connection, why, text: told.append(why))
            async with asyncio.timeout(20.0):
                while not link.is_up:
                    assert not down
                    await asyncio.sleep(0)  # as soon as the loop has read the answer
                while not down:
                    taken = send_all(link, 20)
                    await asyncio.sleep(0)
                    if taken < 20:
                        link.give_up("too much")
                    assert link.backlog < 1_000_000
            assert told == [Drop.FULL] or down == ["too much"]
            assert link.written > 1_000_000

    asyncio.run(run())


def test_what_a_client_queues_for_a_connection_that_is_not_open_is_bounded() -> None:
    async def run() -> None:
        async with hung_member(greets=False) as address:
            client = AsyncClient(SeedPlaces(address), "test", 5.0, 1_000_000)
            client._group.flow.limits = SMALL
            replies = [client.call(0, Put(client.next_id(), "m", b"k", bytes(30_000), 0), address) for _ in range(10)]
            refused = [await reply for reply in replies[4:]]
            assert not any(reply.done() for reply in replies[:4])  # type: ignore[attr-defined]  # futures
            for reply in refused:
                with pytest.raises(UnavailableError, match="wait for a connection that is not open yet"):
                    raise_error(reply, "put")
            await client.close()

    asyncio.run(run())


def test_a_call_for_which_there_is_no_room_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changed nothing; unless it is the repetition of a write that may have been done."""

    class Full:
        is_up = True

        def send(self, message: Any) -> None:
            raise BacklogFull("100 bytes wait for it")

    async def run() -> None:
        client = AsyncClient(SeedPlaces("127.0.0.1:1"), "test", 5.0, 1_000_000)
        router = client._core._router
        monkeypatch.setattr(client, "_link", lambda target: Full())
        to = Address("127.0.0.1:1")
        reply = await client.call(0, Get(client.next_id(), "m", b"k"), to)
        assert "100 bytes wait for it" in reply.text
        with pytest.raises(UnavailableError, match="nothing was changed"):
            raise_error(reply, "get")
        put = Put(client.next_id(), "m", b"k", b"v", 0)
        monkeypatch.setattr(Full, "send", lambda self, message: None)
        answer = client.call(0, put, to)
        router._pending[put.id].may_be_applied = True
        client._carry_out(client._core.cannot_send(Send(to, put), "it is full", reply.code))
        with pytest.raises(IndeterminateWrite, match="an earlier try may have been applied, and now: it is full"):
            raise_error(await answer, "put")
        await client.close()

    asyncio.run(run())
