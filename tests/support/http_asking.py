"""Ask a member's HTTP port as a program would, and the raw way."""

import http.client
import json
import socket
import ssl
import time
from typing import Any, NamedTuple

import phalanx
from phalanx.runtime.member_thread import MemberThread


class Answer(NamedTuple):
    status: int
    text: str
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(
    port: int,
    path: str,
    *,
    host: str = "127.0.0.1",
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    method: str = "GET",
) -> Answer:
    made = (
        http.client.HTTPSConnection(host, port, timeout=20, context=tls)
        if tls is not None
        else http.client.HTTPConnection(host, port, timeout=20)
    )
    try:
        made.request(method, path, headers=headers or {})
        reply = made.getresponse()
        return Answer(reply.status, reply.read().decode(), {name.lower(): value for name, value in reply.getheaders()})
    finally:
        made.close()


def listening(**settings: Any) -> MemberThread:
    """A member with an HTTP port, alone unless it has seeds."""
    return phalanx.start_member_in_thread(phalanx.Config(**({"port": 0, "http_port": 0} | settings)))


def connect(port: int) -> socket.socket:
    """A connection on which nothing is said yet."""
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def said_on(connection: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def sample(text: str, name: str, **labels: str) -> float:
    """The value of one sample of a text for Prometheus."""
    shown = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    start = f"{name}{{{shown}}} " if shown else f"{name} "
    [line] = [line for line in text.splitlines() if line.startswith(start)]
    return float(line.removeprefix(start))


def until(port: int, path: str, status: int, within_s: float = 20.0) -> str:
    """What the probe says once it answers with this status."""
    deadline = time.monotonic() + within_s
    while True:
        answer = ask(port, path)
        if answer.status == status or time.monotonic() > deadline:
            assert answer.status == status, answer.text
            return answer.text
        time.sleep(0.01)
