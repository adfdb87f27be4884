"""Peers that do not read, or do not finish what they send, cost a member a bounded amount of memory, for a bounded time.

And honest ones that are slow, or many, get everything, in order.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.codec.values import keys_to_data
from phalanx.runtime.member import Member
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import PROTOCOL_VERSION, DoneReply, Get, GetAll, Hello, Message, Put, ValueReply
from support.processes import Cluster, wait_for
from support.raw_peers import RawPeer, memory_of

MIB = 1024 * 1024
(KEY,) = keys_to_data(["k"])


def configured(folder: Path, **settings: int) -> tuple[str, ...]:
    """Options of a member with these settings."""
    path = folder / "member.toml"
    path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
    return ("--config", str(path))


def assign(cluster: Cluster) -> None:
    """Let partitions be assigned: what comes before is not ready to be served."""
    with cluster.client() as grid:
        grid.map("m").put("k", 1)


async def start(**settings: Any) -> Member:
    return await phalanx.start_member(phalanx.Config(port=0, cluster="test", **settings))


# --- in memory --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Get, GetAll])
def test_a_packet_of_requests_does_not_fill_the_memory(cluster: Cluster, kind: type) -> None:
    """With the default settings: 128 MiB wait for one client at most, and what a lot of 16 requests copies is besides."""
    (member,) = cluster.start(1)
    with cluster.client() as grid:
        grid.map("m").put("k", bytes(2 * MIB))
        before = memory_of(member.pid)
        with RawPeer(member.address).greeted() as peer:
            peer.send(*(Get(n, "m", KEY) if kind is Get else GetAll(n, "m", [KEY] * 200) for n in range(1, 451)))
            for n in range(50):
                grid.map("m").put("served", n)
            wait_for(lambda: memory_of(member.pid) > before + 64 * MIB, "the requests have been taken")
            for n in range(50):
                grid.map("m").put("served", n)
            if kind is Get:
                first = peer.replies(100, at_once=MIB)[:100]
                assert [reply.id for reply in first] == list(range(1, 101))
        assert memory_of(member.pid) < before + 450 * MIB


def test_clients_that_never_read_are_bounded_together_and_dropped(cluster: Cluster) -> None:
    options = configured(
        cluster.folder, max_backlog_bytes=16 * MIB, max_total_backlog_bytes=64 * MIB, slow_peer_timeout_ms=2000
    )
    (member,) = cluster.start(1, options=options)
    with cluster.client() as grid:
        grid.map("m").put("k", bytes(MIB))
        before = memory_of(member.pid)
        peers = [RawPeer(member.address).greeted() for _ in range(20)]
        for peer in peers:
            peer.send(*(Get(n, "m", KEY) for n in range(1, 101)))
        for n in range(20):
            grid.map("m").put("served", n)
        wait_for(lambda: all(peer.is_closed() for peer in peers), "all who do not read are dropped")
        for peer in peers:
            peer.socket.close()
        assert memory_of(member.pid) < before + 160 * MIB
        assert grid.map("m")["served"] == 19
    log = member.log.read_text()
    assert "connections of 127.0.0.1, the last because it read too few of the bytes that wait for it" in log


def test_half_sent_messages_are_bounded_together_and_dropped(cluster: Cluster) -> None:
    options = configured(cluster.folder, max_partial_frame_bytes=48 * MIB, slow_peer_timeout_ms=2000)
    (member,) = cluster.start(1, options=options)
    with cluster.client() as grid:
        grid.map("m").put("k", 1)
        before = memory_of(member.pid)
        peers = [RawPeer(member.address).greeted() for _ in range(60)]
        for peer in peers:
            peer.push((16 * MIB).to_bytes(4, "big") + bytes(1000))
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:  # each sends what is taken of it, and half at most
            for peer in peers:
                if peer.sent < 8 * MIB:
                    peer.push(bytes(256 * 1024))
            grid.map("m").put("served", 1)
        wait_for(lambda: all(peer.is_closed() for peer in peers), "all who do not go on are dropped")
        for peer in peers:
            peer.socket.close()
        assert memory_of(member.pid) < before + 120 * MIB
        grid.map("m").put("large", bytes(8 * MIB))
        assert len(grid.map("m")["large"]) == 8 * MIB
    assert "the last because the rest of a message did not arrive" in member.log.read_text()


# --- what is told -----------------------------------------------------------------------------------------------------


def test_who_is_dropped_is_counted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        member = await start(
            max_backlog_bytes=4 * MIB, max_total_backlog_bytes=16 * MIB, slow_peer_timeout_ms=500,
        )  # fmt: skip
        try:
            await member.map("m").put("k", bytes(10 * MIB))
            reader, sender = await asyncio.to_thread(_misbehave, member.address)
            await _until(lambda: member.overload.slow_peers.total == 2)
            for peer in (reader, sender):
                await asyncio.to_thread(wait_for, peer.is_closed, "the connection is closed")
            reader.socket.close()
            sender.socket.close()
            # Eight at once have more than all may have together.
            many = await asyncio.to_thread(_ask_and_never_read, member.address, 8)
            await _until(lambda: member.overload.full_backlogs.total > 0)
            assert await member.map("m").get("k") is not None
            for peer in many:
                peer.socket.close()
        finally:
            await member.stop(drain=False)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())
    said = [record.getMessage() for record in caplog.records]
    assert sum("dropped 1 connections of 127.0.0.1" in line for line in said) == 2, said
    assert any("too many bytes wait to be written: " in line and "the limit is 16777216" in line for line in said), said


def _misbehave(address: str) -> tuple[RawPeer, RawPeer]:
    """One that does not read, and one that does not finish."""
    reader = RawPeer(address, receive_buffer=4096).greeted()
    reader.send(*(Get(n, "m", KEY) for n in range(1, 3)))
    sender = RawPeer(address).greeted()
    sender.announce(MIB, 1000)
    return reader, sender


def _ask_and_never_read(address: str, count: int) -> list[RawPeer]:
    peers = [RawPeer(address, receive_buffer=4096).greeted() for _ in range(count)]
    for peer in peers:
        peer.send(Get(1, "m", KEY), Get(2, "m", KEY))
    return peers


Bytes = bytes | bytearray | memoryview


class _Transport(asyncio.Transport):
    """Whose peer never reads: all that is written waits."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": socket.socket()})
        self.waiting = 0
        self.is_read = True

    def write(self, data: Bytes) -> None:
        self.waiting += len(data)

    def writelines(self, frames: Iterable[Bytes]) -> None:
        self.waiting += sum(map(len, frames))

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def abort(self) -> None:
        pass

    def close(self) -> None:
        self.get_extra_info("socket").close()


def test_a_large_message_that_is_held_keeps_its_room() -> None:
    """Else each of many clients that do not read could send one more while others finish theirs."""

    async def run() -> None:
        member = await start(
            max_partial_frame_bytes=4 * MIB, max_total_backlog_bytes=4 * MIB, max_backlog_bytes=3 * MIB
        )
        try:
            await member.map("m").put("k", bytes(MIB))
            (one, to_one), (two, to_two) = [await _greeted_by_hand(member, name) for name in ("one", "two")]
            one.pause_writing()
            two.pause_writing()
            one.data_received(encode_frame(Get(1, "m", KEY)))
            frame = encode_frame(Put(2, "m", KEY, b"\0\0\0\0" + bytes(3 * MIB), 0))
            one.data_received(frame[:100])
            assert to_one.is_read, "it has little to read"
            two.data_received(encode_frame(Get(1, "m", KEY)) * 3)
            assert not to_two.is_read
            one.data_received(frame[100:])  # whole, and held: together they have more than half of what all may have
            assert not to_one.is_read
            late, late_transport = await _greeted_by_hand(member, "late")
            late.data_received(frame[:100])
            assert not late_transport.is_read, "there is no room for two"
            to_one.waiting = 0
            one.resume_writing()
            await _until(lambda: late_transport.is_read and to_one.is_read)
            assert to_one.waiting > 0, "the write is answered"
        finally:
            await member.stop(drain=False)

    asyncio.run(run())


def test_a_frame_whose_length_comes_in_two_pieces_needs_room_too() -> None:
    """A part of its header says nothing of its length; the rest of the header does."""

    async def run() -> None:
        member = await start(max_partial_frame_bytes=4 * MIB)
        try:
            one, two = await _greeted_by_hand(member, "one"), await _greeted_by_hand(member, "two")
            header = (3 * MIB).to_bytes(4, "big")
            for peer, _ in (one, two):
                peer.data_received(header[:3])
            one[0].data_received(header[3:] + bytes(100))
            assert one[1].is_read
            two[0].data_received(header[3:] + bytes(100))
            assert not two[1].is_read, "there is no room for two"
            one[0].connection_lost(None)
            assert two[1].is_read
        finally:
            await member.stop(drain=False)

    asyncio.run(run())


async def _greeted_by_hand(member: Member, name: str) -> tuple[Any, _Transport]:
    transport, peer = _Transport(), member.accepted.accept()
    peer.connection_made(transport)
    peer.data_received(bytes(encode_frame(Hello(PROTOCOL_VERSION, "test", f"client/{name}", member.address, b""))))
    return peer, transport


async def _until(condition: Any) -> None:
    async with asyncio.timeout(30.0):
        while not condition():  # noqa: ASYNC110  # counters tell nobody that they count
            await asyncio.sleep(0.01)


# --- who is slow, and honest ------------------------------------------------------------------------------------------


def test_a_slow_reader_gets_every_reply_in_order(cluster: Cluster) -> None:
    """It is paused and resumed many times: its backlog may be 1 MiB, and it asks for 60 MiB in one packet."""
    options = configured(
        cluster.folder, max_backlog_bytes=MIB, max_total_backlog_bytes=64 * MIB, slow_peer_timeout_ms=2000
    )
    (member,) = cluster.start(1, options=options)
    with cluster.client() as grid:
        grid.map("m").put_all({n: bytes([n]) * 100_000 for n in range(100)})
    requests: list[Message] = []
    for n in range(1, 601):
        (key,) = keys_to_data([n % 100])
        requests.append(Get(2 * n, "m", key))
        requests.append(Put(2 * n + 1, "m", KEY, b"\0\0\0\0" + n.to_bytes(4, "big"), 0))
    with RawPeer(member.address, receive_buffer=64 * 1024).greeted() as peer:
        sending = threading.Thread(target=peer.send, args=requests)
        sending.start()
        replies = peer.replies(1200, at_once=200_000, pause_s=0.004)
        sending.join()
    assert [reply.id for reply in replies] == list(range(2, 1202))
    for reply in replies:
        if reply.id % 2:
            assert isinstance(reply, DoneReply)
        else:
            assert isinstance(reply, ValueReply)
            assert reply.value is not None
            assert len(reply.value) > 100_000
            assert reply.value[-1] == reply.id // 2 % 100
    with RawPeer(member.address).greeted() as peer:
        peer.send(Get(1, "m", KEY))
        assert peer.replies(1)[0].value[-2:] == (600).to_bytes(2, "big")


def test_a_slow_sender_of_one_large_value_is_waited_for(cluster: Cluster) -> None:
    """It takes longer than the time limit, and goes on all the time."""
    options = configured(cluster.folder, slow_peer_timeout_ms=500)
    (member,) = cluster.start(1, options=options)
    assign(cluster)
    with RawPeer(member.address).greeted() as peer:
        message = Put(1, "m", KEY, b"\0\0\0\0" + bytes(MIB), 0)
        peer.send_slowly(message, pieces=16, pause_s=0.1)
        assert isinstance(peer.replies(1)[0], DoneReply)


def test_many_large_messages_at_once_all_come_through(cluster: Cluster) -> None:
    """Each is longer than its share of the budget: were bytes counted as they come, none could be finished."""
    options = configured(cluster.folder, max_partial_frame_bytes=8 * MIB, slow_peer_timeout_ms=5000)
    (member,) = cluster.start(1, options=options)
    assign(cluster)
    count, size = 24, 3 * MIB
    failures: list[BaseException] = []
    ready = threading.Barrier(count)

    def put(number: int) -> None:
        try:
            (key,) = keys_to_data([number])
            with RawPeer(member.address).greeted() as peer:
                ready.wait(30)
                peer.send_slowly(Put(1, "m", key, b"\0\0\0\0" + bytes(size), 0), pieces=4, pause_s=0.02)
                assert isinstance(peer.replies(1)[0], DoneReply)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    with cluster.client() as grid:
        assert len(grid.map("m")) == count + 1


def test_a_client_that_goes_while_it_waits_gives_its_place_back(cluster: Cluster) -> None:
    """Those that hold room, those that wait for it and those that do not read go; others are served as before."""
    options = configured(
        cluster.folder, max_partial_frame_bytes=4 * MIB, max_backlog_bytes=MIB, max_total_backlog_bytes=8 * MIB
    )
    (member,) = cluster.start(1, options=options)
    with cluster.client() as grid:
        grid.map("m").put("k", bytes(3 * MIB))
        for _ in range(3):
            peers = [RawPeer(member.address).greeted() for _ in range(6)]
            for peer in peers:
                peer.announce(3 * MIB, 100_000)
            readers = _ask_and_never_read(member.address, 2)
            for peer in [*peers, *readers]:
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                peer.socket.close()
            grid.map("m").put("large", bytes(3 * MIB))
            assert len(grid.map("m")["k"]) == 3 * MIB
