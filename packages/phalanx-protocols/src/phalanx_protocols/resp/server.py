"""The RESP endpoint of one member: makes the machines of its connections, and holds what they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from phalanx.common.ids import Address, Millis
from phalanx.endpoints.protocol import Credentials, GridAccess, ProtocolSettings
from phalanx_protocols.resp import hashes, info, keys, server_commands, session, strings, transactions
from phalanx_protocols.resp.connection import RespConnection
from phalanx_protocols.resp.shared import RespShared
from phalanx_protocols.resp.table import Command

TABLE: Final[tuple[Command, ...]] = tuple(
    sorted(
        (
            command
            for module in (strings, keys, hashes, transactions, session, server_commands, info)
            for command in module.COMMANDS.found
        ),
        key=lambda command: command.name,
    )
)
"""All commands that are known, by name; also those that are refused by name."""
MAPS: Final = tuple(f"redis{number}" for number in range(16))
"""The maps that stand for databases, unless the settings name others."""


class RespServer(RespShared):
    """What the RESP connections of one member share, and what makes their machines."""

    def __init__(
        self, grid: GridAccess, credentials: Credentials | None, maps: Sequence[str], *, is_loose: bool = False
    ) -> None:
        """`credentials`: what clients must show, None: nothing. `maps`: the maps that stand for databases. `is_loose`: whether
        transactions can have keys of several owners."""
        super().__init__(TABLE, grid, credentials, maps, is_loose=is_loose)

    def connect(self, number: int, peer: str, local: Address, now: Millis) -> RespConnection:
        """Return the machine of a new connection."""
        self.connected += 1
        self.began_at = self.began_at or now
        return RespConnection(self, number, peer, local, now)


def make_endpoint(grid: GridAccess, credentials: Credentials | None, settings: ProtocolSettings) -> RespServer:
    """Return the endpoint of a member."""
    return RespServer(grid, credentials, settings.redis_maps or MAPS, is_loose=settings.redis_loose_transactions)
