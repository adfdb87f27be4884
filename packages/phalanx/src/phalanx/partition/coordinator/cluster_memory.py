"""On the master: which members have no memory, or no disk, for further replicas, and whether the loss of one would fit in the others.

A full member gets no replica that it does not hold. Where a partition lacks one, or a member leaves, another member
takes it (`substitute_replicas`); a replica that only balances the load waits until the member has room.

When a member is lost, its replicas are made again on the others, as far as there are members enough for them. The sum of
what the others hold then must be within the sum of their limits. Only members that have said what they use are counted:
if one has not, nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from phalanx.common.ids import MemberId
from phalanx.machine.outbox import Outbox
from phalanx.wire.memory_events import ClusterMemoryShort
from phalanx.wire.messages import MemoryReport, MissingMemory


def worst_loss(
    reports: Mapping[MemberId, MemoryReport], holders: Sequence[MemberId], replicas: int
) -> MissingMemory | None:
    """Return the loss of one member that leaves the others with the least room; None: it is not known, or none is left.

    `holders`: the members that hold data; `replicas`: how many each partition should have, independent of the present members.
    """
    if len(holders) < 2 or any(member not in reports or not reports[member].limit for member in holders):
        return None
    many = len(holders)
    data = sum(reports[member].data for member in holders)
    after = data * min(replicas, many - 1) // min(replicas, many)
    losses = []
    for lost in holders:
        staying = [reports[member] for member in holders if member != lost]
        besides = sum(report.used - report.data for report in staying)
        losses.append(MissingMemory(lost, after + besides, sum(report.limit for report in staying)))
    return max(losses, key=lambda loss: loss.needed - loss.room)


class ClusterMemory:
    """What the master concludes from the members' memory reports."""

    def __init__(self, outbox: Outbox) -> None:
        self._out = outbox
        self._full: frozenset[MemberId] = frozenset()
        """Members whose memory is full by their last reports."""
        self.without_disk: frozenset[MemberId] = frozenset()
        """Members whose disks are full or have failed."""
        self.shortage: MissingMemory | None = None
        """The loss that would not fit; None: each would, or it is not known."""

    def __repr__(self) -> str:
        return f"ClusterMemory(full={sorted(self.full)}, shortage={self.shortage})"

    @property
    def full(self) -> frozenset[MemberId]:
        """Return the members that get no further replicas."""
        return self._full | self.without_disk

    def forget(self) -> None:
        """Forget what members have said of their memory: this member is not the master any more."""
        self._full, self.shortage = frozenset(), None

    def take(self, reports: Mapping[MemberId, MemoryReport], holders: Sequence[MemberId], replicas: int) -> bool:
        """Take the members' memory reports. Return whether other members are full than before.

        `holders`, `replicas`: as for `worst_loss`.
        """
        worst = worst_loss(reports, holders, replicas)
        short = worst if worst is not None and worst.needed > worst.room else None
        if worst is not None and (short is None) != (self.shortage is None):
            self._out.record(ClusterMemoryShort(short is not None, worst.member, worst.needed, worst.room))
        self.shortage = short
        full = frozenset(member for member in holders if member in reports and reports[member].is_full)
        is_other, self._full = full != self._full, full
        return is_other

    def pairs(self, owners: Collection[MemberId]) -> set[tuple[MemberId, MemberId]]:
        """Return each owner with each full member, to which it can copy nothing."""
        return {(owner, member) for owner in owners for member in self.full}
