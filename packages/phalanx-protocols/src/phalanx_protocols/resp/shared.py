"""What the RESP connections of one member share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phalanx.common.ids import Millis
from phalanx.endpoints.protocol import Credentials, GridAccess
from phalanx_protocols.resp.table import Command


class RespShared:
    """The member, its settings for Redis clients, and the connections that are open."""

    def __init__(
        self,
        table: tuple[Command, ...],
        grid: GridAccess,
        credentials: Credentials | None,
        maps: Sequence[str],
        *,
        is_loose: bool,
    ) -> None:
        """`table`: all commands. The others: see `RespServer`."""
        self.table = table
        self.grid = grid
        self.credentials = credentials
        self.maps: tuple[str, ...] = tuple(maps)
        self.is_loose = is_loose
        self.clients: dict[int, Any] = {}
        """Number of an open connection to it (`connection.RespConnection`)."""
        self.connected = 0
        """How many connections there were."""
        self.commands_done = 0
        self.began_at: Millis = 0
        self.commands: dict[bytes, Command] = {}
        """Name, in upper case and in lower case, to the command."""
        for command in table:
            name = command.name.encode()
            self.commands[name] = self.commands[name.upper()] = command

    def find(self, name: bytes) -> Command:
        """Return the command of a name that is known."""
        return self.commands[name.upper()]
