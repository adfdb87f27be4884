"""Messages of the merge after a split brain: one side gives up its cluster, and its data is merged into the other."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from phalanx.common.ids import MemberId
from phalanx.common.losses import Loss
from phalanx.wire.limits import MAX_KEYS, Keys, Numbers, Text
from phalanx.wire.message import WireMessage
from phalanx.wire.table_messages import OwnerEpoch


class MergeEntries(WireMessage, tag=85, frozen=True):
    """Orphaned versions of some keys of one map. The owner of all these keys merges them by the map's policy.

    Answered when the backups have what was merged, with the number of versions that changed something. Idempotent.
    """

    id: int
    map: Text
    former: MemberId
    """The incarnation that ended and held these versions."""
    ended: int
    """The time of the grid's clock at its end. Whatever has a later stamp was written in the merged cluster."""
    keys: Keys
    versions: Keys
    """For each key its stamp and serialised value; the stamp alone: the key was removed."""
    ttls: Numbers
    """The remaining time to live of each version, in milliseconds; 0: no expiry. Empty if none expires."""
    accessed: Numbers
    """When each entry was read last, by the grid's clock; empty where reads are not counted."""
    hits: Numbers
    """How often each entry was read; empty where reads are not counted."""
    idles: Annotated[tuple[int, ...], Meta(max_length=MAX_KEYS)] = ()
    """How long each version can be idle before it expires; 0: without end. Empty if none expires so."""


class FindWrittenBefore(WireMessage, tag=86, frozen=True):
    """Ask which keys of a map in this partition have values written before a stamp: the other side may have cleared
    them.

    Answered with a page of keys, without values, in scan order after `after_key`.
    """

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    stamp: int
    after_key: bytes


class FindWrite(WireMessage, tag=183, frozen=True):
    """Ask the owner of a partition whether it, and its backups, have a write: then they have all that a replica with this last write has.

    Answered with a number: 1 if they have, else 0.
    """

    id: int
    partition: int
    of: int
    """As in `SizeOf`."""
    seq: int
    """The write's sequence number."""
    epoch: int
    """The epoch in which it was made."""
    leader: str
    """The owner that made it, as it was named before its partition was divided."""


class Mark(WireMessage, frozen=True):
    """How recent an orphaned replica is: the last write that it has applied, and the epoch of that write."""

    partition: int
    epoch: int
    leader: str
    seq: int

    def covers(self, other: Mark) -> bool:
        """Return whether a replica with this mark has all writes of a replica of the same side with the other mark."""
        if self.epoch == other.epoch:
            return self.leader == other.leader and self.seq >= other.seq
        return self.epoch > other.epoch


class KeptQuery(WireMessage, tag=58, frozen=True):
    """Ask what became of replicas of a former incarnation at the receiver's address: are they still kept?"""

    former: MemberId
    of: int
    """The partition count of that incarnation's cluster."""
    replicas: tuple[Mark, ...]
    """The marks of the sender's replicas of the same partitions."""


class Waiting(WireMessage, frozen=True):
    """An orphaned replica that is not sent yet, because members before it in the partition's row can send theirs."""

    partition: int
    version: int
    """The version of the partition in the last table of the former incarnation."""
    index: int
    """The replica's index in that table's row."""


class KeptAnswer(WireMessage, tag=59, frozen=True):
    """What became of the replicas asked about. Those that it does not name the sender never had, or had in an older
    state than the receiver.
    """

    former: MemberId
    of: int
    """As in `KeptQuery`."""
    sending: tuple[int, ...]
    """Partitions whose replicas are being merged now, or are next."""
    done: tuple[int, ...]
    """Partitions whose replicas are merged: the new owners have acknowledged them."""
    waiting: tuple[Waiting, ...]
    """Replicas that wait for other members."""


class Returned(WireMessage, frozen=True):
    """Lost partitions that a former incarnation of the sender's process held, and whose data has been merged back."""

    loss: str
    """The identity of the loss."""
    partitions: bytes
    """The partitions, as `common.losses.bits_of` encodes them."""


class DormantOrphans(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Partitions that are dormant now, and that a former incarnation of a process held: they wait there to be merged."""

    former: MemberId
    partitions: tuple[int, ...]
    """Also such in which nothing was stored."""
    is_as_read: bool = False
    """Whether they are as they were read from its folder, because its next process found others in their place."""
    positions: tuple[OwnerEpoch, ...] = ()
    """The positions of those in which something was stored."""


class KeptReport(WireMessage, tag=170, frozen=True):
    """From a member to its master: the orphaned replicas that its process still keeps, and facts about losses that the
    table lacks. Repeated until the table has them.
    """

    replicas: int
    """How many orphaned replicas are not merged yet; 0: it keeps none."""
    entries: int
    """How many entries they have."""
    over: tuple[MemberId, ...] = ()
    """Removed members from which no data can come any more: this process was that member and has merged its data, or
    has its address and never was that member."""
    returned: tuple[Returned, ...] = ()
    losses: tuple[Loss, ...] = ()
    """Losses in the last table of the side that this process comes from."""
    dormant: tuple[DormantOrphans, ...] = ()
