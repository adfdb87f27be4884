"""A client that has many requests under way works on the first answers while its member makes the others."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

from phalanx.endpoints.protocol import Effect, SendBytes
from phalanx.net.connection import ConnectionGroup
from phalanx.net.sniffing import Spoken
from phalanx.runtime.endpoints.endpoint_connections import EndpointConnection


class Lots:
    """A machine that answers whatever comes in turns, each with the bytes of one lot."""

    held_bytes = commands_read = part_length = part_bytes = 0

    def __init__(self, there: socket.socket, lots: list[bytes]) -> None:
        self.there, self.lots = there, lots
        self.arrived: list[bytes] = []
        """What the client had read when each turn but the first began."""

    @property
    def has_more(self) -> bool:
        return bool(self.lots)

    def connect(self, *_: Any) -> "Lots":
        return self

    def opened(self, now: int) -> list[Effect]:
        return []

    def received(self, data: bytes, now: int) -> list[Effect]:
        return [SendBytes(self.lots.pop(0))]

    def go_on(self, now: int) -> list[Effect]:
        try:
            self.arrived.append(self.there.recv(1 << 20))
        except BlockingIOError:
            self.arrived.append(b"")
        return [SendBytes(self.lots.pop(0))]

    def closed(self) -> None: ...


async def served(lots: list[bytes]) -> tuple[Lots, bytes]:
    """The machine after it has served a request with these lots, and all that the client got."""
    here, there = socket.socketpair()
    there.setblocking(False)
    machine, group = Lots(there, list(lots)), ConnectionGroup(1_000_000)
    host = SimpleNamespace(now=lambda: 0, address="here:1")
    everything: Any = SimpleNamespace(
        group=group, host=host, open={}, failures=SimpleNamespace(count=lambda *_: 1), acceptor=SimpleNamespace(), holding={}, log=None,
        grid=SimpleNamespace(local=SimpleNamespace(owes_sync=False)),
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=here)
    connection = EndpointConnection(everything, Spoken.HAZELCAST, 1)
    transport.set_protocol(connection)
    endpoint: Any = machine
    connection.begin(transport, endpoint, b"a request")
    got = b"".join(machine.arrived)
    async with asyncio.timeout(20):
        while len(got) < sum(map(len, lots)):
            got += await loop.sock_recv(there, 1 << 20)
    connection._timer.cancel()
    transport.abort()
    there.close()
    return machine, got


def test_each_lot_is_under_way_before_the_next_is_made() -> None:
    lots = [b"first", b"second", b"third"]
    machine, got = asyncio.run(served(lots))
    assert machine.arrived == [b"first", b"second"]
    assert got == b"".join(lots)


def test_lots_that_the_peer_has_no_room_for_come_whole_and_in_order() -> None:
    lots = [bytes([number]) * 300_000 for number in range(5)]
    _, got = asyncio.run(served(lots))
    assert got == b"".join(lots)
