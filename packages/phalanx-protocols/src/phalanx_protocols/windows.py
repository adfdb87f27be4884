"""How many requests can be under way for one client."""

from __future__ import annotations

from typing import Final

from phalanx.endpoints.protocol import LARGE_REPLY_BYTES

MAX_UNDER_WAY: Final = 256
"""The most requests that are under way for one connection."""
FIRST_UNDER_WAY: Final = 16
"""How many can be under way before it is known how long answers are."""


class Window:
    """How many requests can be under way: one while answers are long, so that few of these are in memory at once."""

    __slots__ = ("most",)

    def __init__(self) -> None:
        self.most = FIRST_UNDER_WAY

    def note(self, size: int) -> None:
        """Note the bytes of an answer."""
        if size > LARGE_REPLY_BYTES:
            self.most = 1
        elif self.most < MAX_UNDER_WAY:
            self.most *= 2
