"""What a member's connections need of it (`runtime.member_driver`): its identity, and methods to call on events."""

from __future__ import annotations

from typing import Protocol

from phalanx.common.ids import Address, MemberId
from phalanx.common.view import MembersView
from phalanx.machine.inputs import Input
from phalanx.runtime.connections.overload import Overload
from phalanx.runtime.settings.config import Config


class ConnectionOwner(Protocol):
    """A member, as its connections see it."""

    config: Config
    overload: Overload
    """Counters of what was refused or dropped because buffers, places and descriptors are bounded."""

    @property
    def id(self) -> MemberId:
        """Return the identity of the present incarnation."""

    @property
    def address(self) -> Address:
        """Return the address at which it listens."""

    @property
    def view(self) -> MembersView | None:
        """Return the view that it has installed."""

    def feed(self, event: Input) -> None:
        """Give the node an input, and carry out the effects."""

    def distrusted(self, where: str, reason: str) -> None:
        """Note that a connection from or to somewhere was refused."""
