"""How long a client waits before it connects again to an address that closed its connection before a greeting.

A member to which very many connect at once closes the oldest connections that have not greeted. Clients that came back at once would
throw each other out again, so each waits for longer and longer, and each for another time.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.common.ids import Address

FIRST_S = 0.05
LONGEST_S = 2.0
SPREAD = 0.5
"""A pause is longer or shorter by up to this part of it."""


class Pauses:
    """The pauses of one client, or of one of its sessions."""

    def __init__(self, draw: Callable[[], float]) -> None:
        """`draw`: returns a random number from 0 to 1."""
        self._draw = draw
        self._closed: dict[Address, int] = {}
        """Address to how many connections in succession were closed there before a greeting."""

    def next_s(self, address: Address) -> float:
        """Note a connection that was closed before a greeting. Return the seconds to wait before the next one."""
        before = self._closed.get(address, 0)
        self._closed[address] = before + 1
        pause_s = min(FIRST_S * 2 ** min(before, 16), LONGEST_S)
        return float(pause_s * (1 + SPREAD * (2 * self._draw() - 1)))

    def greeted(self, address: Address) -> None:
        """Note a connection whose greeting was answered."""
        self._closed.pop(address, None)
