"""Look names up and open connections, also in a process whose children are forked.

Event loops are given addresses only, never names. uvloop would look a name up in threads of libuv: 1. the process forks; 2. the child,
which has no such thread, comes to its end; 3. libuv waits there for its threads, and the child ends by a segmentation fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from phalanx.net.begun_threads import begin_thread

Place = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""An address as `socket.getaddrinfo` returns it: family, type, protocol, canonical name, address of that family."""


def look_up(loop: asyncio.AbstractEventLoop, host: str, port: int) -> asyncio.Future[list[Place]]:
    """Return the places of a host, each once; of an address at once. The future raises `OSError` for an unknown name.

    A name is looked up in a thread that ends with the process: a resolver that hangs holds up neither the loop nor its end. Raises
    `UnavailableError` if the system refuses that thread.
    """
    found: asyncio.Future[list[Place]] = loop.create_future()

    def settle(places: list[Place], error: Exception | None) -> None:
        if found.done():
            return  # nobody waits any more
        if error is None:
            found.set_result(list(dict.fromkeys(places)))
        else:
            found.set_exception(error)

    def work() -> None:
        places: list[Place] = []
        problem = None
        try:
            places += socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except Exception as error:  # whatever a resolver raises
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, places, problem)

    try:
        settle([*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)], None)
    except (OSError, UnicodeError):  # a name
        begin_thread(work, f"look-up {host}")
    return found


class Dialer:
    """Opens the connections of one event loop. A name is looked up by one thread at a time, however many wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: dict[tuple[str, int], asyncio.Future[list[Place]]] = {}

    async def dial(self, protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Transport:
        """Connect to the first place of the host where somebody listens. Raises the `OSError` of the last one."""
        problem = OSError(f"{host} has no address")
        for *_, (address, _, *scope) in await self._look_up(host, port):
            # Only link-local addresses have a zone; uvloop looks these up all the same.
            zone = f"%{scope[1]}" if any(scope[1:]) else ""
            try:
                transport, _ = await self._loop.create_connection(protocol, f"{address}{zone}", port)
                return transport
            except OSError as error:
                problem = error
        raise problem

    async def _look_up(self, host: str, port: int) -> list[Place]:
        under_way = self._under_way.get((host, port))
        if under_way is None:
            under_way = self._under_way[host, port] = look_up(self._loop, host, port)
            under_way.add_done_callback(lambda ended: self._on_looked_up(host, port, ended))
        return await asyncio.shield(under_way)

    def _on_looked_up(self, host: str, port: int, ended: asyncio.Future[list[Place]]) -> None:
        del self._under_way[host, port]
        if not ended.cancelled():
            ended.exception()  # if nobody waits any more, the loop would log it
