"""Answers of many clients leave a member with a disk together, behind one write to the disk; those that need a sync behind that."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.common.store import StoreStart
from phalanx.endpoints.protocol import Effect, SendBytes
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.net.connection import ConnectionGroup
from phalanx.net.sniffing import Spoken
from phalanx.runtime.endpoints.endpoint_connections import EndpointConnection

CLIENTS = 3


class Disk:
    """Notes what the clients had got whenever something was written."""

    def __init__(self, clients: list[socket.socket]) -> None:
        self.clients = clients
        self.has_new = False
        self.had: list[bytes] = []
        self.local = SimpleNamespace(owes_sync=False)
        self.log = ReplicaLog(store=StoreStart("A", 1))

    def write(self) -> None:
        if self.has_new:
            self.has_new = False
            self.had.append(b"".join(map(got, self.clients)))


class Echo:
    """A machine that answers with what comes, and changes something when `P` comes."""

    held_bytes = commands_read = part_length = part_bytes = 0
    has_more = False

    def __init__(self, disk: Disk, *, is_at_once: bool) -> None:
        self.disk, self.is_at_once = disk, is_at_once

    def connect(self, *_: Any) -> "Echo":
        return self

    def opened(self, now: int) -> list[Effect]:
        return []

    def received(self, data: bytes, now: int) -> bytes | list[Effect]:
        self.disk.has_new = self.disk.has_new or b"P" in data
        if b"S" in data:
            self.disk.log.put("map", b"key", b"value", 11)
            self.disk.local.owes_sync = True
        return data if self.is_at_once else [SendBytes(data)]

    def closed(self) -> None: ...


def got(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 20)
    except BlockingIOError:
        return b""


async def asked(requests: list[list[bytes]], *, is_at_once: bool) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """Let each client send its requests in one turn. `P`: something is changed. `S`, in a first request: it must be synced.

    Return what all had got at each write to the disk, what each has at the end of the turn, and what each has later.
    """
    pairs = [socket.socketpair() for _ in requests]
    clients = [there for _, there in pairs]
    for client in clients:
        client.setblocking(False)
    loop, group, disk = asyncio.get_running_loop(), ConnectionGroup(1_000_000), Disk(clients)
    group.before_output, group.gathers_output = disk.write, lambda: disk.has_new
    everything: Any = SimpleNamespace(
        group=group, host=SimpleNamespace(now=lambda: 0, address="here:1"), open={}, holding={}, log=disk.log,
        grid=SimpleNamespace(local=disk.local),
        failures=SimpleNamespace(count=lambda *_: 1), acceptor=SimpleNamespace(places=SimpleNamespace(gone=lambda _: None)),
    )  # fmt: skip
    connections = []
    for number, (here, _) in enumerate(pairs):
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=here)
        connection = EndpointConnection(everything, Spoken.HAZELCAST, number)
        transport.set_protocol(connection)
        endpoint: Any = Echo(disk, is_at_once=is_at_once)
        connection.begin(transport, endpoint, b"-")
        connections.append(connection)
    await asyncio.sleep(0)
    assert list(map(got, clients)) == [b"-"] * len(clients)
    for connection, sent in zip(connections, requests, strict=True):
        for data in sent:
            connection.data_received(data)
    at_once = list(map(got, clients))
    await asyncio.sleep(0)
    later = list(map(got, clients))
    for connection in list(everything.holding):
        connection.write_synced(disk.log.wanted_lsn)
    synced = list(map(got, clients))
    assert synced == [b"".join(sent) if b"S" in sent[0] else b"" for sent in requests], "held until the sync"
    for connection in connections:
        connection._timer.cancel()
        assert connection.transport is not None
        connection.transport.abort()
    for client in clients:
        client.close()
    return disk.had, at_once, later


@pytest.mark.parametrize("is_at_once", [True, False])
def test_answers_wait_for_one_write_of_all(is_at_once: bool) -> None:
    had, at_once, later = asyncio.run(asked([[b"P%d" % number] for number in range(CLIENTS)], is_at_once=is_at_once))
    assert had == [b""], "one write, before any answer leaves"
    assert at_once == [b""] * CLIENTS
    assert later == [b"P0", b"P1", b"P2"]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_answers_leave_at_once_where_nothing_was_changed(is_at_once: bool) -> None:
    had, at_once, later = asyncio.run(asked([[b"G0"], [b"G1"]], is_at_once=is_at_once))
    assert (had, at_once, later) == ([], [b"G0", b"G1"], [b"", b""])


@pytest.mark.parametrize("is_at_once", [True, False])
def test_a_read_behind_a_change_does_not_tell_it_before_it_is_written(is_at_once: bool) -> None:
    had, at_once, later = asyncio.run(asked([[b"G0"], [b"P1", b"G1"], [b"G2"]], is_at_once=is_at_once))
    assert had == [b""], "of these answers none has left by then"
    assert at_once == [b"G0", b"", b""]
    assert later == [b"", b"P1G1", b"G2"]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_answers_behind_a_change_that_must_be_synced_wait_for_its_sync(is_at_once: bool) -> None:
    _, at_once, later = asyncio.run(asked([[b"S0", b"G0"], [b"G1"], [b"S2"]], is_at_once=is_at_once))
    assert at_once == [b"", b"G1", b""]
    assert later == [b"", b"", b""]
