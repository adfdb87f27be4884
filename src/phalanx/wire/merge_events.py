"""Events about data that was kept aside, and its way back into the cluster."""

from __future__ import annotations

import msgspec

from phalanx.common.ids import MemberId, Millis
from phalanx.wire.event import RecordedEvent


class DataKept(RecordedEvent, frozen=True):
    """This incarnation has ended without handing over: the next one of its process will merge what it held."""

    partitions: int
    """Replicas that are not empty, and those of earlier incarnations that are not merged yet."""
    entries: int
    rule: str = "DESIGN 5 kept aside"


class MergeStarted(RecordedEvent, frozen=True):
    """What a former incarnation of this process held is being merged into the cluster."""

    former: MemberId
    partitions: int
    entries: int
    rule: str = "EL-60"


class MergeEnded(RecordedEvent, frozen=True):
    """The cluster has acknowledged all that a former incarnation of this process held: it is dropped."""

    former: MemberId
    entries: int
    sent: int
    """Entries and removals that their new owners have acknowledged."""
    taken: int
    """Those of them that have changed what the new owners had."""
    left_to_others: int
    """Replicas that other members have merged, or have themselves."""
    took_ms: Millis
    rule: str = "EL-60"


class KeptDropped(RecordedEvent, frozen=True):
    """This member leaves, and nobody has taken what it kept of a side that gave up its cluster: that is lost."""

    former: tuple[MemberId, ...]
    partitions: int
    entries: int
    rule: str = "DESIGN 5 kept aside"


class MergeConflict(msgspec.Struct, frozen=True):
    """Two sides had different versions of one key."""

    key: str
    """In hexadecimal, cut if it is long."""
    kept_stamp: int
    """Of the version of the side that gave up its cluster."""
    here_stamp: int
    winner: str
    """`kept` or `here`."""


class MergeConflicts(RecordedEvent, frozen=True):
    """Keys of one map of which both sides had something, and not the same; as many of them as one event names."""

    former: MemberId
    map: str
    policy: str
    count: int
    kept_won: int
    """Of these the version of the side that gave up its cluster has remained."""
    conflicts: tuple[MergeConflict, ...]
    rule: str = "DESIGN 5 conflicts"


class MergedTooOld(RecordedEvent, frozen=True):
    """Kept entries that were not brought back: they may have been removed here so long ago that this is forgotten."""

    former: MemberId
    map: str
    count: int
    keys: tuple[str, ...]
    """Some of them, in hexadecimal."""
    purged_to: int
    """The newest removal that is forgotten here: they were written before."""
    rule: str = "DESIGN 5 tombstones"


MergeEvent = (
    DataKept | MergeStarted | MergeEnded | KeptDropped | MergeConflicts | MergedTooOld
)  # fmt: skip
