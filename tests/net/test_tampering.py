"""What somebody does to the records of a connection that goes through it, whom the operator has allowed: it is noticed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import phalanx
from phalanx.codec.values import to_data, to_key_data
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address, host_and_port
from phalanx.net.authenticated_records import RecordLayer, RecordSigner
from phalanx.net.greeting import Connecting
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.secret import SECRET_FILE_VARIABLE, Secret
from phalanx.wire.codec import FrameReader, encode_frame, reply_decoder
from phalanx.wire.messages import GetMembers, Message, Put
from support.processes import free_port
from support.relays import Relay
from support.secret_members import (
    DEADLINE_S,
    ENTRIES,
    SECRET,
    by_asyncio,
    by_blocking,
    clear,
    members,
    size_of,
    told,
    until,
)


@pytest.fixture(autouse=True)
def _nothing_else_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)


class Speaker:
    """A client that sends each message in a record of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._records: RecordLayer | None = None
        self._frames = FrameReader(reply_decoder)

    @classmethod
    async def connect(cls, address: str) -> "Speaker":
        reader, writer = await asyncio.open_connection(*host_and_port(Address(address)))
        speaker = cls(reader, writer)
        greeting = Connecting(Address(address), "phalanx", "client/speaker", Secret(SECRET))
        writer.write(encode_frame(greeting.begin(Address(address))))
        greetings = GreetingReader()
        while greeting.member is None:
            message = greetings.take(await reader.read(65536))
            answer = greeting.answer(message) if message is not None else None
            assert not isinstance(answer, str), answer
            if answer is not None:
                writer.write(encode_frame(answer))
        speaker._records = greeting.records
        return speaker

    def say(self, *messages: Message) -> None:
        assert self._records is not None
        for message in messages:
            self._writer.write(self._records.sign(encode_frame(message)))

    async def hear(self) -> list[Any]:
        """The next replies; none when the member has closed the connection."""
        assert self._records is not None
        replies: list[Any] = []
        with contextlib.suppress(ConnectionResetError):
            while not replies and (data := await self._reader.read(65536)):
                replies += self._frames.feed(self._records.feed(data))
        return replies

    def close(self) -> None:
        self._writer.transport.abort()


def flip(record: bytes, bit: int) -> bytes:
    changed = bytearray(record)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def forged(message: Message) -> bytes:
    return RecordSigner(b"a key of a stranger").sign(encode_frame(message))


class Tampering:
    """What a relay does to the records towards the member."""

    def __init__(self, how: str) -> None:
        self._how = how
        self._first = b""

    def __call__(self, way: str, number: int, record: bytes) -> list[bytes]:
        if way == "out" or number == 0:
            self._first = self._first if way == "out" else record
            return [record]
        match self._how:
            case "a bit of the body":
                return [flip(record, len(record) * 8 - 1)]
            case "a bit of the tag":
                return [flip(record, 4 * 8)]
            case "a bit of the length":
                return [flip(record, 3 * 8)]
            case "repeated":
                return [self._first]
            case "repeated behind it":
                return [record, record]
            case "left out":
                return [] if number == 1 else [record]
            case "exchanged":
                if number == 1:
                    self._held = record
                    return []
                return [record, self._held]
            case "injected":
                return [forged(clear()), record]
            case "unprotected":
                return [bytes(encode_frame(clear()))]
            case "of another connection":
                return [OLD_RECORDS[number]]
            case _:
                raise AssertionError(self._how)


OLD_RECORDS: list[bytes] = []
"""Of the connection that `test_what_was_done_to_records_is_noticed` makes first."""
KINDS = [
    "a bit of the body", "a bit of the tag", "a bit of the length", "repeated", "repeated behind it", "left out", "exchanged",
    "injected", "unprotected", "of another connection",
]  # fmt: skip


@pytest.mark.parametrize("how", KINDS)
def test_what_was_done_to_records_is_noticed(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """By somebody through whom a connection goes, and whom the operator has allowed: the greeting is honest."""

    async def run() -> None:
        port = free_port()
        known = f"127.0.0.1:{port}"
        async with members(1, also_known_as=(known,)) as (member,):
            await member.map("m").put_all(ENTRIES)
            if how == "of another connection":
                OLD_RECORDS.clear()
                async with Relay(member.address, at=known, tamper=note) as relay:
                    speaker = await Speaker.connect(relay.address)
                    speaker.say(GetMembers(1), GetMembers(2))
                    assert await speaker.hear()
                    await until(lambda: len(OLD_RECORDS) == 2, "both were passed on")
                    speaker.close()
            async with Relay(member.address, at=known, tamper=Tampering(how)) as relay:
                speaker = await Speaker.connect(relay.address)
                speaker.say(GetMembers(1))
                assert [reply.id for reply in await speaker.hear()] == [1]
                assert member.overload.broken_frames.total == 0
                speaker.say(put(2), put(3))
                heard = []
                while replies := await speaker.hear():
                    heard += [reply.id for reply in replies]
                assert relay.connections[-1].is_welcomed
                await until(lambda: member.overload.broken_frames.total == 1, "it is counted")
                stored = await size_of(member) - len(ENTRIES)
                if how == "repeated behind it":
                    assert heard in ([], [2])
                    assert len(heard) <= stored <= 1
                else:
                    assert (heard, stored) == ([], 0)
                assert f"{member.address}: closing the connection of client/speaker: " in told(caplog)
                assert "somebody between the two ends" in told(caplog)

    asyncio.run(run())


def test_who_may_pass_connections_on_says_nothing_in_the_place_of_others() -> None:
    """The greeting goes through as the operator has allowed. To keep the connection gains nothing."""

    async def run() -> None:
        known = f"127.0.0.1:{free_port()}"
        async with members(1, also_known_as=(known,)) as (member,), Relay(member.address, at=known) as relay:
            await member.map("m").put_all(ENTRIES)
            with pytest.raises(ConnectError):
                async with phalanx.connect(known, secret=SECRET, connect_timeout_s=0.5):
                    pass
            stolen = await relay.one_over()
            assert stolen.is_welcomed
            assert stolen.upstream is not None
            stolen.upstream.write(forged(clear()))
            async with asyncio.timeout(DEADLINE_S):
                await stolen.closed.wait()
            assert (stolen.heard, member.overload.broken_frames.total) == (b"", 1)
            assert await size_of(member) == len(ENTRIES)

    asyncio.run(run())


def note(way: str, number: int, record: bytes) -> list[bytes]:
    if way == "in":
        OLD_RECORDS.append(record)
    return [record]


def put(number: int) -> Put:
    return Put(number, "m", to_key_data(f"new {number}"), to_data(number), 0)


@pytest.mark.parametrize("ask", [by_asyncio, by_blocking])
def test_a_reply_that_was_changed_is_not_believed(
    ask: Callable[[str], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is lost, and the client asks again on another one."""
    changed: list[int] = []

    def change_sizes(way: str, number: int, record: bytes) -> list[bytes]:
        if way == "out" and not changed and number:
            changed.append(number)
            return [flip(record, len(record) * 8 - 1)]
        return [record]

    async def run() -> None:
        port = free_port()
        known = f"127.0.0.1:{port}"
        async with members(1, also_known_as=(known,)) as (member,):
            await member.map("m").put_all(ENTRIES)
            async with Relay(member.address, at=known, tamper=change_sizes) as relay:
                assert await ask(relay.address) == len(ENTRIES)
            assert changed
            assert f"closing the connection to {member.id}: record {changed[0]} of this connection" in told(caplog)

    asyncio.run(run())
