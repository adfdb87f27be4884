"""What a client's time limits are counted from: one limit for a whole call, and none that is longer for connecting."""

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import phalanx
from phalanx.client.blocking import connection
from phalanx.common.errors import ConnectError, PhalanxError
from phalanx.common.ids import Address, host_and_port
from phalanx.maps.time_limit import TimeLimit
from phalanx.net import link
from support.processes import Cluster
from support.raw_peers import swallowing

LIMIT_S = 3.0
GREETING_S = 2.8
"""Nearly a whole call; the same again for another try would be too late."""
LATE_S = 2.0
"""How much later than its limit a call may end on a busy machine."""


@contextmanager
def silent(address: str) -> Iterator[str]:
    """One that listens at the address (port 0: any), and neither accepts nor answers."""
    host, port = host_and_port(Address(address))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(64)
        yield f"{host}:{listener.getsockname()[1]}"


def timed(work: Callable[[], Any]) -> tuple[Exception | None, float]:
    """What the work raised, and how long it took."""
    began = time.monotonic()
    try:
        work()
    except PhalanxError as error:
        return error, time.monotonic() - began
    return None, time.monotonic() - began


def side_by_side(*several: Callable[[], Any]) -> list[tuple[Exception | None, float]]:
    """`timed` for each, in threads."""
    found: list[tuple[Exception | None, float]] = [(None, -1.0)] * len(several)

    def run(index: int, work: Callable[[], Any]) -> None:
        found[index] = timed(work)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(several)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


# --- connecting -----------------------------------------------------------------------------------------------------


async def put_by(address: str, **limits: float) -> None:
    async with phalanx.connect(address, **limits) as grid:  # type: ignore[arg-type]
        await grid.map("m").put("a", 1)


def put_blocking(address: str, **limits: float) -> None:
    with phalanx.Client(address, **limits) as grid:  # type: ignore[arg-type]
        grid.map("m")["a"] = 1


@pytest.mark.parametrize("place", [lambda: silent("127.0.0.1:0"), swallowing], ids=["silent", "swallowing"])
def test_connecting_takes_no_longer_than_a_call_unless_it_is_said_how_long(place: Any) -> None:
    with place() as address:
        short, shorter = {"call_timeout_s": 1.0}, {"call_timeout_s": 30.0, "connect_timeout_s": 1.0}
        for error, took_s in side_by_side(
            lambda: put_blocking(address, **short),
            lambda: put_blocking(address, **shorter),
            lambda: asyncio.run(put_by(address, **short)),
            lambda: asyncio.run(put_by(address, **shorter)),
        ):
            assert isinstance(error, ConnectError)
            assert "no member was ready within 1 s" in str(error)
            assert took_s < 1.0 + LATE_S


@pytest.mark.parametrize("limit", [0, -1.0, float("nan")])
def test_a_time_limit_for_connecting_is_above_zero(limit: float) -> None:
    with pytest.raises(phalanx.UsageError, match="connect_timeout_s"):
        phalanx.Client("127.0.0.1:1", connect_timeout_s=limit)
    with pytest.raises(phalanx.UsageError, match="connect_timeout_s"):
        phalanx.connect("127.0.0.1:1", connect_timeout_s=limit)


# --- one limit for all rounds of a call -----------------------------------------------------------------------------


def test_a_call_that_is_asked_again_has_one_time_limit(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns all hangs: shortly before the limit it counts as lost, and what it was asked is grouped anew."""
    for module in (connection, link):
        monkeypatch.setattr(module, "GREETING_TIMEOUT_S", GREETING_S)
    (member,) = cluster.start(1)
    entries = {number: number for number in range(500)}
    with cluster.client(call_timeout_s=LIMIT_S) as grid:
        grid.map("m").put_all(entries)

        async def calls() -> list[tuple[str, Exception | None, float]]:
            async with phalanx.connect(member.address, cluster=cluster.name, call_timeout_s=LIMIT_S) as other:
                theirs = other.map("m")
                await theirs.put_all(entries)
                cluster.kill(member)
                with silent(member.address):
                    return await asyncio.gather(
                        timed_async("put_all", theirs.put_all(entries)),
                        timed_async("get_all", theirs.get_all(list(entries))),
                        timed_async("size", theirs.size()),
                        timed_async("clear", theirs.clear()),
                        timed_async("keys", read_all(theirs)),
                        asyncio.to_thread(lambda: ("put_all", *timed(lambda: grid.map("m").put_all(entries)))),
                        asyncio.to_thread(lambda: ("get_all", *timed(lambda: grid.map("m").get_all(list(entries))))),
                        asyncio.to_thread(lambda: ("len", *timed(lambda: len(grid.map("m"))))),
                        asyncio.to_thread(lambda: ("clear", *timed(lambda: grid.map("m").clear()))),
                        asyncio.to_thread(lambda: ("items", *timed(lambda: list(grid.map("m").items())))),
                        asyncio.to_thread(lambda: ("journal", *timed(lambda: grid.journal("m").bounds()))),
                    )

        for what, error, took_s in asyncio.run(calls()):
            assert isinstance(error, PhalanxError), what
            assert LIMIT_S - 0.1 < took_s < LIMIT_S + LATE_S, f"{what}: {took_s:.2f} s, {error}"


async def timed_async(what: str, call: Any) -> tuple[str, Exception | None, float]:
    began = time.monotonic()
    try:
        await call
    except PhalanxError as error:
        return what, error, time.monotonic() - began
    return what, None, time.monotonic() - began


async def read_all(theirs: Any) -> None:
    async for _ in theirs.keys():
        raise AssertionError("nobody can have answered")


def test_what_was_answered_gives_the_rest_its_own_time() -> None:
    clock = itertools.count(100.0, 0.25).__next__
    limit = TimeLimit(1.0, clock)
    assert limit.within_ms == 750
    limit.renew()
    assert limit.left_s == 0.75
    assert not limit.is_over
    assert limit.within_ms == 250
    assert limit.is_over
    assert limit.within_ms == 1, "0 would mean: as long as any call"


def test_a_call_that_has_all_its_time_says_nothing_of_it() -> None:
    """Only what is asked later than the call began needs a time limit of its own."""
    assert TimeLimit(1.0, lambda: 5.0).within_ms == 0
