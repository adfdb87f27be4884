"""Events about orphaned replicas: data of a side that gave up its cluster, until it is merged into the other side."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import DEBUG, ERROR, LOST, TROUBLE, WARNING, Event, Notice


class DataKept(Event, frozen=True):
    """This incarnation ended without handing over its replicas: the next one of its process merges them."""

    notice = Notice(
        "keeps {entries:entry/entries} of {partitions:partition}, to merge them where it rejoins", WARNING, TROUBLE
    )

    partitions: int
    """How many of its replicas are not empty, with those of earlier incarnations that are not merged yet."""
    entries: int
    """The number of entries in these replicas."""
    rule: str = "PX-10"


class MergeStarted(Event, frozen=True):
    """This process begins to merge the replicas of one of its former incarnations into the cluster."""

    notice = Notice("begins to merge what {former} held: {entries:entry/entries} of {partitions:partition}")

    former: MemberId
    partitions: int
    entries: int
    rule: str = "EL-60"


class MergeEnded(Event, frozen=True):
    """The cluster has acknowledged all data of a former incarnation of this process, and the process drops it."""

    notice = Notice(
        "has merged what {former} held: {sent} sent, {taken} taken, {took_ms} ms[; {left_to_others:partition was/partitions were} left to others]"
    )

    former: MemberId
    entries: int
    sent: int
    """How many entries and removals their new owners have acknowledged."""
    taken: int
    """How many of those changed what the new owner had."""
    left_to_others: int
    """How many replicas were dropped because another member merged the same data, or still holds it in this cluster."""
    took_ms: Millis
    rule: str = "EL-60"


class KeptDropped(Event, frozen=True):
    """This member leaves before its orphaned replicas (of a side that gave up) are merged: they are lost."""

    notice = Notice(
        "leaves with {entries:entry/entries} of {partitions:partition} that it kept, and that no owner has taken: they are lost",
        ERROR,
        LOST,
    )

    former: tuple[MemberId, ...]
    partitions: int
    entries: int
    rule: str = "PX-10"


class MergeConflict(msgspec.Struct, frozen=True):
    """A key of which the two sides had different versions."""

    key: str
    """The serialised key in hexadecimal, cut if it is long."""
    kept_stamp: int
    """The stamp of the orphaned version: that of the side that gave up its cluster."""
    here_stamp: int
    """The stamp of the version that the cluster had."""
    winner: str
    """The version that remains: `kept` for the orphaned one, or `here`."""


class MergeConflicts(Event, frozen=True):
    """Keys of one map of which the two sides had different versions, from one request of a merge."""

    notice = Notice(
        "found {count} keys of map {map} with other values of {former}: {policy} took {kept_won} of these values", DEBUG
    )

    former: MemberId
    map: str
    policy: str
    """The merge policy of the map."""
    count: int
    """How many keys conflicted."""
    kept_won: int
    """How many of them the orphaned version won."""
    conflicts: tuple[MergeConflict, ...]
    """Some of the conflicts: as many as one event names at most."""
    rule: str = "PX-12"


class MergedTooOld(Event, frozen=True):
    """Orphaned entries that were not merged: the cluster may have removed them and purged their tombstones since."""

    notice = Notice(
        "does not bring back {count} keys of map {map} that {former} had: they were perhaps removed here long ago",
        WARNING,
    )

    former: MemberId
    map: str
    count: int
    """How many entries were not merged."""
    keys: tuple[str, ...]
    """Some of their keys, in hexadecimal."""
    purged_to: int
    """The stamp of the newest tombstone that was purged here: the entries were written before it."""
    rule: str = "PX-13"
