"""Connect to several addresses at once, and use those that answer first: dead addresses cost no time.

Threads make the connections, so that a slow name lookup, or an address that never answers, delays neither the other
addresses nor Ctrl-C.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol, TypeVar

from phalanx.common.errors import ConnectError, PhalanxError, UnavailableError
from phalanx.common.ids import Address, MemberId
from phalanx.net.begun_threads import begin_thread

HEAD_START_S = 0.2
"""The delay before the next address is tried, too: if several addresses are alive, the first of them is used."""
SPARE_S = 1.0
"""How much longer than its timeout a connection's thread can take: a name lookup has no timeout of its own."""


class Connector(Protocol):
    """A connection to the member at one address."""

    address: Address

    def member(self) -> MemberId:
        """Connect, and return the member that answers. Raises `UnavailableError`."""

    def close(self) -> None:
        """Close the connection, if there is one."""


C = TypeVar("C", bound=Connector)
T = TypeVar("T")


def connect_in_parallel(connectors: Sequence[C], timeout_s: float) -> Generator[C | UnavailableError, None, None]:
    """Yield each connector as soon as it is connected, or the error why it is not. Closing the iterator closes them all.

    All connect in parallel; the next one begins `HEAD_START_S` later, or as soon as one has answered. `timeout_s`: how long each
    can take to connect.
    """
    results: queue.SimpleQueue[tuple[int, Exception | None]] = queue.SimpleQueue()
    is_over = threading.Event()
    given_up_at: dict[int, float] = {}
    """Index of each connector that was begun and has not answered, to the time when it is given up."""
    begun = 0
    try:
        while begun < len(connectors) or given_up_at:
            if begun < len(connectors):
                given_up_at[begun] = time.monotonic() + timeout_s + SPARE_S
                _begin(begun, connectors[begun], results, is_over)
                begun += 1
            wait_s = HEAD_START_S if begun < len(connectors) else max(min(given_up_at.values()) - time.monotonic(), 0)
            try:
                place, problem = results.get(timeout=wait_s)
            except queue.Empty:
                yield from _late(connectors, given_up_at, timeout_s)
                continue
            if given_up_at.pop(place, None) is None:
                continue
            if problem is not None and not isinstance(problem, UnavailableError):
                raise problem
            yield problem or connectors[place]
    finally:
        is_over.set()
        for place in set(range(begun)) - given_up_at.keys():
            connectors[place].close()


def _begin(
    place: int, connector: C, results: queue.SimpleQueue[tuple[int, Exception | None]], is_over: threading.Event
) -> None:
    def connect() -> None:
        try:
            connector.member()
        except Exception as error:  # any error is raised in the caller's thread
            results.put((place, error))
            return
        results.put((place, None))
        if is_over.is_set():  # nobody uses it any more
            connector.close()

    try:
        begin_thread(connect, f"connect to {connector.address}")
    except UnavailableError as error:
        results.put((place, ConnectError(str(error))))


def _late(connectors: Sequence[C], given_up_at: dict[int, float], timeout_s: float) -> Iterator[UnavailableError]:
    """Yield an error for each connector whose time is over, and forget it."""
    for place in [place for place, at in given_up_at.items() if time.monotonic() >= at]:
        del given_up_at[place]
        yield ConnectError(
            f"{connectors[place].address} did not answer within {timeout_s:g} s: looking up its name may hang"
        )


def ask_in_parallel(
    connectors: Sequence[C], ask: Callable[[C], T], within_s: float
) -> Generator[tuple[C, T], None, None]:
    """Ask all at once, and yield each answer as it comes. Connectors that fail, or do not answer in time, are left out.

    Each connection, also a late one, is closed by the thread that made it.
    """
    answers: queue.SimpleQueue[tuple[C, T] | None] = queue.SimpleQueue()

    def answer(connector: C) -> None:
        found = None
        with contextlib.suppress(PhalanxError):
            found = connector, ask(connector)
        connector.close()
        answers.put(found)

    for each in connectors:
        try:
            begin_thread(functools.partial(answer, each), f"ask {each.address}")
        except UnavailableError:
            answers.put(None)
    deadline = time.monotonic() + within_s
    for _ in connectors:
        try:
            found = answers.get(timeout=max(deadline - time.monotonic(), 0))
        except queue.Empty:
            return
        if found is not None:
            yield found
