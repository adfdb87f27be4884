"""Events about the disks of members."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.wire.event import TROUBLE, WARNING, Either, Event, Notice


class DiskFull(Event, frozen=True):
    """This member's disk begins to have too little room for growth, or has room again."""

    notice = Either(
        "is_full",
        Notice("has a full disk, and refuses writes that need more: {why}", WARNING, TROUBLE),
        Notice("has room on its disk again, and accepts all writes", WARNING, TROUBLE),
    )

    is_full: bool
    why: str
    rule: str = "DU-42"


class DiskFailed(Event, frozen=True):
    """This member's disk has failed. It acknowledges no write any more, and hands over what it holds."""

    notice = Either(
        "is_last",
        Notice(
            "has lost its disk, and no other member has a working one: it refuses writes, and keeps what it holds until it is stopped: {why}",
            WARNING,
            TROUBLE,
        ),
        Notice(
            "has lost its disk: it hands over what it holds to members whose disks work, and ends when they hold all: {why}",
            WARNING,
            TROUBLE,
        ),
    )

    is_last: bool
    """Whether no other data member has a working disk."""
    why: str
    rule: str = "DU-41"


class OneDisk(Event, frozen=True):
    """On the master: some partitions are on one working disk only, because a member with a failed one holds the other replica; or
    no longer."""

    notice = Either(
        "is_one",
        Notice(
            "finds {partitions:partition} on one disk only: {members}, with failed disks, hold the other replicas in memory only",
            WARNING,
            TROUBLE,
        ),
        Notice("finds every partition on as many disks as it should be", WARNING, TROUBLE),
    )

    is_one: bool
    partitions: int
    members: tuple[MemberId, ...]
    rule: str = "DU-45"
