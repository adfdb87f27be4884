"""A write that never left is no write of unknown outcome: what is told when there is nobody to send it to."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt, NotDelivered
from phalanx.common.errors import IndeterminateWrite, UnavailableError
from phalanx.common.ids import Address, member_id
from phalanx.net import greeting
from phalanx.wire.codec import FrameReader, encode_frame, handshake_decoder
from phalanx.wire.messages import PROTOCOL_VERSION, DoneReply, Put, Welcome
from support.processes import Cluster

WRITES: list[Callable[[Any], Any]] = [
    lambda m: m.put("a", 2),
    lambda m: m.put_if_absent("b", 2),
    lambda m: m.compare_and_set("a", 1, 2),
    lambda m: m.remove("a"),
    lambda m: m.increment("n"),
    lambda m: m.update("l", "append", 1),
    lambda m: m.put_all({"a": 2, "b": 3}),
    lambda m: m.clear(),
]


def test_the_only_member_was_killed_and_a_blocking_client_writes(cluster: Cluster) -> None:
    """First on the connection that the member's system has closed; then connections are refused."""
    (member,) = cluster.start()
    with cluster.client(call_timeout_s=0.2) as client:
        writes = client.map("m")
        writes["a"] = 1
        with client._sessions.session():
            writes["a"] = 1
        cluster.kill(member)
        for write in [*WRITES, *WRITES[:2]]:
            with pytest.raises(UnavailableError, match="nothing was changed"):
                write(writes)


def test_the_only_member_was_killed_and_an_asyncio_client_writes(cluster: Cluster) -> None:
    (member,) = cluster.start()

    async def run() -> None:
        async with phalanx.connect(cluster.addresses, cluster=cluster.name, call_timeout_s=0.2) as client:
            writes = client.map("m")
            await writes.put("a", 1)
            cluster.kill(member)
            await asyncio.sleep(0.1)
            for write in WRITES:
                with pytest.raises(UnavailableError, match="nothing was changed"):
                    await write(writes)

    asyncio.run(run())


def test_a_member_that_hangs_before_it_was_connected_to_has_not_got_the_write(cluster: Cluster) -> None:
    """It runs again when the call is over: what waited for the connection is not sent then."""
    (member,) = cluster.start()
    with cluster.client() as other:
        other.map("m")["a"] = 1

        async def run() -> None:
            async with phalanx.connect(cluster.addresses, cluster=cluster.name, call_timeout_s=1.0) as client:
                await client.map("m").get("a")
                for link in list(client._links.values()):
                    link.reset()
                await asyncio.sleep(0.05)
                cluster.pause(member)
                with pytest.raises(UnavailableError, match="nothing was changed"):
                    await client.map("m").put("a", 2)
                cluster.resume(member)
                assert await client.map("m").get("a") == 1

        asyncio.run(run())
        with cluster.client(call_timeout_s=1.0) as client:
            assert client.map("m")["a"] == 1
            client._sessions._close_idle()
            cluster.pause(member)
            with pytest.raises(UnavailableError, match="nothing was changed"):
                client.map("m").put("a", 2)
            cluster.resume(member)
            assert client.map("m")["a"] == 1


class Peer:
    """A member's end of one connection, as a test wants it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = Address(f"127.0.0.1:{server.getsockname()[1]}")
            attempt = ConnectAttempt(address, "phalanx", "client/1")
            self.socket, _ = server.accept()
        attempt.go_on_for(0.1)
        reader: FrameReader[Any] = FrameReader(handshake_decoder, greeting.MAX_GREETING_BYTES)
        while not reader.feed(self.socket.recv(4096)):
            pass
        self.socket.sendall(encode_frame(Welcome(member_id(address, "1"), protocol=PROTOCOL_VERSION)))
        attempt.go_on_for(5)
        self.connection = BlockingConnection(attempt, 1 << 20)


PUT = Put(1, "m", b"key", b"value", 0)


def test_only_what_came_behind_the_end_of_the_connection_was_certainly_not_read() -> None:
    peer = Peer()
    peer.socket.close()
    with pytest.raises(NotDelivered):
        peer.connection.exchange(PUT, 1.0)
    with pytest.raises(NotDelivered):
        peer.connection.exchange(PUT, 1.0)
    peer.connection.socket.close()

    peer = Peer()
    peer.connection.send(PUT)
    assert peer.socket.recv(4096)
    peer.socket.close()
    with pytest.raises(ConnectionResetError) as error:
        peer.connection.receive(5.0)
    assert not isinstance(error.value, NotDelivered)
    peer.connection.socket.close()


def test_a_member_that_read_the_request_and_went_may_have_done_it(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer()
    receive = peer.connection.receive

    def read_and_go(wait_s: float) -> Any:
        assert peer.socket.recv(4096)
        peer.socket.close()
        return receive(wait_s)

    monkeypatch.setattr(peer.connection, "receive", read_and_go)
    with pytest.raises(ConnectionResetError) as error:
        peer.connection.exchange(PUT, 5.0)
    assert not isinstance(error.value, NotDelivered)
    peer.connection.socket.close()


def test_an_answer_after_a_partial_send_is_read() -> None:
    peer = Peer()
    large = Put(2, "m", b"key", b"x" * 1_000_000, 0)
    peer.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    for _ in range(10):
        peer.connection.send(large)
        if peer.connection.has_unsent:
            break
    assert peer.connection.has_unsent
    peer.socket.settimeout(0.01)
    while peer.connection.has_unsent:
        with contextlib.suppress(TimeoutError):
            peer.socket.recv(1 << 20)
        peer.connection.flush()
    peer.socket.sendall(encode_frame(DoneReply(2)))
    assert peer.connection.receive(5.0) == [DoneReply(2)]
    peer.socket.close()
    peer.connection.socket.close()


def test_a_write_that_was_sent_to_a_member_which_is_killed_has_an_unknown_outcome(cluster: Cluster) -> None:
    (member,) = cluster.start()
    with cluster.client(call_timeout_s=1.0) as client:
        writes = client.map("m")
        writes["a"] = 1
        cluster.pause(member)
        with pytest.raises(IndeterminateWrite):
            writes.put("a", 2)
