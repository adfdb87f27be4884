"""Events about the memory of members."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.wire.event import RecordedEvent


class MemoryNearlyFull(RecordedEvent, frozen=True):
    """This member's use of memory has passed nine tenths of its limit, or has fallen again."""

    is_near: bool
    used: int
    limit: int
    rule: str = "PX-24"


class MemoryFull(RecordedEvent, frozen=True):
    """This member begins to refuse what grows it, or accepts it again."""

    is_full: bool
    used: int
    limit: int
    resident: int
    """Bytes of the process in memory, with what is free inside of it."""
    rule: str = "PX-24"


class ClusterMemoryShort(RecordedEvent, frozen=True):
    """On the master: if this member were lost, the others would have no room for its replicas; or they have again."""

    is_short: bool
    lost: MemberId
    """The member whose loss would need the most memory."""
    needed: int
    """Bytes that the others would hold then."""
    room: int
    """Bytes that their limits allow."""
    rule: str = "PX-26"


MemoryEvent = MemoryNearlyFull | MemoryFull | ClusterMemoryShort
