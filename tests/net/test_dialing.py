"""Names are looked up apart from the event loop, whatever resolvers do, and their addresses are tried in order."""

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from phalanx.net.dialing import Dialer, look_up
from support.processes import wait_for

NAME = "member.test"
both_loops = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])


def answer_with(monkeypatch: pytest.MonkeyPatch, resolve: Callable[[], list[str]]) -> None:
    """Let the resolver give these hosts for the name, or raise."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, **named: Any) -> Any:
        if host != NAME or named.get("flags"):
            return real(host, port, **named)
        return [found for each in resolve() for found in real(each, port, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@both_loops
def test_the_addresses_of_a_name_are_tried_until_one_answers(
    monkeypatch: pytest.MonkeyPatch, loop_factory: Any
) -> None:
    answer_with(monkeypatch, lambda: ["127.0.0.7", "127.0.0.7", "127.0.0.8", "127.0.0.1"])

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert [place[0] for *_, place in await look_up(loop, NAME, 1)] == ["127.0.0.7", "127.0.0.8", "127.0.0.1"]
        with socket.create_server(("127.0.0.1", 0)) as server:
            place = server.getsockname()
            for host in (NAME, "127.0.0.1"):
                transport = await Dialer(loop).dial(asyncio.Protocol, host, place[1])
                assert transport.get_extra_info("peername") == place
                transport.abort()
        with pytest.raises(ConnectionRefusedError):
            await Dialer(loop).dial(asyncio.Protocol, NAME, place[1])

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


@pytest.mark.parametrize("error", [socket.gaierror(socket.EAI_NONAME, "unknown"), UnicodeError("label too long")])
def test_what_the_resolver_raises_ends_the_dialing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def resolve() -> list[str]:
        raise error

    answer_with(monkeypatch, resolve)

    async def run() -> None:
        with pytest.raises(type(error)):
            await Dialer(asyncio.get_running_loop()).dial(asyncio.Protocol, NAME, 1)

    asyncio.run(run())


def test_a_resolver_that_hangs_is_asked_by_one_thread_and_holds_up_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, asked = threading.Event(), list[int]()

    def resolve() -> list[str]:
        asked.append(1)
        goes_on.wait(60)
        return ["127.0.0.1"]

    answer_with(monkeypatch, resolve)

    async def run() -> None:
        dialer = Dialer(asyncio.get_running_loop())
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dialer.dial(asyncio.Protocol, NAME, 1), 0.01)

    asyncio.run(run())
    assert not goes_on.is_set(), "the loop has ended before the resolver answers"
    goes_on.set()
    wait_for(lambda: not any(each.name == f"look-up {NAME}" for each in threading.enumerate()), "its thread has ended")
    assert len(asked) == 1
