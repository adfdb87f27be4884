"""Clients that were closed before a greeting wait before they come back, longer and longer, and each for another time."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import phalanx
from phalanx.client.core.pauses import FIRST_S, LONGEST_S, SPREAD, Pauses
from phalanx.common.errors import ConnectError
from phalanx.common.ids import Address

ONE, OTHER = Address("one:5701"), Address("other:5701")


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    pauses = Pauses(lambda: 0.5)
    told = [pauses.next_s(ONE) for _ in range(12)]
    assert told[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert told[-1] == LONGEST_S
    assert pauses.next_s(OTHER) == FIRST_S, "each address for itself"
    pauses.greeted(ONE)
    assert pauses.next_s(ONE) == FIRST_S


def test_clients_that_were_closed_together_come_back_one_after_the_other() -> None:
    least, most = Pauses(lambda: 0.0).next_s(ONE), Pauses(lambda: 1.0).next_s(ONE)
    assert (least, most) == (FIRST_S * (1 - SPREAD), FIRST_S * (1 + SPREAD))


class Closing:
    """Accepts connections, and closes each at once."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.times: list[float] = []
        """When connections came."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.times.append(time.monotonic())
            connection.close()


@contextmanager
def closing() -> Iterator[Closing]:
    made = Closing()
    try:
        yield made
    finally:
        made.server.shutdown(socket.SHUT_RDWR)
        made.server.close()


def check(times: list[float]) -> None:
    """Of connections that are closed at once few are made in two seconds; without pauses they were some fifty."""
    assert 2 <= len(times) <= 9


def test_a_blocking_client_comes_back_later_and_later() -> None:
    with closing() as member:
        with pytest.raises(ConnectError):
            phalanx.Client(member.address, connect_timeout_s=2)
        check(member.times)


def test_an_asyncio_client_comes_back_later_and_later() -> None:
    async def run(address: str) -> None:
        with pytest.raises(ConnectError):
            await phalanx.connect(address, connect_timeout_s=2)

    with closing() as member:
        asyncio.run(run(member.address))
        check(member.times)
