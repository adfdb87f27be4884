"""Requests that are far too large, as raw frames to a real member: each is refused at once, and costs next to nothing."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phalanx.common.errors import ErrorCode
from phalanx.wire.message import PROTOCOL_VERSION
from phalanx.wire.messages import ErrorReply
from support.processes import Cluster

PATIENCE_S = 60.0
HELLO, TABLE_UPDATE, GET, SIZE_OF, SCAN_PACKED = 1, 30, 60, 68, 150
ERROR_REPLY = ErrorReply.__struct_config__.tag
BODY = msgspec.msgpack.encode


class RawClient:
    """A client that sends whatever bytes it is given."""

    def __init__(self, address: str, name: str = "client/raw") -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self.greeting = self.ask(BODY([HELLO, PROTOCOL_VERSION, "test", name, address]))

    def ask(self, body: bytes) -> Any:
        """The next frame of the member."""
        self._socket.sendall(struct.pack(">I", len(body)) + body)
        (length,) = struct.unpack(">I", self._read(4))
        return msgspec.msgpack.decode(self._read(length))

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the member closed the connection")
            data += more
        return data

    def close(self) -> None:
        self._socket.close()


@contextmanager
def raw_client(cluster: Cluster, name: str = "client/raw") -> Iterator[RawClient]:
    client = RawClient(cluster.members[0].address, name)
    try:
        yield client
    finally:
        client.close()


def most_memory(cluster: Cluster) -> int:
    """The most bytes that the first member has ever had in memory."""
    status = Path(f"/proc/{cluster.members[0].pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.fixture
def member(cluster: Cluster) -> Cluster:
    cluster.start(1)
    with cluster.client() as grid:
        grid.map("m").put_all({n: {"a": n} for n in range(500)})
    return cluster


def conditions(count: int) -> list[Any]:
    """So many of `a >= 0`, which are all to be looked at for each entry."""
    literal = b"\xff\xff\xff\xf8" + bytes(8)
    return [[-1, ["a"], 2, 6, [literal], False]] * count


def test_a_scan_with_a_hundred_thousand_conditions_is_refused_and_the_connection_stays(member: Cluster) -> None:
    with raw_client(member) as client:
        reply = client.ask(BODY([SCAN_PACKED, 7, "m", 0, 271, b"", 1 << 20, 1, conditions(100_000)]))
        assert reply[:3] == [ERROR_REPLY, 7, ErrorCode.INVALID]
        assert "ScanPacked request has more than 64 items in, or within, its field 'conditions'" in reply[3]
        assert client.ask(BODY([GET, 8, "m", b"\xff\xff\xff\xf8" + bytes(8)]))[1] == 8


def test_sixty_million_numbers_are_not_made_before_they_are_refused(member: Cluster) -> None:
    before = most_memory(member)
    head = BODY([SIZE_OF, 7, "m"])[1:]
    body = b"\x95" + head + b"\xdd" + struct.pack(">I", 60_000_000) + bytes(60_000_000) + BODY(271)
    with raw_client(member) as client:
        reply = client.ask(body)
        assert reply[:3] == [ERROR_REPLY, 7, ErrorCode.INVALID]
        assert f"SizeOf request of {len(body)} bytes is over the limit of 4194304 bytes" in reply[3]
    # The frame itself waits until it is whole, and is joined once.
    assert most_memory(member) - before < 4 * len(body)


def test_a_client_cannot_have_what_members_tell_each_other_decoded(member: Cluster) -> None:
    before = most_memory(member)
    rows = b"\xdd" + struct.pack(">I", 5_000_000) + b"\x91\x00" * 5_000_000
    body = BODY([TABLE_UPDATE, 0])[:-1] + b"\x96" + BODY([]) + rows
    with raw_client(member) as client, pytest.raises(ConnectionError):
        client.ask(body)
    assert most_memory(member) - before < 100_000_000
