"""Members and clients over real sockets, with and without the cluster's secret."""

import asyncio
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.client.ask import Inquirer
from phalanx.common.errors import ConnectError, JoinFailed
from phalanx.net import greeting
from phalanx.net.secret import SECRET_FILE_VARIABLE
from phalanx.runtime.connections import inbound
from phalanx.runtime.member import Member
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import PROTOCOL_VERSION, GetMembers, Hello

SECRET = "a secret of this cluster"


@pytest.fixture(autouse=True)
def _nothing_else_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other"
    path.write_text("the secret of another one\n")
    path.chmod(0o600)
    return path


async def start(**settings: Any) -> Member:
    return await phalanx.start_member(phalanx.Config(port=0, join_attempts=1, **settings))


def test_members_and_clients_with_the_secret_are_a_cluster(file: Path) -> None:
    async def run() -> None:
        one = await start(secret_file=str(file))
        two = await start(secret=SECRET, seeds=(one.address,))
        try:
            async with phalanx.connect(one.address, secret_file=file) as grid:
                await grid.map("m").put("k", 1)
            assert await asyncio.to_thread(read, two.address, file) == 1
            assert await asyncio.to_thread(members_by, two.address, file) == 2
            assert one.refused_strangers.total == two.refused_strangers.total == 0
        finally:
            await two.stop(drain=False)
            await one.stop(drain=False)

    asyncio.run(run())


def test_values_of_many_records_come_as_they_went(file: Path) -> None:
    values = {size: bytes(range(256)) * (size // 256) for size in (0, 1024, 262_144, 1_000_192, 3 * 1024 * 1024)}

    def exchange(address: str) -> dict[int, bytes]:
        with phalanx.Client(address, secret_file=file) as grid:
            for size, value in values.items():
                grid.map("m")[size] = value
            assert [len(grid.map("m")[size]) for size in values] == list(values)
            return dict(grid.map("m").items())

    async def run() -> None:
        one = await start(secret_file=str(file))
        two = await start(secret_file=str(file), seeds=(one.address,))
        try:
            assert await asyncio.to_thread(exchange, one.address) == values
            async with phalanx.connect(two.address, secret_file=file) as grid:
                assert await grid.map("m").get_all(list(values)) == values
            assert one.overload.broken_frames.total == two.overload.broken_frames.total == 0
        finally:
            await two.stop(drain=False)
            await one.stop(drain=False)

    asyncio.run(run())


def read(address: str, file: Path | None) -> Any:
    with phalanx.Client(address, secret_file=file, connect_timeout_s=2.0) as grid:
        return grid.map("m")["k"]


def members_by(address: str, file: Path | None) -> int:
    with Inquirer(address, secret_file=file) as inquirer:  # type: ignore[arg-type]
        return len(inquirer.members().view.members)


def test_others_are_refused_counted_and_said_once(file: Path, other: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> str:
        one = await start(secret_file=str(file))
        try:
            for settings, reason in (
                ({}, greeting.ONLY_ACCEPTING_HAS_ONE),
                ({"secret_file": str(other)}, greeting.ANOTHER_SECRET),
            ):
                with pytest.raises(JoinFailed) as failed:
                    await start(seeds=(one.address,), **settings)
                assert reason in str(failed.value)
            for given, reason in ((None, greeting.ONLY_ACCEPTING_HAS_ONE), (other, greeting.ANOTHER_SECRET)):
                for ask in (read, members_by):
                    with pytest.raises(ConnectError) as refused:
                        await asyncio.to_thread(ask, one.address, given)
                    assert reason in str(refused.value)
                with pytest.raises(ConnectError) as refused:
                    async with phalanx.connect(one.address, secret_file=given, connect_timeout_s=2.0):
                        pass
                assert reason in str(refused.value)
            assert one.refused_strangers.total >= 8
            assert one.view is not None
            assert len(one.view.members) == 1
        finally:
            await one.stop(drain=False)
        return str(one.address)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        address = asyncio.run(run())
    refusals = [record.getMessage() for record in caplog.records if "refused 1 connections" in record.getMessage()]
    # A member of another test may still look for one that had the port of those who asked.
    lines = [line for line in refusals if address in line]
    assert len(lines) == 2
    assert "refused 1 connections from 127.0.0.1, the last because the cluster has a secret" in lines[0]
    # The one that had another secret tells it, too: who refused it need not be of the cluster.
    assert "refused 1 connections to 127.0.0.1:" in lines[1]
    assert greeting.ANOTHER_SECRET in lines[1]


def test_a_member_without_a_secret_refuses_who_has_one(file: Path) -> None:
    async def run() -> None:
        one = await start()
        try:
            with pytest.raises(ConnectError) as refused:
                await asyncio.to_thread(read, one.address, file)
            assert greeting.ONLY_CONNECTING_HAS_ONE in str(refused.value)
        finally:
            await one.stop(drain=False)

    asyncio.run(run())


def talk(address: str, *frames: bytes) -> bytes:
    """Send all of it, and read until the member closes."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10.0) as connection:
        for frame in frames:
            connection.sendall(frame)
        heard = b""
        while data := connection.recv(65536):
            heard += data
        return heard


def test_nothing_is_read_before_the_proof(file: Path) -> None:
    """Neither a request behind the greeting, nor one in place of the proof, nor a frame longer than a greeting's."""

    async def run() -> None:
        one = await start(secret_file=str(file))
        hello = encode_frame(Hello(PROTOCOL_VERSION, "phalanx", "client/1", one.address, b"n" * 32))
        try:
            for frames in (
                (hello + encode_frame(GetMembers(1)),),
                (encode_frame(GetMembers(1)),),
                ((greeting.MAX_GREETING_BYTES + 1).to_bytes(4, "big"),),
            ):
                broken = one.overload.broken_frames.total
                assert b"members" not in await asyncio.to_thread(talk, one.address, *frames)
                assert one.overload.broken_frames.total == broken + 1
        finally:
            await one.stop(drain=False)

    asyncio.run(run())


def test_a_connection_without_a_greeting_is_not_kept(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbound, "GREETING_TIMEOUT_S", 0.05)

    async def run() -> None:
        one = await start(secret_file=str(file))
        hello = encode_frame(Hello(PROTOCOL_VERSION, "phalanx", "client/1", one.address, b"n" * 32))
        try:
            for frames, is_challenged in (((), False), ((hello,), True)):
                before = one.refused_strangers.total
                heard = await asyncio.to_thread(talk, one.address, *frames)
                assert bool(heard) is is_challenged
                assert one.refused_strangers.total == before + 1
        finally:
            await one.stop(drain=False)

    asyncio.run(run())
