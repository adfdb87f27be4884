"""What the connections of a member need of it (`runtime.member.Member`): to whom they belong, and who hears what becomes of them."""

from __future__ import annotations

from typing import Protocol

from phalanx.common.ids import Address, MemberId
from phalanx.common.view import MembersView
from phalanx.machine.inputs import Input
from phalanx.runtime.config import Config
from phalanx.runtime.overload import Overload


class ConnectionOwner(Protocol):
    """A member, as the connections from it and to it know it."""

    config: Config
    overload: Overload
    """What was refused or dropped because buffers, places and descriptors are bounded."""

    @property
    def id(self) -> MemberId:
        """The present incarnation."""

    @property
    def address(self) -> Address:
        """Return the address at which it listens."""

    @property
    def view(self) -> MembersView | None:
        """The member list that it has installed."""

    def feed(self, event: Input) -> None:
        """Give the node an input, and carry out what it wants."""

    def distrusted(self, where: str, reason: str) -> None:
        """Note that a connection from or to somewhere was refused."""
