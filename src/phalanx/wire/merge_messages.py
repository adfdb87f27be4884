"""Messages of the merge after a split brain: one side gives up its cluster, and its data is merged into the other."""

from __future__ import annotations

from phalanx.common.ids import MemberId
from phalanx.common.losses import Loss
from phalanx.wire.limits import Keys, Numbers, Text
from phalanx.wire.message import WireMessage


class MergeEntries(WireMessage, tag=85, frozen=True):
    """Orphaned versions of some keys of one map: the owner of all these keys merges them by the map's policy.

    Answered when the backups have what was taken, with how many versions that was. Asking again repeats only work.
    """

    id: int
    map: Text
    former: MemberId
    """The incarnation that ended, and whose data this is."""
    ended: int
    """The grid's clock at its end: what was written later was written by those who came together."""
    keys: Keys
    versions: Keys
    """Stamp and serialised value; the stamp alone: the key was removed."""
    ttls: Numbers
    """The remaining time to live of each, in milliseconds; 0: no expiry. Empty if none expires."""
    accessed: Numbers
    """When each was read last, by the grid's clock; empty where that is not noted."""
    hits: Numbers
    """How often each was read; as `accessed`."""


class FindWrittenBefore(WireMessage, tag=86, frozen=True):
    """Which keys of a map in this partition have values that were written before a stamp? Answered page by page, without
    values, in scan order behind `after_key`: they may have been cleared elsewhere."""

    id: int
    map: Text
    partition: int
    of: int
    """As in `SizeOf`."""
    stamp: int
    after_key: bytes


class Mark(WireMessage, frozen=True):
    """How recent a kept replica is."""

    partition: int
    epoch: int
    leader: str
    seq: int

    def covers(self, other: Mark) -> bool:
        """Whether a replica with this mark has all that one of the same side with the other has."""
        if self.epoch == other.epoch:
            return self.leader == other.leader and self.seq >= other.seq
        return self.epoch > other.epoch


class KeptQuery(WireMessage, tag=58, frozen=True):
    """Of replicas that a former incarnation at the receiver's address held: are they still kept for merging?"""

    former: MemberId
    of: int
    """The partition count of that incarnation's cluster."""
    replicas: tuple[Mark, ...]
    """What the sender keeps of them."""


class Waiting(WireMessage, frozen=True):
    """A replica that is kept, and is not sent, because others before it in the row may send theirs."""

    partition: int
    version: int
    """Of the partition, in the last table of its former incarnation."""
    index: int
    """Its place in that table's row."""


class KeptAnswer(WireMessage, tag=59, frozen=True):
    """What became of the replicas asked about. Of those that are not named the sender knows nothing, or had less than
    the receiver keeps.
    """

    former: MemberId
    of: int
    sending: tuple[int, ...]
    """They are being merged now, or are next."""
    done: tuple[int, ...]
    """They are merged: their new owners have acknowledged them."""
    waiting: tuple[Waiting, ...]


class Returned(WireMessage, frozen=True):
    """Partitions of a loss that a former incarnation of the sender's process held, and that were given back."""

    loss: str
    """Its identity."""
    partitions: bytes
    """As in `common.losses`."""


class KeptReport(WireMessage, tag=170, frozen=True):
    """A member tells its master what its process keeps of a side that gave up its cluster, and what the table should tell
    of losses and does not. Repeated until the table does.
    """

    replicas: int
    """Not merged yet; 0: nothing is kept."""
    entries: int
    over: tuple[MemberId, ...] = ()
    """Members that were removed, and of which nothing is expected any more: this process was them and has merged what they
    had, or it has their address and was never them."""
    returned: tuple[Returned, ...] = ()
    losses: tuple[Loss, ...] = ()
    """That the side told of from which this process comes."""
