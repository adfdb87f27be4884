"""Answers to clients of other systems that tell of writes of an `always` map: none leaves before its sync (DU-01), and all in order."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from phalanx import Config, MapConfig, start_member
from phalanx.common.disk_state import DiskState
from phalanx.common.store import StoreStart
from phalanx.endpoints.protocol import HELD_BYTES, TURN_BYTES
from phalanx.grid.replication.replica_log import ReplicaLog
from phalanx.runtime.disk.member_disk import MemberDisk
from phalanx.runtime.endpoints.held_answers import HeldAnswers
from phalanx.runtime.member import Member
from support.faulty_files import FaultyFiles

OK, PONG = b"+OK\r\n", b"+PONG\r\n"


class Client:
    """A client of Redis that writes what the test says, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *commands: str) -> None:
        self.writer.write(b"".join(b"%s\r\n" % command.encode() for command in commands))

    async def ask(self, *commands: str) -> bytes:
        """Return the first answer to these commands."""
        self.send(*commands)
        return await self.reader.readline()

    async def rest(self) -> bytes:
        """Return all bytes until the member closes the connection. Raises `ConnectionResetError`."""
        return await self.reader.read(-1)

    @property
    def has_heard(self) -> bool:
        """Whether any bytes have come that no test has read."""
        return bool(self.reader._buffer)  # type: ignore[attr-defined]  # the stream has no other way to look


class DurableMember:
    """A member whose Redis database is `always`, on a disk whose calls the test lets hang and fail."""

    def __init__(self, member: Member, files: FaultyFiles) -> None:
        self.member, self.files = member, files

    async def client(self) -> Client:
        host, port = self.member.address.rsplit(":", 1)
        return Client(*await asyncio.open_connection(host, int(port)))

    async def client_that_waits(self) -> Client:
        """Return a client whose SET is done, and whose sync hangs."""
        client = await self.client()
        assert await client.ask("SET a 1") == OK
        hung = self.files.hang_next("sync_data")
        client.send("SET a 2")
        await asyncio.to_thread(hung.wait_entered)
        return client


@pytest.mark.rows("DU-01")
def test_each_answer_waits_for_the_sync_of_what_was_done_before_it() -> None:
    log, held = ReplicaLog(store=StoreStart("A", 1)), HeldAnswers()
    assert not held.is_in_use
    for name in ("one", "two"):
        log.put(name, b"key", b"value", 11)
        held.owe()
        assert held.must_wait(log)
        held.hold(name.encode())
    held.hold(b"behind two")
    assert log.wanted_lsn == 2
    assert (held.take(0), held.take(1)) == (b"", b"one")
    assert held.is_in_use
    assert held.take(2) == b"twobehind two"
    assert (held.is_in_use, held.size) == (False, 0)


def test_an_answer_that_is_not_made_yet_waits_for_the_sync_of_what_was_done_before_it() -> None:
    log, held = ReplicaLog(store=StoreStart("A", 1)), HeldAnswers()
    log.put("map", b"key", b"value", 11)
    held.owe()
    assert held.take(0) == b""
    assert held.is_in_use, "the answer comes later"
    assert held.must_wait(log)
    log.note_synced(1)
    assert not held.must_wait(log), "now it leaves at once"


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[DurableMember], Awaitable[None]]], None]:
    files = FaultyFiles()
    monkeypatch.setattr(MemberDisk, "files", files)
    maps = {"redis0": MapConfig(durability="always")}
    data = str(tmp_path / "data")

    async def play(history: Callable[[DurableMember], Awaitable[None]]) -> None:
        config = Config(
            port=0,
            data_dir=data,
            data_dir_is_lasting=True,
            backup_count=0,
            partition_count=11,
            serve=["redis"],
            maps=maps,
        )
        async with await start_member(config) as member:
            try:
                await history(DurableMember(member, files))
            finally:
                files.let_all_go()

    return lambda history: asyncio.run(play(history))


def test_an_answer_leaves_when_its_write_is_synced(run: Callable[..., None]) -> None:
    async def history(durable: DurableMember) -> None:
        client, other = await durable.client_that_waits(), await durable.client()
        assert await other.ask("PING") == PONG, "nobody else waits"
        assert not client.has_heard
        durable.files.let_all_go()
        assert await client.reader.readline() == OK

    run(history)


def test_what_is_said_behind_a_held_answer_waits_too_and_stays_in_order(run: Callable[..., None]) -> None:
    async def history(durable: DurableMember) -> None:
        client, other = await durable.client_that_waits(), await durable.client()
        client.send("GET b", "PING", "SET b 3", "GET b")
        assert await other.ask("PING") == PONG
        assert not client.has_heard
        durable.files.let_all_go()
        expected = OK + b"$-1\r\n" + PONG + OK + b"$1\r\n3\r\n"
        assert await client.reader.readexactly(len(expected)) == expected

    run(history)


def test_a_connection_that_ends_says_first_what_it_holds(run: Callable[..., None]) -> None:
    async def history(durable: DurableMember) -> None:
        client, other = await durable.client_that_waits(), await durable.client()
        client.send("QUIT")
        assert await other.ask("PING") == PONG
        assert not client.has_heard
        durable.files.let_all_go()
        assert await client.rest() == OK + OK

    run(history)


def test_if_the_sync_fails_no_answer_leaves(run: Callable[..., None]) -> None:
    async def history(durable: DurableMember) -> None:
        client = await durable.client()
        assert await client.ask("SET a 1") == OK
        durable.files.fail_next("sync_data", errno.EIO)
        client.send("SET a 2")
        disk, other = durable.member.disk, await durable.client()
        while disk is not None and disk.state is not DiskState.FAILED:
            assert await other.ask("PING") == PONG
        rest = asyncio.create_task(client.rest())
        await asyncio.wait([rest], timeout=10)
        assert isinstance(rest.exception() if rest.done() else None, ConnectionResetError)
        assert not client.has_heard
        assert not durable.member.accepted.endpoints.holding

    run(history)


def test_what_a_connection_holds_is_bounded(run: Callable[..., None]) -> None:
    """1. A sync hangs. 2. A client sends one read after the other of a large value, and each answer waits for the sync."""

    async def history(durable: DurableMember) -> None:
        large, reads = "x" * (HELD_BYTES // 2), 200
        client = await durable.client()
        assert await client.ask(f"SET large {large}") == OK
        hung = durable.files.hang_next("sync_data")
        client.send("SET a 2")
        await asyncio.to_thread(hung.wait_entered)
        client.send(*(["GET large"] * reads))
        other = await durable.client()
        for _ in range(20):
            assert await other.ask("PING") == PONG
        (connection,) = durable.member.accepted.endpoints.holding
        assert HELD_BYTES <= connection._held.size < HELD_BYTES + 2 * TURN_BYTES
        durable.files.let_all_go()
        assert await client.reader.readline() == OK
        for _ in range(reads):
            await client.reader.readline()
            assert await client.reader.readexactly(len(large) + 2) == large.encode() + b"\r\n"

    run(history)


def test_a_member_that_stops_says_what_it_holds(run: Callable[..., None]) -> None:
    async def history(durable: DurableMember) -> None:
        client = await durable.client_that_waits()
        stopping = asyncio.create_task(durable.member.stop(drain=False))
        await asyncio.sleep(0)
        durable.files.let_all_go()
        assert await client.rest() == OK
        await stopping

    run(history)
