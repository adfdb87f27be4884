"""Events about the memory of members."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.wire.event import TROUBLE, WARNING, Either, Event, Notice


class MemoryNearlyFull(Event, frozen=True):
    """This member's use of memory has passed nine tenths of its limit, or has fallen again."""

    notice = Either(
        "is_near",
        Notice("has little memory left: it uses {used:MiB} of {limit:MiB}", WARNING),
        Notice("has memory again: it uses {used:MiB} of {limit:MiB}", WARNING),
    )

    is_near: bool
    used: int
    limit: int
    rule: str = "PX-24"


class MemoryFull(Event, frozen=True):
    """This member begins to refuse what grows it, or accepts it again."""

    notice = Either(
        "is_full",
        Notice(
            "has reached its memory limit: it uses {used:MiB} of {limit:MiB}, and refuses writes that need more",
            WARNING,
            TROUBLE,
        ),
        Notice("accepts all writes again: it uses {used:MiB} of {limit:MiB} of memory", WARNING, TROUBLE),
    )

    is_full: bool
    used: int
    limit: int
    resident: int
    """Bytes of the process in memory, with what is free inside of it."""
    rule: str = "PX-24"


class ClusterMemoryShort(Event, frozen=True):
    """On the master: if this member were lost, the others would have no room for its replicas; or they have again."""

    notice = Either(
        "is_short",
        Notice(
            "finds that the cluster has too little memory: without {lost} the others would need {needed:MiB}, and have {room:MiB}",
            WARNING,
        ),
        Notice(
            "finds that the cluster has memory enough again: without {lost} the others would need {needed:MiB}, and have {room:MiB}",
            WARNING,
        ),
    )

    is_short: bool
    lost: MemberId
    """The member whose loss would need the most memory."""
    needed: int
    """Bytes that the others would hold then."""
    room: int
    """Bytes that their limits allow."""
    rule: str = "PX-26"
