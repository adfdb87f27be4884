"""What one member of a test opens its connections with: those to members beyond a cut break, and open no more."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable

from phalanx.common.ids import Address, host_and_port
from phalanx.net.dialing import Dialer


class Dialling:
    """Used in the member's event loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._dialer = Dialer(loop)
        self._blocked: frozenset[tuple[str, int]] = frozenset()
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, when other addresses are blocked."""
        self._open: weakref.WeakKeyDictionary[asyncio.Transport, tuple[str, int]] = weakref.WeakKeyDictionary()
        """The connections that this member has opened, and where to."""

    async def dial(self, protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        """Open a connection as `Dialer.dial`; to a blocked address, wait. The caller ends a wait that takes long."""
        place = host, port
        while place in self._blocked:
            await self._changed.wait()
        transport = await self._dialer.dial(protocol, host, port)
        self._open[transport] = place
        if place in self._blocked:
            transport.abort()  # it was cut off while this waited for the connection

    def cut_from(self, addresses: set[Address]) -> None:
        """Block these addresses, and no others from now on. Connections to them break, with what was not sent."""
        self._blocked = frozenset(host_and_port(address) for address in addresses)
        self._changed.set()
        self._changed = asyncio.Event()
        for transport, place in list(self._open.items()):
            if place in self._blocked:
                transport.abort()
