"""Connections to the HTTP port that say nothing have few places, also before TLS has begun, and the grid's port keeps its own."""

import asyncio
import json
import os
import resource
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.http import acceptor
from phalanx.runtime import member_thread
from phalanx.runtime.connections import connection_limits
from phalanx.runtime.connections.connection_limits import Places, http_places
from phalanx.runtime.process.processes import start_member_process
from support.http_asking import ask, connect, listening
from support.processes import wait_for

Certificate = tuple[Path, Path]


@contextmanager
def silent(port: int, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(port)) for _ in range(count)]


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def settings_of(certificate: Certificate) -> dict[str, Any]:
    return {"http_certificate_file": str(certificate[0]), "http_key_file": str(certificate[1])}


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_those_that_do_not_begin_tls_have_half_of_the_places(
    monkeypatch: pytest.MonkeyPatch, certificate: Certificate, loop: str
) -> None:
    monkeypatch.setattr(connection_limits, "MAX_HTTP_PLACES", 8)
    monkeypatch.setattr(acceptor, "HANDSHAKE_WITHIN_S", 3_600)
    if loop == "asyncio":
        monkeypatch.setattr(member_thread, "new_event_loop", asyncio.new_event_loop)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with listening(**settings_of(certificate)) as member, silent(member.http_port, 40) as connections:
        wait_for(lambda: sum(map(is_open, connections)) <= 4, "the oldest to be closed")
        for _ in range(3):
            assert ask(member.http_port, "/livez", host="localhost", tls=trusting).status == 200
        member.map("flights")["UA1"] = "EWR"


def test_a_handshake_has_a_time_limit(monkeypatch: pytest.MonkeyPatch, certificate: Certificate) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_WITHIN_S", 0.2)
    with listening(**settings_of(certificate)) as member, silent(member.http_port, 3) as connections:
        connections[0].sendall(b"\x16\x03\x01\x02\x00\x01")
        connections[1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        wait_for(lambda: not any(map(is_open, connections)), "all to be closed")


def test_those_in_a_handshake_end_with_the_member(certificate: Certificate) -> None:
    with listening(**settings_of(certificate)) as member, silent(member.http_port, 3) as connections:
        wait_for(lambda: len(member._member._http._acceptor._beginning) == 3, "them to be accepted")  # type: ignore[union-attr]
        member.stop()
        wait_for(lambda: not any(map(is_open, connections)), "all to be closed")


def test_where_no_descriptor_is_left_the_port_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "PAUSE_S", 0.1)
    fails = iter([OSError(24, "too many"), ConnectionAbortedError()])

    class Listening:
        def __init__(self, real: socket.socket) -> None:
            self._real = real

        def accept(self) -> Any:
            for each in fails:
                raise each
            return self._real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    begin = acceptor.HttpAcceptor.begin

    def begin_with(self: acceptor.HttpAcceptor[Any]) -> None:
        self._listening = Listening(self._listening)  # type: ignore[assignment]
        begin(self)

    monkeypatch.setattr(acceptor.HttpAcceptor, "begin", begin_with)
    with listening() as member:
        assert ask(member.http_port, "/livez").status == 200
        assert not list(fails)


def test_descriptors_of_the_port_are_not_given_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [http_places(limit) for limit in (20, 64, 300, 1024, 1 << 20)] == [4, 8, 37, 64, 64]
    monkeypatch.setattr(connection_limits, "descriptor_limit", lambda: 300)
    monkeypatch.setattr(connection_limits, "descriptors_in_use", lambda: 20)
    assert sum(Places(0, has_http_port=True).plan) == 300 - 20 - 37
    assert sum(Places(0).plan) == 300 - 20


def test_a_member_with_few_descriptors_serves_its_clients_beside_silent_ones(
    tmp_path: Path, certificate: Certificate
) -> None:
    files = [each for name, path in settings_of(certificate).items() for each in ("--set", f"{name}={path}")]
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "from phalanx.__main__ import main; sys.argv[0] = 'phalanx'; main()"
    )
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 700:
        pytest.skip(f"this needs 700 open files, and {soft} are allowed: ulimit -n 1024")
    options = ["--http-port", "0", *files]
    with start_member_process(tmp_path / "log", options=options, program=(sys.executable, "-c", program)) as process:
        address, port = process.wait_ready().address, json.loads(process.ready_line)["http_port"]
        with silent(port, 400) as connections:
            wait_for(lambda: sum(map(is_open, connections)) <= 37, "all to be accepted, and the oldest to be closed")
            with ExitStack() as stack:
                for number in range(60):
                    client = stack.enter_context(phalanx.Client([address]))
                    client.map("flights")[f"UA{number}"] = "EWR"
            assert len(os.listdir(f"/proc/{process.pid}/fd")) < 300 - 37
