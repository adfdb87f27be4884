"""What is no message is counted, and said once a minute for each host: who scans ports fills no log."""

import asyncio
import logging
import socket

import pytest

import phalanx
from phalanx.common.ids import Address, host_and_port
from phalanx.runtime.connections.overload import Overload
from support.secret_members import until

GARBAGE = b"GET / HTTP/1.1\r\nHost: phalanx\r\n\r\n"


def send(address: str, source: str) -> None:
    """Connect from a host of this machine, send garbage, and read until the connection is closed."""
    with socket.create_connection(host_and_port(address), 20.0, source_address=(source, 0)) as peer:  # type: ignore[arg-type]
        peer.sendall(GARBAGE)
        while peer.recv(4096):
            pass


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    return [line for line in said if "closing the connection" in line]


def test_garbage_of_one_host_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        member = await phalanx.start_member(phalanx.Config(port=0, cluster="test"))
        try:
            for source in ["127.0.0.1"] * 30 + ["127.0.0.2"]:
                await asyncio.to_thread(send, member.address, source)
            await until(lambda: member.overload.broken_frames.total == 31, "all are counted")
        finally:
            await member.stop(drain=False)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())
    assert len(lines(caplog)) == 2


def test_a_seed_that_answers_with_garbage_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u2\r\n")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            config = phalanx.Config(
                port=0, cluster="test", seeds=(Address(f"{host}:{port}"),), join_attempts=3, join_timeout_ms=500
            )
            with pytest.raises(phalanx.JoinFailed, match="is not a member or client of Phalanx"):
                await phalanx.start_member(config)

    with caplog.at_level(logging.WARNING, "phalanx.member"):
        asyncio.run(run())
    assert len(lines(caplog)) == 1


def test_the_next_line_says_how_many_there_were(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    overload = Overload(lambda: "10.0.0.1:5701", lambda: now_s)
    with caplog.at_level(logging.WARNING, "phalanx.member"):
        for _ in range(7):
            overload.broke_protocol("of an unknown peer", "10.0.0.9", "no message")
        now_s += 60.0
        overload.broke_protocol("of an unknown peer", "10.0.0.9", "too long")
    assert lines(caplog) == [
        "10.0.0.1:5701: closing the connection of an unknown peer: no message",
        "10.0.0.1:5701: closing the connection of an unknown peer (the last of 7 with 10.0.0.9): too long",
    ]
    assert overload.broken_frames.total == 8
