"""How many requests wait at this member, of each caller and in all, and how many bytes they hold.

A request waits for a lock, for its partition, for the keys of its map to be sorted, or for its next turn. Connections hold back
what they send while answers are not read, but a request that waits has no answer: one connection could leave so many here that
the member has no memory. So whatever lets a request wait counts it here, and turns away the one that is too many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.common.ids import Target, is_client
from phalanx.common.memory import format_bytes

MAX_WAITING_OF_CALLER = 1_024
"""Requests of one client's connection. A member asks for all programs that are connected to it, and is not held to this."""
MAX_WAITING = 100_000
"""Requests of all callers."""
MAX_WAITING_BYTES = 256 * 1024 * 1024
"""Bytes of all requests together; one request can have more."""
REQUEST_BYTES = 600
"""What a request costs besides its keys and values. Measured: 350 to 600 bytes."""
PART_BYTES = 60
"""What each key or value of a request costs besides its bytes."""


class WaitingRequests:
    """The requests that wait at one member."""

    __slots__ = ("_of", "_take", "held_bytes", "refused", "total")

    def __init__(self, take: Callable[[int], None] = lambda size: None) -> None:
        """`take`: counts bytes that this member takes, until its data is counted anew."""
        self._take = take
        self._of: dict[Target, int] = {}
        """Client to how many of its requests wait."""
        self.total = 0
        self.held_bytes = 0
        self.refused = 0
        """How many were turned away."""

    def __repr__(self) -> str:
        return f"WaitingRequests({self.total}, {format_bytes(self.held_bytes)}, refused={self.refused})"

    def add_request(self, caller: Target, size: int) -> None:
        """Count a request that waits from now on. `size`: its bytes."""
        self.total += 1
        self.held_bytes += size
        self._take(size)
        if is_client(caller):
            self._of[caller] = self._of.get(caller, 0) + 1

    def remove_request(self, caller: Target, size: int) -> None:
        """Stop counting a request, which waits no longer."""
        self.total -= 1
        self.held_bytes -= size
        if is_client(caller):
            left = self._of[caller] - 1
            if left:
                self._of[caller] = left
            else:
                del self._of[caller]

    def excess(self, caller: Target) -> str:
        """Say why the caller's request that was counted last is one too many; empty: it can wait."""
        if self._of.get(caller, 0) > MAX_WAITING_OF_CALLER:
            most = f"{MAX_WAITING_OF_CALLER} requests of this connection wait here already"
            return f"{most}, which is the most: wait for the answers to some"
        if self.total > MAX_WAITING:
            return f"{MAX_WAITING} requests wait at this member, which is the most: ask again later"
        if self.held_bytes > MAX_WAITING_BYTES and self.total > 1:
            return (
                f"requests of {format_bytes(MAX_WAITING_BYTES)} wait at this member, which is the most: ask again later"
            )
        return ""

    def turned_away(self, caller: Target, size: int) -> str:
        """End the waiting of the caller's request that was counted last, if it is one too many, and say why."""
        if why := self.excess(caller):
            self.remove_request(caller, size)
            self.refused += 1
        return why


def bytes_of(request: msgspec.Struct) -> int:
    """Return about how many bytes a request holds."""
    return REQUEST_BYTES + sum(_bytes_in(getattr(request, name)) for name in request.__struct_fields__)


def _bytes_in(field: Any) -> int:
    if isinstance(field, bytes | str):
        return len(field)
    if isinstance(field, list | tuple):
        return sum(PART_BYTES + _bytes_in(each) for each in field)
    if isinstance(field, msgspec.Struct):
        return sum(_bytes_in(getattr(field, name)) for name in field.__struct_fields__)
    return 0
