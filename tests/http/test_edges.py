"""What comes to the HTTP port harms one connection at most: the member goes on, and others are answered."""

import asyncio
import contextlib
import json
import random
import socket
import sys
import time
from typing import Any
from unittest import mock

import pytest

import phalanx
from phalanx.http import access, server
from phalanx.http.metrics import Metrics
from phalanx.http.probes import Probes
from phalanx.http.server import FencedProtocol
from phalanx.runtime.connections import connection_limits
from phalanx.runtime.member_thread import MemberThread
from phalanx.runtime.process.processes import start_member_process
from support.http_asking import ask, connect, listening, said_on
from support.processes import wait_for

REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


def assert_unharmed(member: MemberThread) -> None:
    assert ask(member.http_port, "/readyz").text == "ready\n"
    flights = member.map("flights")
    flights["UA1"] = "EWR"
    assert flights["UA1"] == "EWR"


def test_what_is_no_http_is_told_so_and_breaks_nothing() -> None:
    rng = random.Random(7)
    with listening() as member:
        given = [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100, b"\r\n" * 50_000]
        given += [
            b"GET /" + b"a" * 70_000,
            REQUEST[:-2] + b"X: " + b"y" * 70_000,
            b"GET /%ff%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
        given += [
            b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
        given += [rng.randbytes(rng.randrange(1, 500)) for _ in range(40)]
        for _ in range(60):  # requests with some bytes changed
            broken = bytearray(REQUEST * 2)
            for _place in range(3):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            given.append(bytes(broken))
        for data in given:
            with connect(member.http_port) as connection:
                try:
                    connection.sendall(data)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    continue
                said = said_on(connection)
                assert not said or said.startswith(b"HTTP/1.1 "), data[:50]
        assert_unharmed(member)


HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
LONG_HEADS = {
    "blanks before a wrong byte": HEAD + b"a:" + b" " * 60_000 + b"\0\r\n\r\n",
    "tabs before a wrong byte": HEAD + b"a:" + b"\t" * 20_000 + b"\0\r\n\r\n",
    "blanks that fit": HEAD + b"a:" + b" \t" * 11_000 + b"\0\r\n\r\n",
    "many headers": HEAD + b"a:b\r\n" * 40_000 + b"\r\n",
    "a long path": b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "requests ahead": REQUEST * 5_000,
    "pieces of a body": REQUEST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 40_000,
    "a head behind pieces": REQUEST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\na:" + b" " * 60_000 + b"\0\r\n\r\n",
    "a head behind a body": REQUEST[:-2] + b"Content-Length: 1\r\n\r\n1" + HEAD + b"a:" + b" " * 20_000 + b"\0\r\n\r\n",
}


@pytest.mark.parametrize("head", LONG_HEADS.values(), ids=LONG_HEADS.keys())
def test_a_stranger_gets_few_milliseconds_for_the_head_of_a_request(head: bytes) -> None:
    """Nobody has shown a token by then. The blanks took seconds of the member's time, all in one turn."""
    with listening() as member:
        before = time.process_time()
        with connect(member.http_port) as connection:
            try:
                connection.sendall(head)
                said_on(connection)
            except OSError:
                pass
        assert ask(member.http_port, "/livez").status == 200
        assert time.process_time() - before < 2
        assert_unharmed(member)


@pytest.mark.parametrize("name", ["tabs before a wrong byte", "blanks that fit", "a head behind a body"])
def test_who_sends_what_takes_long_to_read_is_told(name: str) -> None:
    with listening() as member, connect(member.http_port) as connection:
        connection.sendall(LONG_HEADS[name])
        assert b"of a request 24 KiB are read, without long blanks" in said_on(connection)


def test_a_body_that_comes_behind_the_answer_brings_no_further_request() -> None:
    """It would be read in the same turn as the end of the body, however it was made."""
    with listening() as member, connect(member.http_port) as connection:
        connection.sendall(REQUEST[:-2] + b"Content-Length: 1\r\n\r\n")
        said = connection.recv(16)
        with contextlib.suppress(OSError):
            connection.sendall(b"1" + REQUEST)
        assert (said + said_on(connection)).count(b"HTTP/1.1 200 OK") == 1
        assert_unharmed(member)


def test_blanks_count_also_when_they_come_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_WITHIN_S", 3_600)
    with listening() as member, connect(member.http_port) as connection:
        connection.sendall(HEAD + b"a:")
        for _ in range(6):
            connection.sendall(b" " * 50)
            assert_unharmed(member)
        assert b"of a request 24 KiB are read, without long blanks" in said_on(connection)


def test_who_begins_a_request_and_does_not_go_on_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_WITHIN_S", 1.0)
    with listening() as member:
        for begun in (b"", REQUEST[:20], REQUEST + REQUEST[:20]):
            with connect(member.http_port) as connection:
                connection.sendall(begun)
                assert said_on(connection).count(b"alive") == begun.count(b"\r\n\r\n")
        with connect(member.http_port) as connection:  # byte after byte is no way to stay
            began, is_dropped = time.monotonic(), False
            while not is_dropped and time.monotonic() < began + 20:
                time.sleep(0.02)
                try:
                    connection.sendall(b"X")
                except OSError:
                    is_dropped = True
            assert is_dropped
        assert_unharmed(member)


def test_connections_that_idle_make_place_for_one_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MAX_HTTP_PLACES", 8)
    with listening() as member:
        idle = [connect(member.http_port) for _ in range(40)]
        for _ in range(20):
            assert ask(member.http_port, "/livez").status == 200
        dropped = 0
        for each in idle:
            each.setblocking(False)
            try:
                dropped += each.recv(1) == b""
            except ConnectionResetError:
                dropped += 1
            except BlockingIOError:
                pass
            each.close()
        assert 32 <= dropped <= 40
        assert_unharmed(member)


def test_requests_that_take_for_ever_are_ended_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "MAX_HTTP_PLACES", 4)
    monkeypatch.setattr(access, "RESPOND_WITHIN_S", 0.5)
    begun = []

    async def hang(self: Probes, request: Any) -> Any:
        begun.append(request)
        await asyncio.sleep(3_600)

    monkeypatch.setattr(Probes, "safez", hang)
    with listening() as member:
        connections = [connect(member.http_port) for _ in range(4)]
        for each in connections:
            each.sendall(REQUEST.replace(b"livez", b"safez"))
        while len(begun) < 4:
            time.sleep(0.01)
        with connect(member.http_port) as one_more:
            assert said_on(one_more) == b"", "all places are taken by requests under way"
        for each in connections:
            assert each.recv(1000).startswith(b"HTTP/1.1 500 ")
            each.close()
        assert_unharmed(member)


def test_who_does_not_read_the_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_WITHIN_S", 0.5)  # what is written out counts as answered, read or not

    made = []

    async def much(self: Metrics) -> bytes:
        made.append(True)
        return bytes(30_000_000)

    monkeypatch.setattr(Metrics, "_make", much)
    with listening() as member, connect(member.http_port) as connection:
        connection.sendall(REQUEST.replace(b"livez", b"metrics"))
        wait_for(lambda: len(made) and not member._member._http._state.connections, "it is dropped")  # type: ignore[union-attr]
        assert len(said_on(connection)) < 30_000_000
        assert_unharmed(member)


def test_an_error_of_ours_is_one_failed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Probes, request: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Probes, "safez", fail)
    with listening() as member:
        answer = ask(member.http_port, "/safez")
        assert answer.status == 500
        assert "defect" not in answer.text, "others need not know our insides"
        assert_unharmed(member)


@pytest.mark.parametrize("callback", ["data_received", "connection_made", "connection_lost", "on_response_complete"])
def test_an_error_in_the_server_itself_does_not_reach_the_member(callback: str) -> None:
    """The loop of a member process ends the process with what comes out of a callback."""

    def fail(*arguments: Any) -> None:
        raise RuntimeError("a defect")

    async def run() -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        async with await phalanx.start_member(phalanx.Config(port=0, http_port=0)) as member:

            def talk() -> None:
                with connect(member.http_port) as connection:
                    connection.sendall(REQUEST)
                    said_on(connection)

            with mock.patch.object(FencedProtocol.__mro__[1], callback, fail):
                await asyncio.to_thread(talk)
                await asyncio.sleep(0.05)
            assert (await asyncio.to_thread(ask, member.http_port, "/readyz")).status == 200
            await member.map("flights").put("UA1", "EWR")
        assert told == []

    asyncio.run(run(), debug=False)


def test_a_text_that_cannot_be_made_fails_those_who_asked_and_no_process(tmp_path: Any) -> None:
    """Who asked has gone by then: nobody hears of the failure, and the loop would tell the member."""
    program = (
        "import asyncio, sys; from phalanx.http.metrics import Metrics\n"
        "async def fail(self):\n    await asyncio.sleep(0.2); raise RuntimeError('a defect')\n"
        "Metrics._make = fail\n"
        "from phalanx.__main__ import main; sys.argv[0] = 'phalanx'; main()"
    )
    options = ["--http-port", "0"]
    with start_member_process(tmp_path / "log", options=options, program=(sys.executable, "-c", program)) as process:
        process.wait_ready()
        port = json.loads(process.ready_line)["http_port"]
        for _ in range(3):
            with connect(port) as connection:
                connection.sendall(REQUEST.replace(b"livez", b"metrics"))
                time.sleep(0.05)
        assert ask(port, "/metrics").status == 500
        time.sleep(0.5)
        assert ask(port, "/readyz").status == 200
        with phalanx.Client([process.wait_ready().address]) as client:
            client.map("flights")["UA1"] = "EWR"
        assert process.is_running
