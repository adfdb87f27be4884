"""Many messages for a member are on their way before the turn is over, in order and each once, whatever the kernel takes."""

import asyncio
import os
import socket
from unittest.mock import patch

import pytest
import uvloop

from phalanx.net.authenticated_records import RecordLayer
from phalanx.net.connection import EARLY_FRAMES, READ_BYTES, ConnectionGroup, FrameConnection
from phalanx.wire.codec import FrameReader, encode_frame, request_decoder
from phalanx.wire.messages import GetMembers

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
KEYS = (b"k" * 32, b"l" * 32)


class Sending(FrameConnection):
    writes_early = True


def requests(count: int) -> list[GetMembers]:
    return [GetMembers(number) for number in range(count)]


def told(data: bytes) -> list[int]:
    return [message.id for message in FrameReader(request_decoder).feed(data)]


async def connected(kind: type[FrameConnection] = Sending) -> tuple[FrameConnection, socket.socket]:
    """An end that sends, and the socket of the other."""
    here, there = socket.socketpair()
    there.setblocking(False)
    connection = kind(ConnectionGroup(1_000_000))
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=here)
    connection.is_greeted = True
    return connection, there


async def all_of(there: socket.socket, length: int) -> bytes:
    data = b""
    async with asyncio.timeout(20):
        while len(data) < length:
            data += await asyncio.get_running_loop().sock_recv(there, 1 << 16)
    return data


@pytest.mark.parametrize("loop", LOOPS)
def test_many_messages_leave_before_the_turn_is_over(loop: str) -> None:
    async def run() -> None:
        connection, there = await connected()
        sent = requests(EARLY_FRAMES + 3)
        for request in sent[:-3]:
            connection.queue(request)
        assert told(there.recv(1 << 16)) == list(range(EARLY_FRAMES))
        for request in sent[-3:]:
            connection.queue(request)
        with pytest.raises(BlockingIOError):
            there.recv(1)
        rest = await all_of(there, sum(map(len, map(encode_frame, sent[-3:]))))
        assert told(rest) == [request.id for request in sent[-3:]]
        connection.abort()
        there.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


def test_replies_to_a_client_leave_together() -> None:
    async def run() -> None:
        connection, there = await connected(FrameConnection)
        for request in requests(3 * EARLY_FRAMES):
            connection.queue(request)
        with pytest.raises(BlockingIOError):
            there.recv(1)
        connection.abort()
        there.close()

    asyncio.run(run())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("most", [0, 1, 7, 50])
def test_what_the_kernel_does_not_take_at_once_comes_in_order(loop: str, most: int) -> None:
    def write(descriptor: int, data: bytes) -> int:
        if not most:
            raise BlockingIOError
        return os_write(descriptor, data[:most])

    async def run() -> None:
        connection, there = await connected()
        sent = requests(10 * EARLY_FRAMES)
        for turn in range(0, len(sent), 3 * EARLY_FRAMES):
            for request in sent[turn : turn + 3 * EARLY_FRAMES]:
                connection.queue(request)
            await asyncio.sleep(0)
        length = sum(map(len, map(encode_frame, sent)))
        assert told(await all_of(there, length)) == [request.id for request in sent]
        assert connection.written == length
        connection.abort()
        there.close()

    os_write = os.write
    with patch("phalanx.net.connection.os.write", write), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(run())


def test_a_peer_that_does_not_read_loses_nothing_that_came_early() -> None:
    async def run() -> None:
        connection, there = await connected()
        sent = requests(60_000)
        for request in sent:
            connection.queue(request)
        assert connection.backlog > 0
        length = sum(map(len, map(encode_frame, sent)))
        assert told(await all_of(there, length)) == [request.id for request in sent]
        connection.abort()
        there.close()

    asyncio.run(run())


def test_with_a_secret_they_are_records() -> None:
    async def run() -> None:
        connection, there = await connected()
        connection._records = RecordLayer(*KEYS)
        sent = requests(2 * EARLY_FRAMES + 1)
        for request in sent:
            connection.queue(request)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opened = RecordLayer(*reversed(KEYS)).feed(there.recv(1 << 16))
        assert told(bytes(opened)) == [request.id for request in sent]
        connection.abort()
        there.close()

    asyncio.run(run())


def test_a_lost_connection_is_found_by_the_transport() -> None:
    class Losing(Sending):
        lost: "asyncio.Future[Exception | None]"

        def on_closed(self, error: Exception | None) -> None:
            self.lost.set_result(error)

    async def run() -> None:
        connection, there = await connected(Losing)
        assert isinstance(connection, Losing)
        connection.lost = asyncio.get_running_loop().create_future()
        there.close()
        for request in requests(4 * EARLY_FRAMES):
            connection.queue(request)
        async with asyncio.timeout(20):
            await connection.lost
        for request in requests(2 * EARLY_FRAMES):
            connection.queue(request)  # into the void, and no error

    asyncio.run(run())


def test_memory_for_what_is_read_does_not_come_from_the_system_each_time() -> None:
    """More than the C library keeps ready is 128 KiB at once."""
    lengths = []

    class Measuring(FrameConnection):
        def data_received(self, data: bytes) -> None:
            lengths.append(len(data))
            if sum(lengths) >= 2 * READ_BYTES:
                has_all.set()

    async def read() -> None:
        connection, there = await connected(Measuring)
        there.setblocking(True)
        sender = asyncio.to_thread(there.sendall, bytes(2 * READ_BYTES))
        async with asyncio.timeout(20):
            await asyncio.gather(sender, has_all.wait())
        connection.abort()
        there.close()

    has_all = asyncio.Event()
    asyncio.run(read())
    assert max(lengths) <= READ_BYTES
