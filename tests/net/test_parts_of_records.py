"""Records of which a part has come, with a secret: they cost a member as bounded a time as frames do."""

import asyncio
from typing import Any

import pytest

from phalanx.client.blocking.connection import ConnectAttempt
from phalanx.codec.values import keys_to_data, to_data
from phalanx.common.ids import Address
from phalanx.net.authenticated_records import LONGEST, MAX_BODY_BYTES
from phalanx.net.secret import Secret
from phalanx.runtime.member import Member
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import GetMembers, Put
from support.secret_members import SECRET, members, until

MIB = 1024 * 1024
(KEY,) = keys_to_data(["k"])


async def opened(member: Member) -> ConnectAttempt:
    """A client's connection to a member, its greeting over."""

    def greet() -> ConnectAttempt:
        attempt = ConnectAttempt(Address(member.address), "phalanx", "client/by-hand", Secret(SECRET.encode()))
        attempt.go_on_for(20.0)
        assert attempt.member is not None
        attempt.socket.setblocking(True)
        attempt.socket.settimeout(20.0)
        return attempt

    return await asyncio.to_thread(greet)


def signed(attempt: ConnectAttempt, message: Any) -> bytes:
    assert attempt.records is not None
    return bytes(attempt.records.sign(encode_frame(message)))


def inbound(member: Member) -> Any:
    (connection,) = member.accepted.clients.values()
    return connection


@pytest.mark.parametrize("sent", [1, 3, 19, 100_000, LONGEST - 1])
def test_the_rest_of_a_record_has_a_time_limit(sent: int) -> None:
    async def run() -> None:
        async with members(1, slow_peer_timeout_ms=400) as (member,):
            attempt = await opened(member)
            record = signed(attempt, Put(1, "m", KEY, bytes(4 + 2 * MAX_BODY_BYTES), 0))
            await asyncio.to_thread(attempt.socket.sendall, record[:sent])
            await until(lambda: member.overload.slow_peers.total == 1, "who does not finish is dropped")
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(attempt.socket.recv, 1)
            attempt.socket.close()

    asyncio.run(run())


def test_a_slow_sender_of_records_is_waited_for() -> None:
    """Longer than the time limit, through the ends of several records, in the middle of which a frame begins."""

    async def run() -> None:
        async with members(1, slow_peer_timeout_ms=600) as (member,):
            await member.map("m").put("k", 1)
            attempt = await opened(member)
            data = signed(attempt, GetMembers(1)) + signed(attempt, Put(2, "m", KEY, to_data(bytes(MIB)), 0))
            size = len(data) // 16
            for start in range(0, len(data), size):
                await asyncio.to_thread(attempt.socket.sendall, data[start : start + size])
                await asyncio.sleep(0.1)
            await until(lambda: not inbound(member).has_part, "all of it is read")
            assert member.overload.slow_peers.total == 0
            assert len(await member.map("m").get("k", b"")) == MIB
            attempt.socket.close()

    asyncio.run(run())


def test_a_record_takes_room_until_the_frame_in_it_tells_how_long_it_is() -> None:
    async def run() -> None:
        async with members(1) as (member,):
            attempt = await opened(member)
            room = member._group.flow._room
            data = signed(attempt, Put(1, "m", KEY, bytes(MIB), 0))
            await asyncio.to_thread(attempt.socket.sendall, data[:100_000])
            await until(lambda: room.used == LONGEST, "the record has room")
            await asyncio.to_thread(attempt.socket.sendall, data[100_000 : LONGEST + 10])
            await until(lambda: room.used > MIB, "now the frame has")
            await asyncio.to_thread(attempt.socket.sendall, data[LONGEST + 10 :])
            await until(lambda: room.used == 0, "all of it is handled")
            attempt.socket.close()

    asyncio.run(run())
