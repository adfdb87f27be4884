"""Have the kernel find out that a peer's host is gone: it asks over an idle connection, and breaks it when nobody answers.

It breaks one whose bytes nobody acknowledges, too, after the same time.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

PROBES: Final = 3
"""How often the kernel asks, each time after a third of the idle time."""
_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
"""The option for the idle time; macOS has another name for it. None: this system has only its own time for all connections."""


class SocketOptions(Protocol):
    """A socket, or what an event loop gives in its place."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option."""


def keep_alive(sock: SocketOptions, idle_ms: int) -> None:
    """Have a TCP connection end that has been idle for `idle_ms` and whose peer then does not answer for as long; 0: it stays."""
    if not idle_ms:
        return
    idle_s = max(idle_ms // 1000, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if _IDLE is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _IDLE, idle_s)
    if hasattr(socket, "TCP_KEEPINTVL"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(idle_s // PROBES, 1))
    if hasattr(socket, "TCP_KEEPCNT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Over a connection whose last bytes were not acknowledged nothing is asked: they are sent again, for a quarter of an hour.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2 * max(idle_ms, 1000))
