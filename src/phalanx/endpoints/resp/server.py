"""The RESP endpoint of one member: makes the machines of its connections, and holds what they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from phalanx.common.ids import Address, Millis
from phalanx.endpoints.protocol import Credentials, GridAccess
from phalanx.endpoints.resp import hashes, keys, server_commands, session, strings, transactions
from phalanx.endpoints.resp.connection import RespConnection
from phalanx.endpoints.resp.table import Command

TABLE: Final[tuple[Command, ...]] = tuple(
    sorted(
        (
            command
            for module in (strings, keys, hashes, transactions, session, server_commands)
            for command in module.COMMANDS.found
        ),
        key=lambda command: command.name,
    )
)
"""All commands that are known, by name; also those that are refused by name."""


class RespServer:
    """What the RESP connections of one member share."""

    table: tuple[Command, ...] = TABLE

    def __init__(
        self, grid: GridAccess, credentials: Credentials | None, maps: Sequence[str], *, is_loose: bool = False
    ) -> None:
        """`credentials`: what clients must show, None: nothing. `maps`: the maps that stand for databases. `is_loose`: whether
        transactions may have keys of several owners."""
        self.grid = grid
        self.credentials = credentials
        self.maps: tuple[str, ...] = tuple(maps)
        self.is_loose = is_loose
        self.clients: dict[int, RespConnection] = {}
        """Number of an open connection to it."""
        self.connected = 0
        """How many connections there were."""
        self.commands_done = 0
        self.began_at: Millis = 0
        self.commands: dict[bytes, Command] = {}
        """Name, in upper case and in lower case, to the command."""
        for command in TABLE:
            name = command.name.encode()
            self.commands[name] = self.commands[name.upper()] = command

    def find(self, name: bytes) -> Command:
        """Return the command of a name that is known."""
        return self.commands[name.upper()]

    def connect(self, number: int, peer: str, local: Address, now: Millis) -> RespConnection:
        """Return the machine of a new connection."""
        self.connected += 1
        self.began_at = self.began_at or now
        return RespConnection(self, number, peer, local, now)
