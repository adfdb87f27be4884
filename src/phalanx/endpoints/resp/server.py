"""The RESP endpoint of one member: makes the machines of its connections, and holds what they share."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.common.ids import Address, Millis
from phalanx.endpoints.protocol import Credentials, EndpointMachine, GridAccess


class RespServer:
    """What the RESP connections of one member share."""

    def __init__(
        self, grid: GridAccess, credentials: Credentials | None, maps: Sequence[str], *, is_loose: bool = False
    ) -> None:
        """`credentials`: what clients must show, None: nothing. `maps`: the maps that stand for databases. `is_loose`: whether
        transactions may have keys of several owners."""
        self.grid = grid
        self.credentials = credentials
        self.maps = tuple(maps)
        self.is_loose = is_loose

    def connect(self, number: int, peer: str, local: Address, now: Millis) -> EndpointMachine:
        raise NotImplementedError
