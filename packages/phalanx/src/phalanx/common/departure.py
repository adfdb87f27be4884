"""How a member went out of the list, as members tell each other: may it come back with data that the cluster does not have?"""

from __future__ import annotations

import enum

import msgspec

from phalanx.common.ids import Address, MemberId
from phalanx.common.versions import OLDEST_PROTOCOL_VERSION


class HowGone(enum.IntEnum):
    """What is known of a member that went. What says more about the same member has the greater number."""

    UNKNOWN = 0
    """Only its address is known, that of a seed which did not answer when the cluster began: a member may be there."""
    CUT_OFF = 1
    """It was removed, and perhaps still runs: then it keeps its data aside, or continues as another side of the cluster."""
    ENDED = 2
    """It was removed, and its machine said that no process listens there: what it held is gone. It can be started again."""
    LEFT = 3
    """It handed over what it held, and left; or nothing listens any more at an address of which no more was known."""


class Departure(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member that went, as others are told of it."""

    member: MemberId | Address
    """Only its address if that is all that is known."""
    minutes: int
    """For how long to remember it: the clocks of members show different times."""
    how: HowGone
    newest: int = OLDEST_PROTOCOL_VERSION
    """The newest version of the protocol that it speaks; if that is not known, the oldest."""
    store: str = ""
    """The identity of its folder, unless others have got what it held: it is awaited until that store is back, or an operator forgets
    it (DU-59)."""
    returns: bool = False
    """Whether it has stopped in order to come back."""

    @property
    def keeps(self) -> bool:
        """Whether it is awaited without end, because its folder has what it held."""
        return bool(self.store) and self.how is not HowGone.LEFT


Departures = tuple[Departure, ...]
"""The latest last."""
