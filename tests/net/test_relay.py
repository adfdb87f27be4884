"""A stranger without the secret who listens where somebody dials, and passes the greeting on to a member."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address, host_and_port
from phalanx.grid.serialization import to_data, to_key_data
from phalanx.net.greeting import Connecting
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.records import RecordLayer, Sealer
from phalanx.net.secret import SECRET_FILE_VARIABLE, Secret
from phalanx.runtime.member import Member
from phalanx.wire.codec import FrameReader, encode_frame, reply_decoder
from phalanx.wire.messages import ClearPartitions, GetMembers, Message, Put
from processes import Cluster
from relays import Forwarder, Relay

SECRET = "a secret of this cluster"
PARTITIONS = 31
ENTRIES = dict.fromkeys(range(100), "x" * 10)
HASTY = {
    "partition_count": PARTITIONS, "merge_interval_ms": 100, "heartbeat_interval_ms": 100, "connection_grace_ms": 100,
    "join_attempts": 1, "retry_interval_ms": 50,
}  # fmt: skip
DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _nothing_else_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)


@contextlib.asynccontextmanager
async def members(count: int, **settings: Any) -> AsyncIterator[list[Member]]:
    """Members with the secret, the first of them the master."""
    found: list[Member] = []
    try:
        for _ in range(count):
            seeds = tuple(member.address for member in found[:1])
            config = phalanx.Config(**({"port": 0, "secret": SECRET, "seeds": seeds} | HASTY | settings))
            found.append(await phalanx.start_member(config))
        await until(lambda: all(member.view and len(member.view.members) == count for member in found), "one list")
        yield found
    finally:
        for member in found:
            await member.stop(drain=False)


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


def clear(name: str = "m") -> ClearPartitions:
    return ClearPartitions(1, name, list(range(PARTITIONS)), PARTITIONS)


async def size_of(member: Member) -> int:
    return await member.map("m").size()


def told(caplog: pytest.LogCaptureFixture) -> str:
    """What members logged."""
    return "\n".join(record.getMessage() for record in caplog.records)


async def by_asyncio(address: str) -> Any:
    async with phalanx.connect(address, secret=SECRET, connect_timeout_s=5.0) as grid:
        return await grid.map("m").size()


async def by_blocking(address: str) -> Any:
    def ask() -> int:
        with phalanx.Client(address, secret=SECRET, connect_timeout_s=5.0) as grid:
            return len(grid.map("m"))

    return await asyncio.to_thread(ask)


async def by_question(address: str, secret_file: Path) -> Any:
    def ask() -> int:
        with Inquirer(Address(address), secret_file=secret_file) as inquirer:
            return len(inquirer.members().view.members)

    return await asyncio.to_thread(ask)


# --- passed on to somebody else -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [by_asyncio, by_blocking])
def test_who_passes_a_clients_greeting_on_is_no_client(
    ask: Callable[[str], Awaitable[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with members(1) as (member,), Relay(member.address) as relay:
            await member.map("m").put_all(ENTRIES)
            with pytest.raises(ConnectError) as refused:
                await ask(relay.address)
            stolen = await relay.one_over()
            stolen.send(clear())
            await until(lambda: stolen.closed.is_set() or stolen.heard, "an answer, or the end")
            assert not stolen.heard
            assert not stolen.is_welcomed
            assert await size_of(member) == len(ENTRIES)
            reason = (
                f"{relay.address} was dialled, and the connection came to {member.address}, which is not known under"
            )
            assert reason in str(refused.value)
            assert f"--also-known-as {relay.address}" in str(refused.value)
            assert f"{member.address} refused 1 connections from 127.0.0.1, the last because {reason}" in told(caplog)
            assert member.refused_strangers.total >= 1

    asyncio.run(run())


@pytest.mark.parametrize("to", ["another member", "the master itself"])
def test_who_listens_where_a_member_was_is_not_the_master(to: str, caplog: pytest.LogCaptureFixture) -> None:
    """The master looks for another side at the addresses of former members."""

    async def run() -> None:
        async with members(3) as (master, other, gone):
            await master.map("m").put_all(ENTRIES)
            address = gone.address
            await gone.stop(drain=False)
            target = other if to == "another member" else master
            async with Relay(target.address, at=address) as relay:
                await until(lambda: master.view and len(master.view.members) == 2, "it was removed")
                stolen = await relay.one_over(receiver=address)
                stolen.send(clear())
                async with asyncio.timeout(DEADLINE_S):
                    await stolen.closed.wait()
                assert not any(each.is_welcomed for each in relay.connections)
            assert await size_of(master) == len(ENTRIES)
            if target is other:
                assert f"{address} was dialled, and the connection came to {other.address}" in told(caplog)
                assert other.refused_strangers.total >= 1

    asyncio.run(run())


def test_a_call_for_a_member_that_is_gone_is_given_up_at_a_stranger_that_names_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the others have removed it, they dial its incarnation."""

    async def run() -> None:
        async with members(3, connection_grace_ms=5_000) as (master, other, gone):
            address, identity = gone.address, gone.id
            await gone.stop(drain=False)
            async with Relay(other.address, at=address) as relay:
                stolen = await relay.one_over(receiver=identity)
                assert [type(each).__name__ for each in stolen.said] == ["Hello", "Challenge"]
                reason = f"{address} was dialled, and '{other.address}' answered: whoever listens there passes"
                await until(
                    lambda: f"connections to {address}, the last because {reason}" in told(caplog), "it is told"
                )
                assert master.refused_strangers.total + other.refused_strangers.total >= 1

    asyncio.run(run())


def test_a_client_and_a_joiner_go_on_to_the_members_beside_the_stranger() -> None:
    async def run() -> None:
        async with members(1) as (member,), Relay(member.address) as relay:
            await member.map("m").put_all(ENTRIES)
            addresses = f"{relay.address},{member.address}"
            assert await by_asyncio(addresses) == await by_blocking(addresses) == len(ENTRIES)
            seeds = (Address(relay.address), Address(member.address))
            joiner = await phalanx.start_member(
                phalanx.Config(port=0, secret=SECRET, seeds=seeds, **HASTY)  # type: ignore[arg-type]
            )
            await joiner.stop(drain=False)

    asyncio.run(run())


# --- several addresses of one member --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "advertise", "dialled"),
    [
        ("127.0.0.1", None, ["127.0.0.1", "localhost", "LOCALHOST"]),
        ("127.0.0.2", None, ["127.0.0.2"]),
        ("localhost", None, ["localhost", "127.0.0.1"]),
        ("0.0.0.0", "127.0.0.3", ["0.0.0.0", "127.0.0.3", "127.0.0.1", "127.0.0.2", "localhost"]),
        ("127.0.0.1", "localhost", ["127.0.0.1", "localhost"]),
    ],
)
def test_a_member_is_reached_at_each_of_its_addresses(
    host: str, advertise: str | None, dialled: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)

    async def run() -> None:
        async with members(1, host=host, advertise=advertise) as (member,):
            port = member.address.rpartition(":")[2]
            for name in dialled:
                assert await by_asyncio(f"{name}:{port}") == await by_blocking(f"{name}:{port}") == 0
                assert await by_question(f"{name}:{port}", file) == 1
            seed = Address(f"{dialled[-1]}:{port}")
            settings: dict[str, Any] = HASTY | {"secret": SECRET, "host": host, "advertise": advertise}
            joiner = await phalanx.start_member(phalanx.Config(port=0, seeds=(seed,), **settings))
            await until(lambda: member.view and len(member.view.members) == 2, "it joined")
            await joiner.stop(drain=False)
            assert member.refused_strangers.total == 0

    asyncio.run(run())


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.3"])
def test_the_same_port_on_another_address_of_the_host_is_another_listener(host: str) -> None:
    async def run() -> None:
        async with members(1) as (member,):
            port = member.address.rpartition(":")[2]
            async with Relay(member.address, at=f"{host}:{port}") as relay:
                with pytest.raises(ConnectError, match=f"{host}:{port} was dialled"):
                    await by_asyncio(relay.address)
                assert not (await relay.one_over()).is_welcomed

    asyncio.run(run())


def test_a_mapped_port_takes_a_word_of_the_operator(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(0o600)

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        async with Forwarder(f"127.0.0.1:{port}") as mapped:
            async with members(1, port=port):
                for ask in (by_asyncio, by_blocking):
                    with pytest.raises(
                        ConnectError, match=f"start 127.0.0.1:{port} with --also-known-as {mapped.address}"
                    ):
                        await ask(mapped.address)
                with pytest.raises(ConnectError, match=f"{mapped.address} was dialled, and the connection came to"):
                    await by_question(mapped.address, file)
            async with members(1, port=port, also_known_as=(mapped.address,)) as (member,):
                assert await by_asyncio(mapped.address) == await by_blocking(mapped.address) == 0
                assert await by_question(mapped.address, file) == 1
                assert member.refused_strangers.total == 0

    asyncio.run(run())


# --- behind an honest greeting --------------------------------------------------------------------------------------


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
            self._writer.write(self._records.seal(encode_frame(message)))

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
    return Sealer(b"a key of a stranger").seal(encode_frame(message))


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
                self._held = record if number == 1 else self._held
                return [] if number == 1 else [record, self._held]
            case "injected":
                return [forged(clear()), record]
            case "unprotected":
                return [encode_frame(clear())]
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
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
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
                assert member.broken_frames == 0
                speaker.say(put(2), put(3))
                heard = []
                while replies := await speaker.hear():
                    heard += [reply.id for reply in replies]
                assert relay.connections[-1].is_welcomed
                await until(lambda: member.broken_frames == 1, "it is counted")
                stored = await size_of(member) - len(ENTRIES)
                if how == "repeated behind it":
                    assert heard in ([], [2])
                    assert len(heard) <= stored <= 1
                else:
                    assert (heard, stored) == ([], 0)
                assert f"{member.address}: closing the connection of client/speaker: " in told(caplog)
                assert "somebody on the way" in told(caplog)

    asyncio.run(run())


def test_who_may_pass_connections_on_says_nothing_in_the_place_of_others() -> None:
    """The greeting goes through as the operator has allowed. To keep the connection gains nothing."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            known = f"127.0.0.1:{free.getsockname()[1]}"
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
            assert (stolen.heard, member.broken_frames) == (b"", 1)
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
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        known = f"127.0.0.1:{port}"
        async with members(1, also_known_as=(known,)) as (member,):
            await member.map("m").put_all(ENTRIES)
            async with Relay(member.address, at=known, tamper=change_sizes) as relay:
                assert await ask(relay.address) == len(ENTRIES)
            assert changed
            assert f"closing the connection to {member.id}: record {changed[0]} of this connection" in told(caplog)

    asyncio.run(run())


# --- processes ------------------------------------------------------------------------------------------------------


def test_members_go_on_beside_a_stranger_at_the_address_of_one_that_was_killed(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, settings = tmp_path / "secret", tmp_path / "member.toml"
    file.write_text(SECRET)
    file.chmod(0o600)
    settings.write_text("merge_interval_ms = 200\nheartbeat_interval_ms = 200\npartition_count = 31\n")
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(file))
    _, other, victim = cluster.start(3, options=("--config", str(settings)))
    address = victim.address
    with cluster.client() as grid:
        grid.map("m").put_all(ENTRIES)
        cluster.wait_redundant()
        cluster.kill(victim)

    async def run() -> None:
        async with Relay(other.address, at=address) as relay:
            for receiver in (address, ""):
                stolen = await relay.one_over(receiver)
                stolen.send(clear())
            await asyncio.to_thread(cluster.wait_views)
            await asyncio.to_thread(cluster.wait_redundant)
            with await asyncio.to_thread(
                phalanx.Client, f"{address},{cluster.addresses}", cluster=cluster.name
            ) as grid:
                assert await asyncio.to_thread(dict, grid.map("m").items()) == ENTRIES
            assert not any(each.is_welcomed for each in relay.connections)

    asyncio.run(run())
    assert f"{address} was dialled, and the connection came to {other.address}" in other.log.read_text()
